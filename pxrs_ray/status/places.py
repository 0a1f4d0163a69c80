"""The placement of a topology's buffers, as people see it, and how even it is. Pure.

Rules of this file. A topology is spread when no node has two buffers more than another node that
could have one: so the loss of a node stops as few partitions as it can. A buffer that waits for its
host is on no node, and is not moved: it goes on where its disk is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Slot
from pxrs_ray.topology.homes import SHOWN, Homes
from pxrs_ray.topology.node_seen import NodeSeen

AT_HOME = "at home"
STARTING = "starting"
WAITING = "waits"
MOVING = "moves"
SILENT = "silent"
ELSEWHERE = "without its disk"
DEPOSED = "led by another"


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """One replica of a buffer: where its disk is ('' while that is away), whether it has all that
    was acknowledged, and whether it leads. `place` is what its node has for the label by which
    replicas are spread."""

    host: str
    node: str
    disk: str
    in_sync: bool
    leads: bool
    place: str = ""

    @property
    def where(self) -> str:
        """Its host, as people read it."""
        place = f" ({self.place})" if self.place else ""
        return f"{self.host or 'away'}{place}"


@dataclass(frozen=True, slots=True)
class BufferStatus:
    """One buffer: its home, and its state there.

    `state` is one of the texts above, and `told` says more where there is more to say. `disk` is
    the id of the disk that its logs are on, `host` and `node` are where that disk is, or was last.
    `term` and `lease_left_ms` are what it serves under; without a lease (0) nobody can be served.
    `bytes` and `free_bytes` are what it keeps and what its disk has left, None while it does not
    answer. `away_s` is for how long its disk has been missed. `replicas` are all of it, the leader
    first; none where it has one home. It has refused `refused` appends in the last minutes.
    """

    buffer: int
    state: str
    told: str = ""
    host: str = ""
    node: str = ""
    disk: str = ""
    term: int = 0
    lease_left_ms: int = 0
    bytes: int | None = None
    free_bytes: int | None = None
    away_s: float | None = None
    replicas: tuple[ReplicaStatus, ...] = ()
    refused: int = 0
    last_refusal: str = ""

    @property
    def text(self) -> str:
        """Its state in words."""
        return self.told or self.state

    @property
    def other_hosts(self) -> str:
        """Where else it has replicas, as people read it."""
        others = [one for one in self.replicas if not one.leads]
        return ", ".join(f"{each.where}{'' if each.in_sync else ' (behind)'}" for each in others)

    @property
    def short_node(self) -> str:
        """Its node's id, as far as people need it."""
        return self.node[:SHOWN]

    @property
    def short_disk(self) -> str:
        """Its disk's id, as far as people need it."""
        return self.disk[:SHOWN]


@dataclass(frozen=True, slots=True)
class SpreadStep:
    """A move that would spread the buffers more evenly: hosts by address, nodes by id."""

    buffer: int
    source: str
    target: str
    target_node: str = ""


def steps_to_spread(
    homes: Homes, nodes: Iterable[NodeSeen], but: Iterable[Slot] = ()
) -> tuple[SpreadStep, ...]:
    """The fewest moves after which no node has two buffers more than another; those that `but`
    names stay as they are. A node without CPUs, a disk, or a future takes none."""
    fit = {n.node: n for n in nodes if _takes(n)}
    settled = {s: h for s, h in homes.slots.items() if h.away_since_ms is None}
    on: dict[str, list[Slot]] = {node: [] for node in fit}
    for slot, home in sorted(settled.items()):
        if home.node in on:
            on[home.node].append(slot)
    fixed, steps = set(but), list[SpreadStep]()
    while len(on) > 1:
        by_load = sorted(on, key=lambda node: (len(on[node]), fit[node].host, node))
        fewest, most = by_load[0], by_load[-1]
        movable = [slot for slot in on[most] if slot not in fixed]
        if len(on[most]) - len(on[fewest]) < 2 or not movable:
            break
        slot = movable[-1]
        on[most].remove(slot)
        on[fewest].append(slot)
        steps.append(SpreadStep(slot, fit[most].host, fit[fewest].host, fewest))
    return tuple(steps)


def _takes(node: NodeSeen) -> bool:
    return node.cpus > 0 and not node.draining and bool(node.disk or node.unknown)


def by_host(places: Iterable[BufferStatus]) -> Mapping[str, list[int]]:
    """Which buffers each host has."""
    found: dict[str, list[int]] = {}
    for place in places:
        if place.state != WAITING and place.host:
            found.setdefault(place.host, []).append(place.buffer)
    return dict(sorted(found.items()))
