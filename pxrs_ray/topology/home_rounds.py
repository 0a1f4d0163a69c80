"""`HomeRounds`: what a coordinator does about homes, round by round. Pure: see
`pxrs_ray.steps`.

Rules of this file. `pxrs_ray.topology.homes` decides; its decision is made durable, and then
carried out: in this order, one round after the other. A slot that waits holds up nothing: not the
start, not the other slots, not the round. While nobody tells which nodes live nothing is decided. A
slot that moves, or is being placed, is left alone; a round changes no other slot's home than those
that it has decided about. Every disk is looked at once: where one tells of a later home of a slot
than the registry knows, nobody serves that slot. While all is where it belongs, fewer rounds are
due: each asks who lives, which nobody has to know then. A buffer that does not answer ends that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from pxrs_ray.errors import AlreadyExists, BufferAway, DeadlineExceeded, NotFound, UsageError
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Slot
from pxrs_ray.steps import Do, Steps
from pxrs_ray.topology.away_time import AwayTime
from pxrs_ray.topology.homes import (
    Home,
    Homes,
    Settled,
    SlotSeen,
    leaving,
    moved_to,
    place_to_move_to,
    settle,
)
from pxrs_ray.topology.move_plan import REGISTRY_REMEDY, registry_stays_behind
from pxrs_ray.topology.node_seen import NodeSeen
from pxrs_ray.topology.older_registry import later_homes
from pxrs_ray.topology.slot_table import SlotTable

# Of so many beats one has a round, while all is where it belongs.
CALM_BEATS = 4

HomesChange = Callable[[Homes], Homes]
Seen = Callable[[Slot], SlotSeen]


@dataclass(frozen=True, slots=True)
class LivingNodes(Do[Any]):
    """Ask which nodes live: a list of `NodeSeen` as far as it is known, or None."""


@dataclass(frozen=True, slots=True)
class LookAtDisks(Do[Any]):
    """Have those of these nodes looked at that were not; answers the same nodes, as known then.

    What was seen of the nodes in `again` is not so any more. Without `wait` the looks only begin,
    and a later round knows what they have found.
    """

    nodes: tuple[NodeSeen, ...]
    again: frozenset[str] = frozenset()
    wait: bool = True


@dataclass(frozen=True, slots=True)
class KeepHomes(Do[Any]):
    """Have `HomeRounds.changed(change)` durable, where it is anything, and `kept` after it.

    One after the other: the next change is made of what the last one has left.
    """

    change: HomesChange


@dataclass(frozen=True, slots=True)
class TellWaits(Do[Any]):
    """These slots have no host now."""

    waits: Mapping[Slot, str]


@dataclass(frozen=True, slots=True)
class BeginPlacing(Do[Any]):
    """Begin to start a slot's buffer at its home, and tell `placed` when that is over."""

    slot: Slot
    home: Home


