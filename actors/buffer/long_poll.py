"""`LongPoll`: a wait for a change of some partitions, with a deadline, that misses no change."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from types import TracebackType
from typing import Self

from pxrs_ray.model import PartitionId

Place = tuple[str, PartitionId]
Waiting = dict[Place, "set[LongPoll]"]


class LongPoll:
    """Enter the `with` before looking at the logs: a change between the look and `wait` ends the
    wait."""

    def __init__(self, waiting: Waiting, places: Collection[Place], wait_ms: int) -> None:
        self._waiting, self._places = waiting, places
        self._event = asyncio.Event()
        self._changed: set[Place] = set()
        self._loop = asyncio.get_running_loop()
        self._end = self._loop.time() + wait_ms / 1_000
        self._timer = self._loop.call_at(self._end, self._event.set) if wait_ms > 0 else None

    @property
    def over(self) -> bool:
        """Whether the deadline has passed."""
        return self._timer is None or self._loop.time() >= self._end

    def end(self) -> None:
        """Let the wait end now: nobody wants its answer any more."""
        self._end = 0.0
        self._event.set()

    def wake(self, place: Place) -> None:
        """Let the wait end: something has changed at `place`."""
        self._changed.add(place)
        self._event.set()

    async def wait(self) -> set[Place]:
        """Return at the next change, or at the deadline: what has changed since the last wait."""
        await self._event.wait()
        self._event.clear()
        changed, self._changed = self._changed, set()
        return changed

    def __enter__(self) -> Self:
        for place in self._places:
            self._waiting.setdefault(place, set()).add(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for place in self._places:
            there = self._waiting[place]
            there.discard(self)
            if not there:
                del self._waiting[place]


def wake(waiting: Waiting, place: Place) -> None:
    """End every wait that looks at `place`."""
    for poll in waiting.get(place, ()):
        poll.wake(place)
