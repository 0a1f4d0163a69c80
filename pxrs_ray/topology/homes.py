"""`Homes`: where each slot and the registry are at home, and when a home changes. Pure.

Rules of this file. A slot is the number of a buffer; its home is a disk, and the node that has the
disk now. `settle` alone changes homes, and its decision is durable in the document `homes` before
anybody acts on it. A slot stays with its disk: when that is away the slot waits, and says since
when. It goes to another disk only when it has nothing to lose (its queues are in memory), when an
operator gave the disk up, or after the time that the topology sets for it. Each change of a home
raises its term. No second buffer is admitted while the first may still serve: its lease must be
over, or its process must be known to be gone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace

from pxrs_ray.codec import check_form, json_codec
from pxrs_ray.errors import NotFound, UsageError
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Slot
from pxrs_ray.topology.node_seen import NodeSeen, has_newest, told_term

DOCUMENT = "homes"
FORM = 1
SHOWN = 8


@dataclass(frozen=True, slots=True)
class Home:
    """Where the logs of a slot are, and under which term its buffer serves.

    `boot` is the start of the machine that it was found on. `away_since_ms` is the wall clock's
    time when the disk was first missing, None while it is there. `away_ms` is how long coordinators
    have counted that (see `AwayTime`). `given_up` says that an operator has accepted the loss of
    its logs. `moves` is how many times they were moved to another disk, or nearly; while `leaving`
    they are being moved. A `disk` of '' is not known: the registry was lost, and no disk that is
    here has these logs. `since` is the first term of its stay on this disk; 0 is not known.
    """

    disk: str
    node: str
    host: str
    term: int = 1
    boot: str = ""
    away_since_ms: int | None = None
    given_up: bool = False
    moves: int = 0
    leaving: bool = False
    since: int = 0
    away_ms: int = 0


@dataclass(frozen=True, slots=True)
class QueueHome:
    """`queue_id` was made once, with the queue. `made` are the slots that have made its logs:
    there, from then on, a log that is not found is lost."""

    queue_id: str
    made: tuple[Slot, ...] = ()


@dataclass(frozen=True, slots=True)
class RegistryHome:
    """The disk, and the node, of a registry that is a file."""

    disk: str
    node: str
    host: str

    def __str__(self) -> str:
        return f"host {self.host} (disk {self.disk[:SHOWN]})"


@dataclass(frozen=True, slots=True)
class Homes:
    """The document. What a newer version of the code wrote has a higher `form`.

    `behind` are the slots that were at home elsewhere since, each with that home: the registry went
    back, until somebody goes on with that.
    """

    form: int = FORM
    slots: dict[Slot, Home] = field(default_factory=dict)
    queues: dict[str, QueueHome] = field(default_factory=dict)
    registry: RegistryHome | None = None
    behind: dict[Slot, Home] = field(default_factory=dict)

    def with_slot(self, slot: Slot, home: Home) -> Homes:
        """A slot has this home."""
        return replace(self, slots={**self.slots, slot: home})

    def with_behind(self, found: Mapping[Slot, Home]) -> Homes:
        """These slots were at home elsewhere since."""
        return replace(self, behind={**found, **self.behind})

    def with_queue(self, queue: str, queue_id: str) -> Homes:
        """A queue is to be made under this id; one that has an id keeps it."""
        if queue in self.queues:
            return self
        return replace(self, queues={**self.queues, queue: QueueHome(queue_id)})

    def with_made(self, queue: str, slots: Iterable[Slot]) -> Homes:
        """These slots have made their logs of a queue."""
        known = self.queues[queue]
        made = tuple(sorted({*known.made, *slots}))
        return replace(self, queues={**self.queues, queue: replace(known, made=made)})

    def without_queue(self, queue: str) -> Homes:
        """A queue is gone; one of that name is another one."""
        return replace(self, queues={q: h for q, h in self.queues.items() if q != queue})

    def with_given_up(self, slot: Slot) -> Homes:
        """The loss of what lies on the disk of a slot is accepted."""
        return self.with_slot(slot, replace(self.slots[slot], given_up=True))

    def is_made(self, queue: str, slot: Slot) -> bool:
        """Whether a log that a slot does not find is lost, and not new."""
        return queue in self.queues and slot in self.queues[queue].made


HOMES = json_codec("registry: homes", Homes)


def homes_from(text: str) -> Homes:
    """What a document says; '' is a topology that knows of no home yet. Raises StoreSchemaError."""
    if not text:
        return Homes()
    found: Homes = HOMES.decode_text(text)
    check_form(DOCUMENT, found.form, FORM)
    return found


@dataclass(frozen=True, slots=True)
class SlotSeen:
    """What is known of the buffer of a slot now.

    `answers`: it has answered within its lease. `lease_over`: no process has a lease of this slot
    any more. `runs`: there is an actor of it, as far as Ray knows. `in_memory`: it keeps nothing.
    `misses_disk`: its process did not find the disk that it was made for.
    """

    answers: bool = False
    lease_over: bool = False
    runs: bool = False
    in_memory: bool = False
    misses_disk: bool = False


@dataclass(frozen=True, slots=True)
class Settled:
    """`homes` is to be made durable first. Then the buffers of `starts` are started at their homes,
    instead of any that was elsewhere; those in `waits` have none, for the reason given."""

    homes: Homes
    starts: tuple[Slot, ...] = ()
    waits: Mapping[Slot, str] = field(default_factory=dict)


def settle(
    homes: Homes,
    seen: Mapping[Slot, SlotSeen],
    nodes: Sequence[NodeSeen],
    now_ms: int,
    overdue: Collection[Slot] = (),
    *,
    lost: bool = False,
) -> Settled:
    """Decide where every slot of `seen` is at home now. `overdue` are those that have waited for
    their host as long as the user said. `lost` says that a registry which has lost writes is gone
    on with."""
    living = {node.node: node for node in nodes}
    starts, waits = [], {}
    # A registry that was lost is begun again: logs that are not here are away, and not new.
    begun_again = not homes.slots and (lost or any(node.slots or node.terms for node in nodes))
    for slot in sorted(seen):
        home = homes.slots.get(slot)
        known = home
        if home is None and begun_again and not seen[slot].in_memory:
            known = Home("", "", "", away_since_ms=now_ms)
        found = (
            _first_home(slot, homes, nodes)
            if known is None
            else _home_of(slot, known, seen[slot], homes, living, now_ms, overdue=slot in overdue)
        )
        if found is None:
            waits[slot] = "no node has a disk for it"
            continue
        if found != home:
            homes = homes.with_slot(slot, found)
        if found.away_since_ms is not None:
            waits[slot] = _waits_for(found, living, now_ms)
        elif not seen[slot].runs or home is None or found.term != home.term:
            starts.append(slot)
        elif seen[slot].misses_disk and _has_disk(found, living):
            starts.append(slot)  # it was made for the disk that this node had before
    return Settled(homes, tuple(starts), waits)


def place_to_move_to(
    homes: Homes, slot: Slot, nodes: Sequence[NodeSeen], wanted: str | None = None
) -> NodeSeen:
    """Where a slot goes that leaves its home: the emptiest other node, or the one that is `wanted`
    by its host's address, its id, or the beginning of that.

    Raises NotFound when there is none, UsageError for one that does not do.
    """
    home = homes.slots.get(slot)
    if home is None:
        raise NotFound(f"there is no buffer {slot}: there are {sorted(homes.slots)}")
    others = [node for node in nodes if node.node != home.node]
    if wanted is None:
        place = _emptiest(homes, others, but=slot)
        if place is None:
            raise NotFound(
                f"buffer {slot} is on host {home.host}, and no other node that stays has a disk"
            )
        return place
    named = [n for n in nodes if wanted == n.host or (wanted and n.node.startswith(wanted))]
    if len(named) != 1:
        there = ", ".join(f"{node.host} ({node.node[:SHOWN]})" for node in nodes)
        raise NotFound(f"{len(named)} nodes are called {wanted!r}; there are: {there}")
    if named[0].node == home.node:
        raise UsageError(f"buffer {slot} is on host {home.host} already")
    if named[0].draining or not named[0].disk:
        what = "is being drained" if named[0].draining else "shows no disk"
        raise UsageError(f"host {named[0].host} {what}: buffer {slot} stays where it is")
    return named[0]


def leaving(homes: Homes, slot: Slot) -> Homes:
    """The logs of a slot are about to be moved to another disk: durable before they say so.

    So a registry that does not know of it, while they do, is an older one.
    """
    home = homes.slots[slot]
    return homes.with_slot(slot, replace(home, moves=home.moves + 1, leaving=True))


def moved_to(homes: Homes, slot: Slot, node: NodeSeen) -> Homes:
    """A slot whose logs are on another disk now is at home there, under the next term."""
    return homes.with_slot(slot, _moved(homes.slots[slot], node))


def _home_of(
    slot: Slot,
    home: Home,
    seen: SlotSeen,
    homes: Homes,
    living: Mapping[str, NodeSeen],
    now_ms: int,
    *,
    overdue: bool,
) -> Home:
    if home.leaving:  # a move was given up, or cut off: the other copy may have been let to serve
        home = replace(home, term=home.term + 2, leaving=False)
    since_ms = home.away_since_ms if home.away_since_ms is not None else now_ms
    if not home.disk:
        nodes = list(living.values())
        has = has_newest(slot, nodes, is_enough=home.given_up or overdue)
        found = _first_home(slot, homes, nodes) if has else None
        if found is not None:
            term = max(found.term, home.term + 1)
            return replace(found, term=term, moves=home.moves, since=term)
    here = living.get(home.node)
    if here is not None and here.disk in ("", home.disk) and not (seen.lease_over and seen.runs):
        return _at_home(home)
    again = _with_its_disk(home, seen, living)
    if again is not None:
        return _moved(home, again)
    if here is not None and here.disk in ("", home.disk):
        return _at_home(home)
    safe = seen.lease_over and not seen.answers
    if safe and (seen.in_memory or home.given_up or overdue):
        others = [node for node in living.values() if node.disk != home.disk]
        place = _emptiest(homes, others, but=slot)
        if place is not None:
            known = max(home.term, told_term(slot, living.values()))
            return _moved(replace(home, term=known), place)
    return replace(home, away_since_ms=since_ms)


def _at_home(home: Home) -> Home:
    return replace(home, away_since_ms=None, away_ms=0, given_up=False)


def _moved(home: Home, node: NodeSeen) -> Home:
    disk = home.disk if node.unknown else node.disk
    term = home.term + 1
    since = home.since if disk == home.disk else term
    return Home(disk, node.node, node.host, term, node.boot, moves=home.moves, since=since)


def _with_its_disk(home: Home, seen: SlotSeen, living: Mapping[str, NodeSeen]) -> NodeSeen | None:
    """Another node that has the disk of a home, where nobody can still serve from it.

    A new node of the same host is taken to have it before anybody has looked: a buffer that does
    not find its disk says so, and serves nothing.
    """
    others = [node for node in living.values() if node.node != home.node and home.disk]
    shown = [
        node
        for node in others
        if node.disk == home.disk or (node.unknown and node.host == home.host)
    ]
    shown.sort(key=lambda n: (n.unknown, n.draining, n.host != home.host, n.host, n.node))
    for node in shown:
        # On one host two processes cannot hold the same logs: the file system sees to that.
        rebooted = node.boot not in ("", home.boot) and home.boot != ""
        gone = node.host == home.host and (home.node not in living or rebooted)
        if not seen.answers and (seen.lease_over or gone):
            return node
    return None


def _first_home(slot: Slot, homes: Homes, nodes: Sequence[NodeSeen]) -> Home | None:
    """The node where its logs lie already, or else the one with the fewest slots.

    A move that was cut off leaves a copy; what was served from last is known to a newer one.
    """
    newest = max(
        (node.slots[slot] for node in nodes if slot in node.slots and node.disk), default=None
    )
    has = [node for node in nodes if node.disk and node.slots.get(slot) == newest]
    place = _emptiest(homes, has or nodes, but=slot)
    if place is None:
        return None
    term = 1 + told_term(slot, nodes)
    return Home(place.disk, place.node, place.host, term, place.boot, since=term)


def _emptiest(homes: Homes, nodes: Iterable[NodeSeen], but: Slot) -> NodeSeen | None:
    """The node with the fewest slots: one that stays, with a disk, and rather one with CPUs."""
    fit = [node for node in nodes if node.disk and not node.draining]
    fit = [node for node in fit if node.cpus > 0] or fit
    has = Counter(home.node for slot, home in homes.slots.items() if slot != but)
    return min(fit, key=lambda node: (has[node.node], node.host, node.node), default=None)


def _has_disk(home: Home, living: Mapping[str, NodeSeen]) -> bool:
    here = living.get(home.node)
    return here is not None and here.disk == home.disk != ""


def is_in_the_way(home: Home, node: str, *, lives: bool, anew: bool) -> bool:
    """Whether the actor of a slot's name that is on `node` is to be ended before the slot's buffer
    is started at its home.

    One that lives is the slot's buffer only there, and, where it is to be started `anew`, not even
    there: it may have been made for another disk, and Ray would start it for that one for ever.
    """
    return lives and (anew or node != home.node)


def _waits_for(home: Home, living: Mapping[str, NodeSeen], now_ms: int) -> str:
    away_s = max(0, now_ms - (home.away_since_ms or now_ms)) // 1_000
    if not home.disk:
        return (
            f"waits for the host that has its logs, for {away_s} s: the registry that knew it was "
            "lost"
        )
    if any(node.host == home.host and node.disk for node in living.values()):
        return f"waits for disk {home.disk[:SHOWN]} on host {home.host}, away for {away_s} s"
    return f"waits for host {home.host}, away for {away_s} s"
