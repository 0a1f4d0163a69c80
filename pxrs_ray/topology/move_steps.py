"""`move`: the steps of a move of a buffer's logs, and with them its home, to another disk. Pure:
see `pxrs_ray.steps`.

Rules of this file. The logs are copied while the buffer serves, round after round, until little is
left; then it stops, the rest is copied, and the copy is made durable. Only then does the registry
say that the slot is at home there, under the next term: until that moment everything can be given
up, and the buffer goes on where it was, under a term above both. From that moment on the new home
holds, whatever fails. That logs are about to leave is in the registry before they say so. The
old disk is emptied last, and may not be: what lies on the disks tells which copy was served from
last, also to a coordinator that has lost its registry. No round decides about a slot meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Slot
from pxrs_ray.steps import Do, Steps
from pxrs_ray.topology.home_rounds import HomeRounds
from pxrs_ray.topology.homes import Home
from pxrs_ray.topology.move_plan import LITTLE_BYTES, ROUNDS_MAX
from pxrs_ray.topology.node_seen import NodeSeen

AGAIN_MS = 5_000


@dataclass(frozen=True, slots=True)
class Moved:
    """A finished move of a buffer: from which host to which, how much was copied, and for how long
    it served nobody."""

    buffer: int
    source: str
    target: str
    copied_bytes: int
    pause_ms: int


@dataclass(frozen=True, slots=True)
class MakeArrival(Do[Any]):
    """Have somebody on that node who takes the copy; answers who, and the id of the disk there."""

    node: str
    slot: Slot


@dataclass(frozen=True, slots=True)
class CopyRound(Do[Any]):
    """Copy what has come since the last round; answers how many bytes.

    The `last` one is of a buffer that has stopped: what it leaves is whole, or it fails.
    """

    arrival: Any
    slot: Slot
    last: bool = False


@dataclass(frozen=True, slots=True)
class StopBuffer(Do[Any]):
    """Hold the slot, and have its buffer sync and close its logs."""

    slot: Slot


@dataclass(frozen=True, slots=True)
class StepBack(Do[Any]):
    """Have the logs of the buffer that has stopped say that they belonged to an earlier coordinator
    than this one, and left for a home of this term by that move; see `identity.step_back`."""

    slot: Slot
    left_for: int
    moves: int


@dataclass(frozen=True, slots=True)
class ListFiles(Do[Any]):
    """Which files the buffer that has stopped leaves behind."""

    slot: Slot


@dataclass(frozen=True, slots=True)
class Install(Do[Any]):
    """Make the copy the logs of the slot on its disk, durably."""

    arrival: Any


@dataclass(frozen=True, slots=True)
class LetGoOn(Do[Any]):
    """Release the slot: its buffer goes on where it is."""

    slot: Slot


@dataclass(frozen=True, slots=True)
class PlaceAnew(Do[Any]):
    """Start the slot's buffer at its new home; it is met there, or a later round sees to that."""

    slot: Slot
    home: Home


@dataclass(frozen=True, slots=True)
class EmptyOld(Do[Any]):
    """Begin to remove what was `left` at the home before; what fails is only told."""

    slot: Slot
    before: Home
    left: Collection[Any]


@dataclass(frozen=True, slots=True)
class EndArrival(Do[Any]):
    """Nobody is needed any more who takes the copy."""

    arrival: Any
    slot: Slot


ClockMs = Callable[[], int]


def move(
    rounds: HomeRounds, slot: Slot, before: Home, node: NodeSeen, clock: ClockMs
) -> Steps[Moved]:
    """Take a slot that is held from its home to `node`; `clock` tells monotonic milliseconds.

    Raises why it stays where it is.
    """
    if node.disk == before.disk:  # a disk that both have: nothing is to be copied
        return (yield from _settle(rounds, slot, before, node, None, clock))
    arrival, disk = yield MakeArrival(node.node, slot)
    node = replace(node, disk=disk)
    try:
        moved = yield from _settle(rounds, slot, before, node, arrival, clock)
    except GeneratorExit:
        raise
    except BaseException:
        yield EndArrival(arrival, slot)
        raise
    yield EndArrival(arrival, slot)
    return moved


def _settle(
    rounds: HomeRounds, slot: Slot, before: Home, node: NodeSeen, arrival: Any, clock: ClockMs
) -> Steps[Moved]:
    copied = 0
    left: Collection[Any] = ()
    if arrival is not None:
        copied = yield from _copy_while_it_serves(slot, arrival)
        before = yield from rounds.leaves(slot)
    began_ms = clock()
    try:
        yield StopBuffer(slot)
        if arrival is not None:
            yield StepBack(slot, before.term + 1, before.moves)
            copied += yield CopyRound(arrival, slot, last=True)
            left = yield ListFiles(slot)
            yield Install(arrival)
        home = yield from rounds.moved(slot, node)
    except GeneratorExit:
        raise
    except BaseException:
        if arrival is None:  # else the next round has it begin anew, under another term
            yield LetGoOn(slot)
        raise
    # From here on the new home holds; what fails is done again by the next round of homes.
    with suppress(Exception):
        yield PlaceAnew(slot, home)
    pause_ms = clock() - began_ms
    if arrival is not None:
        yield EmptyOld(slot, before, left)
    return Moved(slot, before.host, home.host, copied, pause_ms)


def _copy_while_it_serves(slot: Slot, arrival: Any) -> Steps[int]:
    """Copy until little is left, or no less is left each time."""
    copied, last = 0, 0
    for number in range(ROUNDS_MAX):
        taken = yield CopyRound(arrival, slot)
        copied += taken
        if taken <= LITTLE_BYTES or (number > 1 and taken >= last):
            break
        last = taken
    return copied


class DrainedSlots:
    """Which slots are to be brought away from nodes that are drained, and when it is tried again.

    What is reported of a slot that could not leave is over when its node is drained no more.
    """

    def __init__(self) -> None:
        self._stuck: set[Slot] = set()
        self._again_ms: dict[Slot, int] = {}

    def drained(self, at_home_there: Iterable[Slot]) -> list[Slot]:
        """These slots are at home on nodes that are drained now; answers those of which nothing is
        to be reported any more."""
        over = sorted(self._stuck.difference(at_home_there))
        for slot in over:
            self._stuck.discard(slot)
            self._again_ms.pop(slot, None)
        return over

    def due(self, at_home_there: Iterable[Slot], now_ms: int) -> list[Slot]:
        """Those that are to leave now."""
        return [slot for slot in at_home_there if now_ms >= self._again_ms.get(slot, 0)]

    def begins(self, slot: Slot) -> None:
        """A move of this slot begins, whoever asks for it."""
        self._stuck.discard(slot)

    def could_not(self, slot: Slot, now_ms: int) -> None:
        """A slot stays where it is: it is tried again after a while."""
        self._stuck.add(slot)
        self._again_ms[slot] = now_ms + AGAIN_MS


class Drains:
    """Which nodes are drained, as they are told from look to look."""

    def __init__(self) -> None:
        self._told: frozenset[str] = frozenset()

    def seen(self, nodes: Collection[str]) -> list[str]:
        """These are drained now; answers those that were not at the last look."""
        new = sorted(set(nodes) - self._told)
        self._told = frozenset(nodes)
        return new
