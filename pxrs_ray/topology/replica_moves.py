"""`ReplicaMoves`: how replicas come to be on the disks where they are to be, step by step. Pure.

    moves.step(slot, placement, living, wanted, placed)    # what is to be done next, or None

Rules of this file. Nothing is remembered but what an operator has asked for: each step follows from
what stands in the registry and who lives, so whoever coordinates next goes on. A replica leaves a
disk that is drained, given up, or to be moved from. If it leads, another one that is in sync leads
first: nobody waits for a copy. Then there is one on another host, and only when that one is in sync
does this one go; so there are never fewer copies than before. One that is lost is not waited for.
As long as no leader lives nothing is changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field

from pxrs_ray.errors import UsageError
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Slot
from pxrs_ray.replication.placement import Disk, Placement, ReplicaSeen
from pxrs_ray.topology.homes import SHOWN
from pxrs_ray.topology.node_seen import NodeSeen
from pxrs_ray.topology.replica_spread import another_disk

SlotsPlaced = Mapping[Slot, Placement]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Where replicas may be: so many of a slot, on these nodes, spread by that label of theirs.
    `overdue` disks are given up."""

    replicas: int
    nodes: Sequence[NodeSeen]
    overdue: Collection[Disk] = frozenset()
    spread_by: str = ""

    def drained(self) -> frozenset[Disk]:
        """The disks that go with their nodes, and are on none that stays."""
        stay = {node.disk for node in self.nodes if not node.draining}
        return frozenset(n.disk for n in self.nodes if n.draining and n.disk) - stay


@dataclass(frozen=True, slots=True)
class LeadFrom:
    """Have this replica lead instead of the one that does."""

    disk: Disk


@dataclass(frozen=True, slots=True)
class BeginOn:
    """Have a process of the slot there: a replica is about to be placed on that disk."""

    disk: Disk


@dataclass(frozen=True, slots=True)
class BeOn:
    """Have the slot on these disks, instead of those of the placement of that `version`."""

    version: int
    replicas: tuple[Disk, ...]


ReplicaStep = LeadFrom | BeginOn | BeOn


@dataclass(slots=True)
class ReplicaMoves:
    """See the rules at the head of this file. `asked` are the moves that an operator wants: of
    which slot, from which disk to which. `stuck` says why a slot cannot be where it is to be."""

    asked: dict[Slot, tuple[Disk, Disk]] = field(default_factory=dict)
    stuck: dict[Slot, str] = field(default_factory=dict)

    def ask(self, slot: Slot, placement: Placement, source: Disk, target: NodeSeen) -> None:
        """An operator wants a replica elsewhere. Raises UsageError where it cannot be."""
        if self.asked.get(slot, (source, target.disk)) != (source, target.disk):
            raise UsageError(f"a replica of buffer {slot} is being moved already")
        if source not in placement.replicas:
            raise UsageError(f"buffer {slot} has no replica on disk {source[:SHOWN]}")
        if target.disk in placement.replicas:
            raise UsageError(f"buffer {slot} has a replica on host {target.host} already")
        if not target.disk or target.draining:
            raise UsageError(f"host {target.host} has no disk that stays: name another one")
        self.asked[slot] = source, target.disk

    def step(
        self,
        slot: Slot,
        placed: SlotsPlaced,
        living: Mapping[Disk, ReplicaSeen],
        wanted: Wanted,
    ) -> ReplicaStep | None:
        """What is to be done next about a slot; None where that is nothing, or nothing yet."""
        placement = placed[slot]
        self.stuck.pop(slot, None)
        source, target = self.asked.get(slot, ("", ""))
        if source not in placement.replicas or all(n.disk != target for n in wanted.nodes):
            # It is done, or cannot be.
            self.asked.pop(slot, None)
            source = target = ""
        leads = living.get(placement.leader)
        if leads is None or leads.life != placement.life:
            return None
        away = {disk for disk in wanted.overdue if disk not in living}
        goes = away | wanted.drained() | {source}
        stay = [disk for disk in placement.replicas if disk not in goes]
        if placement.leader not in stay:
            able = [disk for disk in stay if placement.in_sync(disk) and disk in living]
            if able:
                leading = Counter(one.leader for one in placed.values())
                return LeadFrom(min(able, key=lambda disk: (leading[disk], disk)))
        if len(stay) < wanted.replicas:
            target = target if target not in placement.replicas else ""
            return self._one_more(slot, placed, living, wanted, goes, target)
        return _one_less(placement, stay, living, placed, wanted)

    def _one_more(
        self,
        slot: Slot,
        placed: SlotsPlaced,
        living: Mapping[Disk, ReplicaSeen],
        wanted: Wanted,
        goes: Collection[Disk],
        target: Disk,
    ) -> ReplicaStep | None:
        placement = placed[slot]
        leaving = [disk for disk in placement.replicas if disk in goes]
        disks = {each: one.replicas for each, one in placed.items()}
        where = disks, leaving, wanted.nodes, living, wanted.spread_by
        new = target or another_disk(slot, *where)
        if new is None:
            count = len(placement.replicas) - len(leaving)
            self.stuck[slot] = (
                f"buffer {slot} has {count} of {wanted.replicas} replicas on hosts that stay, and "
                "there is no other host with a disk for one more: add a host"
            )
            return None
        if new not in living:
            return BeginOn(new)
        # What is lost has its place taken at once; what is there goes when this one is in sync.
        lost = [d for d in leaving if d in wanted.overdue and d != placement.leader]
        kept = tuple(disk for disk in placement.replicas if disk != (lost[0] if lost else ""))
        return BeOn(placement.version, (*kept, new))


def left_behind(
    placed: SlotsPlaced, nodes: Sequence[NodeSeen], wanted: int
) -> list[tuple[Slot, Disk]]:
    """The slots that disks have logs of, and no replica: each was replaced while it was away. Only
    where all replicas that are wanted are in sync: until then nothing that could help goes."""
    found = []
    for slot, placement in sorted(placed.items()):
        if len(placement.isr) == len(placement.replicas) >= wanted:
            has = {node.disk for node in nodes if node.disk and slot in node.slots}
            found += [(slot, disk) for disk in sorted(has - set(placement.replicas))]
    return found


def _one_less(
    placement: Placement,
    stay: Sequence[Disk],
    living: Mapping[Disk, ReplicaSeen],
    placed: SlotsPlaced,
    wanted: Wanted,
) -> ReplicaStep | None:
    """Let go of a replica that is not needed any more, once all others are in sync."""
    goes = [disk for disk in placement.replicas if disk not in stay and disk != placement.leader]
    if not goes and len(stay) > wanted.replicas:
        has = Counter(disk for one in placed.values() for disk in one.replicas)
        not_leading = [disk for disk in stay if disk != placement.leader]
        at = {node.disk: node.place(wanted.spread_by) for node in wanted.nodes}
        many = Counter(at.get(disk, disk) for disk in stay)
        shares = {disk: many[at.get(disk, disk)] for disk in stay}
        not_leading.sort(
            key=lambda d: (placement.in_sync(d) is not None, d in living, -shares[d], -has[d], d)
        )
        goes = not_leading[:1]
    for disk in goes:
        left = tuple(each for each in placement.replicas if each != disk)
        is_lost = placement.in_sync(disk) is None and disk not in living
        needed = [each for each in stay if each != disk]
        if is_lost or all(placement.in_sync(each) is not None for each in needed):
            return BeOn(placement.version, left)
    return None
