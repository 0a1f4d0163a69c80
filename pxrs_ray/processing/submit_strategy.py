"""Submit strategies: which messages of a pack may run at the same time.

Rules of this file. A `Submission` is made of the items of one round, in the order of their offsets.
`begin` names items that may begin and were not named before, in that order; `ended` reports that an
item is over, however it went. No item is named before everything that it must wait for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from heapq import heappop, heappush
from typing import Protocol

from pxrs_ray.processing.pack_rules import SubmitStrategy
from pxrs_ray.processing.scheduler import Item


class Submission(Protocol):
    """See the rules at the head of this file."""

    def begin(self, room: int) -> list[Item]:
        """Up to `room` items that may begin now."""

    def ended(self, item: Item) -> None:
        """An item is over."""


class Waves:
    """`size` items at once; the next ones when all of these are over."""

    def __init__(self, items: Sequence[Item], size: int) -> None:
        assert size >= 1
        self._waiting = deque(items)
        self._size = size
        self._open = 0
        self._running = 0

    def begin(self, room: int) -> list[Item]:
        """Up to `room` items of the present wave."""
        if self._open == 0 and self._running == 0:
            self._open = self._size
        found: list[Item] = []
        while self._waiting and self._open and len(found) < room:
            found.append(self._waiting.popleft())
            self._open -= 1
        self._running += len(found)
        return found

    def ended(self, item: Item) -> None:
        """An item of the wave is over."""
        self._running -= 1


class ByLane:
    """One item at a time of each lane, every lane in order."""

    def __init__(self, items: Sequence[Item], lane_of: Callable[[Item], Hashable]) -> None:
        self._lane_of = lane_of
        self._lanes: dict[Hashable, deque[Item]] = {}
        for item in items:
            self._lanes.setdefault(lane_of(item), deque()).append(item)
        self._ready: list[tuple[int, Item]] = []
        for lane in self._lanes.values():
            heappush(self._ready, (lane[0].offset, lane.popleft()))

    def begin(self, room: int) -> list[Item]:
        """Up to `room` items that are the first of their lanes."""
        return [heappop(self._ready)[1] for _ in range(min(room, len(self._ready)))]

    def ended(self, item: Item) -> None:
        """The next one of the item's lane may begin."""
        lane = self._lanes[self._lane_of(item)]
        if lane:
            heappush(self._ready, (lane[0].offset, lane.popleft()))


def originator(item: Item) -> Hashable:
    """The key; a message without one belongs to nobody and waits for nobody."""
    return item.key if item.key is not None else item.offset


def tenant(item: Item) -> Hashable:
    """The tenant."""
    return item.tenant


def submission(strategy: SubmitStrategy, items: Sequence[Item], batch_records: int) -> Submission:
    """How `strategy` submits `items`."""
    if strategy is SubmitStrategy.BURST:
        return Waves(items, max(1, len(items)))
    if strategy is SubmitStrategy.BATCH:
        return Waves(items, batch_records)
    if strategy is SubmitStrategy.SEQUENTIAL:
        return Waves(items, 1)
    by = originator if strategy is SubmitStrategy.SEQUENTIAL_BY_ORIGINATOR else tenant
    return ByLane(items, by)
