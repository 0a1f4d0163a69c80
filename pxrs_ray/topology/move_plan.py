"""Predicts what moving buffers to another disk would mean, before it begins. Pure.

Rules of this file. `estimate` follows what a move does
(`pxrs_ray.actors.coordinator.buffer_moves`): it copies while the buffer serves, round after round,
until little is left; then the buffer stops, the rest is copied, and it starts at its new home. So
producers and readers wait for as long as it takes to copy what was written during the last round,
and for the stop and the start. Nothing is known of a disk or a wire that was not used yet, nor of
how busy a host will be: how fast they are is said, not measured. So a pause is given as a range:
from hosts that do nothing else to busy ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING

from pxrs_ray.errors import NotFound, UsageError
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Slot
from pxrs_ray.topology.homes import SHOWN, Homes, moved_to, place_to_move_to
from pxrs_ray.topology.node_seen import NodeSeen

if TYPE_CHECKING:
    from pxrs_ray.data.protocol import BufferStats

COPY_BYTES_PER_S = 50e6
# What is left when the buffer stops, and how often it is tried to come there.
LITTLE_BYTES = 16 << 20
ROUNDS_MAX = 8
# To close its logs, to install the copy and sync it, and to start: whatever is to be copied. Four
# moves on three hosts that shared two busy cores took 1.5, 1.7, 2.6 and 4.9 s; MOST is twice that.
STOP_AND_START_MS = 2_000
STOP_AND_START_MOST_MS = 10_000
# Where another replica leads next: as long as a change of leaders took on the same hosts.
HAND_OVER_MS = 100
HAND_OVER_MOST_MS = 1_000
# A busy disk, or a wire that others use, makes so many times less than is said of it.
BUSY = 4
NODE_CHARS_MIN = 6
REGISTRY_REMEDY = (
    "Bring the registry to a server first: `pxrs down FILE`, `pxrs store copy sqlite:///... URL`, "
    "`store = URL` in the topology file, `pxrs up FILE`"
)


@dataclass(frozen=True, slots=True)
class Kept:
    """What a buffer has on its disk, how fast that grows, and what is in memory only: the number
    of messages of each queue that no copy takes along. None is not known."""

    bytes: int | None = None
    written_per_s: float | None = None
    in_memory: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Estimate:
    """How long a move copies while the buffer serves, what is left then, and the pause.

    The pause is taken to be from `pause_ms`, where nothing else goes on, to `pause_most_ms`.
    """

    copy_s: float
    last_bytes: int
    pause_ms: int
    pause_most_ms: int


@dataclass(frozen=True, slots=True)
class HomeMove:
    """A buffer that is to have another home; without a `target` there is none."""

    buffer: int
    source: str
    target: str
    bytes: int | None
    written_per_s: float | None
    free_bytes: int | None
    estimate: Estimate | None


@dataclass(frozen=True, slots=True)
class Leaving:
    """What happens when everything leaves a node, or one buffer does.

    `cannot` says what cannot be done, or not before the deadline; `notes` what else matters.
    `consumers` are those that hand over.
    """

    topology: str
    host: str
    node: str
    moves: tuple[HomeMove, ...] = ()
    consumers: tuple[str, ...] = ()
    cannot: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    deadline_s: float | None = None

    @property
    def needs_s(self) -> float:
        """For how long it copies and pauses in all: buffers move one after the other."""
        known = [m.estimate for m in self.moves if m.estimate is not None]
        return sum(each.copy_s + each.pause_ms / 1_000 for each in known)

    def at(
        self,
        node: NodeSeen,
        consumers: Sequence[str],
        cannot: Sequence[str] = (),
        notes: Sequence[str] = (),
    ) -> Leaving:
        """The same, of a whole node with what else is there."""
        return replace(
            self,
            host=node.host,
            node=node.node,
            consumers=tuple(consumers),
            cannot=(*cannot, *self.cannot),
            notes=(*self.notes, *notes),
        )


def estimate(
    size_bytes: int, written_per_s: float, copy_per_s: float = COPY_BYTES_PER_S
) -> Estimate:
    """How a move of so many bytes goes, while so many are written a second."""
    copy_s, left = _copied(size_bytes, written_per_s, copy_per_s)
    _, most_left = _copied(size_bytes, written_per_s, copy_per_s / BUSY)
    rest_s, rest_most_s = left / copy_per_s, most_left / (copy_per_s / BUSY)
    return Estimate(
        copy_s,
        round(left),
        STOP_AND_START_MS + round(rest_s * 1_000),
        STOP_AND_START_MOST_MS + round(max(rest_s, rest_most_s) * 1_000),
    )


def _copied(size_bytes: float, written_per_s: float, copy_per_s: float) -> tuple[float, float]:
    """For how long it is copied while the buffer serves, and how many bytes are left then."""
    copy_s, left, last = 0.0, float(size_bytes), 0.0
    for number in range(ROUNDS_MAX):
        taken, took_s = left, left / copy_per_s
        copy_s += took_s
        left = written_per_s * took_s
        if taken <= LITTLE_BYTES or (number > 1 and taken >= last):
            break
        last = taken
    return copy_s, left


def find_node(nodes: Sequence[NodeSeen], wanted: str) -> NodeSeen:
    """The node of that host's address, id, or beginning of an id. Raises NotFound naming all."""
    named = [
        node
        for node in nodes
        if wanted in (node.host, node.node)
        or (len(wanted) >= NODE_CHARS_MIN and node.node.startswith(wanted))
    ]
    if len(named) == 1:
        return named[0]
    there = ", ".join(f"{node.host} ({node.node[:SHOWN]})" for node in nodes)
    several = f"{len(named)} living nodes are" if named else "no living node is"
    raise NotFound(f"{several} called {wanted!r}; there are: {there}")


