"""`HeldState`: when a call that waits for a change of some partitions looks again. Pure.

Rules of this file. A call is registered at its partitions before its first look, so a change during
a look causes another look. One look covers all changes since the look before. No two looks of a
call run at the same time, and the last look is at the call's deadline. Whoever carries the call is
told exactly once for each look that is due.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from pxrs_ray.model import QueuePartition


class Waiter(Protocol):
    """What waits."""

    def wake(self, place: QueuePartition) -> None:
        """Something has changed at `place`. It enters and leaves no place before this returns."""


# In the order in which they came, so that a run tells itself again.
Waiting = dict[QueuePartition, dict[Waiter, None]]


def enter(waiting: Waiting, places: Iterable[QueuePartition], waiter: Waiter) -> None:
    """Have `waiter` told of every change at `places`, from now on."""
    for place in places:
        waiting.setdefault(place, {})[waiter] = None


def leave(waiting: Waiting, places: Iterable[QueuePartition], waiter: Waiter) -> None:
    """Tell it no more, and keep no place that nobody waits at; again is harmless."""
    for place in places:
        there = waiting.get(place)
        if there is not None:
            there.pop(waiter, None)
            if not there:
                del waiting[place]


def wake(waiting: Waiting, place: QueuePartition) -> None:
    """Tell everybody who waits at `place` that something has changed there."""
    for waiter in waiting.get(place, ()):
        waiter.wake(place)


def wake_all(waiting: Waiting) -> None:
    """Tell everybody: what was granted, or is no more, concerns every place."""
    for place in list(waiting):
        wake(waiting, place)


class HeldState:
    """One call. It begins `looking`, or waiting for its first change."""

    def __init__(self, *, looking: bool) -> None:
        self.over = False
        self._changed: set[QueuePartition] = set()
        # Neither looking nor about to look.
        self._rests = not looking

    def woken(self, place: QueuePartition) -> bool:
        """Something has changed there. True: a look is due now that was not."""
        self._changed.add(place)
        rested, self._rests = self._rests, False
        return rested

    def ended(self) -> bool:
        """Its time is over, or nobody wants its answer: it looks once more. True as above."""
        self.over = True
        rested, self._rests = self._rests, False
        return rested

    def begin_look(self) -> tuple[set[QueuePartition], bool]:
        """It looks: at what has changed, and whether that is the last time."""
        changed, self._changed = self._changed, set()
        self._rests = False
        return changed, self.over

    def found_nothing(self, *, final: bool = False) -> bool:
        """The look is over, and there is nothing to answer. True: the next one is due at once.

        A look that was the last one (`final`) is not made again for the end alone.
        """
        due = bool(self._changed) or (self.over and not final)
        self._rests = not due
        return due
