"""`spread_replicas`: on which disks the replicas of each slot are to be; `led_home`. Pure.

Rules of this file. No two replicas of a slot are on one disk, or on one host: one loss must not
take both. Where a label of nodes is named, such as a zone, they are where it has other values, as
far as there are as many. The first replica of a slot is the one that leads it at first: those are
spread evenly, and so are all. A node that is being drained gets none, and one that has no CPUs only
where no other is left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from pxrs_ray.errors import UsageError
from pxrs_ray.model import Slot
from pxrs_ray.replication.placement import Disk, Placement
from pxrs_ray.topology.homes import Home, Homes
from pxrs_ray.topology.node_seen import NodeSeen


def spread_replicas(
    slots: Iterable[Slot], nodes: Sequence[NodeSeen], replicas: int, spread_by: str = ""
) -> dict[Slot, tuple[Disk, ...]]:
    """The disks of each slot, whoever is to lead it first.

    Raises UsageError where there are not as many hosts that keep a disk.
    """
    fit = [node for node in nodes if node.disk and not node.draining]
    hosts = sorted({node.host for node in fit})
    if replicas < 1:
        raise UsageError(f"replicas = {replicas}: a log has one copy at least")
    if len(hosts) < replicas:
        there = ", ".join(hosts) or "none"
        raise UsageError(
            f"replicas = {replicas} needs as many hosts that stay and have a disk, and there are "
            f"{len(hosts)} ({there}): add hosts, or set replicas to {max(1, len(hosts))}"
        )
    leads, has = Counter[str](), Counter[str]()
    placed: dict[Slot, tuple[Disk, ...]] = {}
    for slot in sorted(slots):
        chosen: list[NodeSeen] = []
        for _ in range(replicas):
            load = has if chosen else leads
            left = [node for node in fit if all(node.host != one.host for one in chosen)]
            taken = {one.place(spread_by) for one in chosen}
            best = min(left, key=lambda n: (n.place(spread_by) in taken, *_load(n, load, has)))
            chosen.append(best)
            has[best.disk] += 1
        leads[chosen[0].disk] += 1
        placed[slot] = tuple(node.disk for node in chosen)
    return placed


def _load(node: NodeSeen, *counts: Mapping[Disk, int]) -> tuple[object, ...]:
    return (node.cpus <= 0, *(count[node.disk] for count in counts), node.host, node.disk)


def shared_places(
    replicas: Sequence[Disk], nodes: Sequence[NodeSeen], spread_by: str
) -> dict[str, list[str]]:
    """The hosts of one slot's replicas that share a value of the label by which they are to be
    spread, by that value."""
    found: dict[str, list[str]] = {}
    for disk in replicas:
        node = next((node for node in nodes if node.disk == disk), None)
        if node is not None and node.labels.get(spread_by):
            found.setdefault(node.labels[spread_by], []).append(node.host)
    return {place: hosts for place, hosts in found.items() if len(hosts) > 1}


def another_disk(
    slot: Slot,
    placed: Mapping[Slot, Sequence[Disk]],
    leaving: Collection[Disk],
    nodes: Sequence[NodeSeen],
    begun: Collection[Disk] = (),
    spread_by: str = "",
) -> Disk | None:
    """Where a slot has one more replica, or one instead of those that leave their disks: on a host
    that has none of it, in a place that has none where there is one, the one with the fewest. None
    where there is no such host.

    `placed` are the disks of each slot. One where a process has `begun` already goes before others.
    """
    stays = [disk for disk in placed[slot] if disk not in leaving]
    hosts = {node.host for node in nodes if node.disk in stays}
    has = Counter(disk for disks in placed.values() for disk in disks)
    fit = [node for node in nodes if node.disk and not node.draining and node.host not in hosts]
    fit = [node for node in fit if node.disk not in placed[slot]]
    taken = {node.place(spread_by) for node in nodes if node.disk in stays}
    fit.sort(key=lambda n: (n.place(spread_by) in taken, n.disk not in begun, *_load(n, has)))
    return fit[0].disk if fit else None


def led_home(known: Home | None, placement: Placement, node: NodeSeen) -> Home:
    """The home of a slot that is led from this node: the leader's disk, with the leader epoch for a
    term. `known` is the home that it had."""
    term, disk = placement.epoch, placement.leader
    since = known.since if known is not None and known.disk == disk else term
    return Home(disk, node.node, node.host, term, node.boot, since=since)


def homes_as_placed(homes: Homes, placed: Mapping[Slot, Placement]) -> Homes:
    """`homes` as the registry's placements have them: who was elected is written there first, and a
    coordinator may have ended before it wrote where that one is at home."""
    for slot, placement in placed.items():
        known = homes.slots.get(slot)
        if placement.leader and (known is None or known.term < placement.epoch):
            nowhere = NodeSeen("", "", placement.leader)
            homes = homes.with_slot(slot, led_home(known, placement, nowhere))
    return homes