def check_may_go(topology: str, homes: Homes, node: NodeSeen, nodes: Sequence[NodeSeen]) -> None:
    """Raise UsageError for a node that nothing can leave: the last one, or the registry's."""
    others = [each for each in nodes if each.node != node.node and not each.draining]
    if not others:
        raise UsageError(
            f"host {node.host} is the last node that stays: nothing on it can go anywhere. Add a "
            "node first"
        )
    if homes.registry is not None and registry_stays_behind(homes, node, nodes):
        raise UsageError(
            f"the registry of {topology} is a file on {homes.registry}, and its coordinator stays "
            f"with it: this host cannot be drained. {REGISTRY_REMEDY}"
        )


def registry_stays_behind(homes: Homes, going: NodeSeen, nodes: Sequence[NodeSeen]) -> bool:
    """Whether the registry is a file on a node that goes, and on the disk of none that stays.

    On a disk that nodes share it is not: the coordinator goes where that disk is shown.
    """
    home = homes.registry
    if home is None or home.node != going.node:
        return False
    others = [each for each in nodes if each.node != going.node and not each.draining]
    return not any(each.disk == home.disk for each in others)


def plan_leaving(
    topology: str,
    homes: Homes,
    nodes: Sequence[NodeSeen],
    slots: Mapping[Slot, str | None],
    kept: Mapping[Slot, Kept],
    *,
    deadline_s: float | None = None,
    copy_per_s: float = COPY_BYTES_PER_S,
) -> Leaving:
    """What it means that these buffers get other homes, one after the other: each on the node that
    is named for it, or on the emptiest. Raises NotFound and UsageError for a node that is named."""
    moves, cannot = [], list[str]()
    free = {node.node: node.free_bytes for node in nodes}
    end_s = 0.0
    for slot, wanted in sorted(slots.items()):
        home, has = homes.slots.get(slot), kept.get(slot, Kept())
        place = _place(homes, slot, nodes, wanted, cannot)
        if home is None or place is None:
            source = home.host if home is not None else ""
            moves.append(HomeMove(slot, source, "", has.bytes, has.written_per_s, None, None))
            continue
        shared = place.disk == home.disk
        size = 0 if shared else has.bytes
        room = free[place.node]
        expected = None
        if size is not None:
            expected = estimate(size, 0 if shared else has.written_per_s or 0.0, copy_per_s)
            end_s += expected.copy_s + expected.pause_ms / 1_000
        moves.append(HomeMove(slot, home.host, place.host, size, has.written_per_s, room, expected))
        cannot += _obstacles(slot, place, size, room, shared=shared)
        cannot += _memory(slot, has)
        if expected is not None and deadline_s is not None and end_s > deadline_s:
            cannot.append(
                f"buffer {slot} has {_mb(size)} to copy, and is at its new home after about "
                f"{end_s:,.0f} s: the deadline is {deadline_s:,.0f} s. What has not left by then "
                "is away with the host"
            )
        if room is not None and size:
            free[place.node] = room - size
        homes = moved_to(homes, slot, place)
    return Leaving(topology, "", "", tuple(moves), cannot=tuple(cannot), deadline_s=deadline_s)