class HomeRounds:
    """The homes of one coordinator incarnation's topology.

    `seen` tells what is known of the buffer of a slot now, `wall_ms` the time of day, and `away`
    how long hosts have been away. `lost` says that a registry which has lost writes is gone on
    with. Where slots are `replicated` their homes follow their leaders, and nothing is decided
    about them here.
    """

    def __init__(
        self,
        homes: Homes,
        table: SlotTable,
        seen: Seen,
        wall_ms: Callable[[], int],
        away: AwayTime,
        *,
        lost: bool = False,
        replicated: bool = False,
    ) -> None:
        self.homes = homes
        self._replicated = replicated
        self.registry_goes = ""
        self.troubles: dict[Slot, str] = {}
        self._table = table
        self._seen, self._wall_ms, self._away = seen, wall_ms, away
        self._lost = lost
        self._placing: set[Slot] = set()
        self._moving: set[Slot] = set()
        self._begun = False
        self._calm = False
        self._beats = 0

    # --- the document -----------------------------------------------------------------------------

    def changed(self, change: HomesChange) -> Homes | None:
        """What is to be made durable now; None where that changes nothing."""
        homes = change(self.homes)
        return homes if homes != self.homes else None

    def kept(self, homes: Homes) -> None:
        """It is durable: from now on it may be acted on."""
        self._away.kept(self.homes, homes)
        self.homes = homes

    # --- rounds -----------------------------------------------------------------------------------

    def is_due(self) -> bool:
        """Whether there is to be a round at this beat."""
        self._beats += 1
        if self._is_calm() and self._beats < CALM_BEATS:
            return False
        self._beats = 0
        return True

    def _is_calm(self) -> bool:
        """Whether the last round had nothing to do, and nothing has happened since."""
        busy = self._placing or self._moving or self.troubles
        hosted = self._table.hosted()
        all_there = len(hosted) == self._table.count and not any(map(self._table.is_missed, hosted))
        return self._calm and all_there and not busy

    def round(self) -> Steps[list[NodeSeen] | None]:
        """Decide once, and begin what was decided; answers the nodes that live, where known."""
        self._calm = False
        told: list[NodeSeen] | None = yield LivingNodes()
        if told is None:
            return None
        nodes, again = told, frozenset(self._table.missed_disks())
        new = any(slot not in self.homes.slots for slot in range(self._table.count))
        new = new and not self._replicated
        if new or not self._begun:
            nodes = yield LookAtDisks(tuple(nodes), again)
            self._begun, again = True, frozenset()
        elif any(node.unknown for node in nodes):
            nodes = yield LookAtDisks(tuple(nodes), wait=False)
        yield from self._compare(nodes)
        self._away.see(self.homes)
        found = self._settled(nodes)
        if found.waits or again or self._has_to_look(nodes):
            nodes = yield LookAtDisks(tuple(nodes), again)
            yield from self._compare(nodes)
            found = self._settled(nodes)
        yield from self._look_at_registry(nodes)
        # And no other slot: a move that ends meanwhile has written a home, which holds.
        before = self.homes.slots
        other = {s: home for s, home in found.homes.slots.items() if before.get(s) != home}
        yield KeepHomes(
            lambda homes: self._away.noted(replace(homes, slots={**homes.slots, **other}))
        )
        yield TellWaits(found.waits)
        for slot in found.starts:
            if slot not in self._placing:
                self._placing.add(slot)
                yield BeginPlacing(slot, found.homes.slots[slot])
        # A node that is not known yet, or is about to go, may have what somebody waits for.
        unsure = any(node.unknown or node.draining for node in nodes)
        self._calm = not (unsure or other or found.waits or self.registry_goes)
        return told

    def placed(self, slot: Slot) -> None:
        """The placing of a slot is over, whatever came of it: a later round sees to the rest."""
        self._placing.discard(slot)

    def _compare(self, nodes: list[NodeSeen]) -> Steps[None]:
        """Compare the registry with what the disks tell; what spoke against it once does for
        good."""
        found = later_homes(self.homes, nodes)
        new = {s: home for s, home in found.items() if s not in self._moving | self._placing}
        # Before that is durable: the registry may be away.
        for slot, home in {**new, **self.homes.behind}.items():
            self._table.was_elsewhere(slot, home.host)
        if new.keys() - self.homes.behind.keys():
            yield KeepHomes(lambda homes: homes.with_behind(new))

    def _settled(self, nodes: Iterable[NodeSeen]) -> Settled:
        if self._replicated:
            return Settled(self.homes)
        slots = range(self._table.count)
        busy = self._placing | self._moving | self.homes.behind.keys()
        seen = {slot: self._seen(slot) for slot in slots if slot not in busy}
        overdue = self._away.overdue(self.homes)
        return settle(self.homes, seen, list(nodes), self._wall_ms(), overdue, lost=self._lost)

    def _has_to_look(self, nodes: Iterable[NodeSeen]) -> bool:
        """Whether the disks matter: nobody looks at them while everything is where it was.

        A buffer that has its host and does not answer may be one whose disk is elsewhere now.
        """
        living = {node.node for node in nodes}
        for slot in () if self._replicated else range(self._table.count):
            home = self.homes.slots.get(slot)
            if home is None or (self._table.is_missed(slot) and home.node in living):
                return True
        return False

    def _look_at_registry(self, nodes: list[NodeSeen]) -> Steps[None]:
        """Report a registry that is a file on a host that goes: nobody moves it."""
        home = self.homes.registry
        going = [n for n in nodes if home is not None and n.node == home.node and n.draining]
        if not going:
            self.registry_goes = ""
            return
        nodes = yield LookAtDisks(tuple(nodes))  # another node may have the same disk
        if not registry_stays_behind(self.homes, going[0], nodes):
            self.registry_goes = ""
        elif not self.registry_goes:
            self.registry_goes = (
                f"the registry is a file on {home}, which is drained, and its coordinator stays "
                "with it: once the host is gone nothing is committed or taken over until it is "
                f"back. {REGISTRY_REMEDY}"
            )

    # --- moving -----------------------------------------------------------------------------------

    def place_for(self, slot: Slot, wanted: str | None) -> Steps[NodeSeen]:
        """Where a slot that leaves its home goes. Raises NotFound, UsageError, DeadlineExceeded."""
        if self._replicated:
            raise UsageError(
                f"buffer {slot} has replicas, which stay on their disks: when one of their hosts "
                "goes, another that is in sync leads"
            )
        nodes: list[NodeSeen] | None = yield LivingNodes()
        if nodes is None:
            raise DeadlineExceeded("it is not known now which nodes are alive")
        nodes = yield LookAtDisks(tuple(nodes))
        return place_to_move_to(self.homes, slot, nodes, wanted)

    def hold(self, slot: Slot) -> None:
        """Decide nothing about a slot while it moves. Raises AlreadyExists when it does, UsageError
        for logs that know more than the registry: what they know would be forgotten by a move.

        Not while a round is under way: it may have decided about this slot already.
        """
        if self._table.is_foreign(slot):
            raise UsageError(
                f"buffer {slot} serves nobody: its logs belong to another registry than this one, "
                "or to a newer state of it; `pxrs status` says what to do, and then it can be moved"
            )
        if slot in self._moving or slot in self._placing:
            raise AlreadyExists(f"buffer {slot} is being moved, or started, already")
        self._moving.add(slot)

    def is_moving(self, slot: Slot) -> bool:
        """Whether somebody brings a slot to another home now."""
        return slot in self._moving

    def release(self, slot: Slot) -> None:
        """Decide about it again."""
        self._moving.discard(slot)

    def leaves(self, slot: Slot) -> Steps[Home]:
        """The logs of a slot are about to be copied for good: have that durable, and answer its
        home, which it leaves for one of the next term. Raises BufferAway while it is not known that
        they are ours: they may know more than the registry, and a move would hide that.

        A move that ends before it is `moved` is settled by the next round, above that term.
        """
        if not self._table.is_claimed(slot):
            raise BufferAway(f"buffer {slot} has not been met at its home yet: it is moved then")
        yield KeepHomes(lambda homes: leaving(homes, slot))
        return self.homes.slots[slot]

    def moved(self, slot: Slot, node: NodeSeen) -> Steps[Home]:
        """The logs of a slot are on another disk: have that durable, and answer its home."""
        yield KeepHomes(lambda homes: moved_to(homes, slot, node))
        return self.homes.slots[slot]

    def at_home_on(self, nodes: Iterable[str]) -> list[Slot]:
        """The slots whose home is one of these nodes."""
        wanted = set() if self._replicated else set(nodes)
        return [s for s, home in sorted(self.homes.slots.items()) if home.node in wanted]

    # --- giving up --------------------------------------------------------------------------------

    def give_up(self, slot: Slot) -> Steps[Home]:
        """Accept the loss of what lies on the disk of a slot that waits. Raises UsageError,
        NotFound."""
        home = self.check_away(slot)
        yield KeepHomes(lambda homes: homes.with_given_up(slot))
        return home

    def check_away(self, slot: Slot) -> Home:
        """The home of a slot, which is away. Raises UsageError when it is not, NotFound."""
        home = self.homes.slots.get(slot)
        if home is None:
            raise NotFound(f"there is no buffer {slot}: there are {self._table.count}, from 0 on")
        if home.away_since_ms is None:
            raise UsageError(
                f"buffer {slot} is at home on host {home.host}, and nothing of it is to be given "
                "up: `pxrs accept-loss QUEUE` is for logs that are halted"
            )
        return home