def plan_replicas(
    topology: str,
    leaving: Sequence[tuple[Slot, str, NodeSeen | None]],
    kept: Mapping[Slot, Kept],
    copy_per_s: float,
    deadline_s: float | None,
) -> Leaving:
    """What it means that a replica of each of these slots leaves its host, all at once: for the
    node that is named, or for none. The others serve meanwhile: nobody waits for a copy."""
    moves, cannot, end_s = [], list[str](), 0.0
    for slot, source, target in leaving:
        has, room, expected = kept.get(slot, Kept()), None, None
        if target is None:
            cannot.append(
                f"buffer {slot} has no other host for its replica: others lead, and there is one "
                "copy less when the host goes. Add a node"
            )
        else:
            room = target.free_bytes
            cannot += _obstacles(slot, target, has.bytes, room, shared=False)
            if has.bytes is not None:
                copy_s, _ = _copied(has.bytes, has.written_per_s or 0.0, copy_per_s)
                expected = Estimate(copy_s, 0, HAND_OVER_MS, HAND_OVER_MOST_MS)
                end_s += copy_s
        where = source, target.host if target is not None else ""
        moves.append(HomeMove(slot, *where, has.bytes, has.written_per_s, room, expected))
    if deadline_s is not None and end_s > deadline_s:
        cannot.append(
            f"about {end_s:,.0f} s of copying: the deadline is {deadline_s:,.0f} s. What is not "
            "copied by then has one copy less"
        )
    return Leaving(topology, "", "", tuple(moves), cannot=tuple(cannot), deadline_s=deadline_s)


def _place(
    homes: Homes, slot: Slot, nodes: Sequence[NodeSeen], wanted: str | None, cannot: list[str]
) -> NodeSeen | None:
    if wanted is not None:
        return place_to_move_to(homes, slot, nodes, wanted)
    try:
        return place_to_move_to(homes, slot, nodes)
    except NotFound as error:
        cannot.append(f"{error}: its partitions are away when the host goes. Add a node")
        return None


def _obstacles(
    slot: Slot, place: NodeSeen, size: int | None, room: int | None, *, shared: bool
) -> list[str]:
    if shared:
        return []
    if size is None:
        return [f"buffer {slot} does not answer now: how much it has to copy is not known"]
    if room is not None and size > room:
        return [
            f"buffer {slot} has {_mb(size)} to copy, and the disk of host {place.host} has "
            f"{_mb(room)} left: free it, or add a node"
        ]
    return []


def _memory(slot: Slot, has: Kept) -> list[str]:
    return [
        f"queue {queue} keeps its messages in memory: the {count:,} of buffer {slot} are lost"
        for queue, count in sorted(has.in_memory.items())
        if count
    ]


def _mb(size: float | None) -> str:
    return "?" if size is None else f"{size / 1e6:,.1f} MB"


def kept_between(first: BufferStats | None, last: BufferStats | None, took_s: float) -> Kept:
    """What a buffer has, and how fast that grows, by two looks at it; None is not known."""
    rate = None
    if first is not None and last is not None and last.bytes_in >= first.bytes_in:
        rate = (last.bytes_in - first.bytes_in) / took_s
    return Kept(last.bytes_kept if last is not None else None, rate)


def lost_with_coordinator(topology: str, *, in_memory: bool) -> tuple[list[str], list[str]]:
    """What cannot be done, and what is to be known, when the coordinator is on a node that goes.

    `in_memory` says that its registry is in its own memory.
    """
    if in_memory:
        return [
            f"the registry of {topology} is in the memory of its coordinator, which is on this "
            "host: checkpoints and owners are lost when the host goes"
        ], []
    return [], [
        f"the coordinator of {topology} is there too: it stays until the host goes, and is started "
        "anew elsewhere then; commits and changes wait for some seconds"
    ]
