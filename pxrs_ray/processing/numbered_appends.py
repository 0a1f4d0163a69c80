"""`NumberedAppends`: the numbered appends of one owner to a log. Pure.

Rules of this file. A log takes each number once; a repeat must be identical. When an answer is
lost, it is unknown whether the log has the append. So everything unanswered is sent again,
unchanged, before anything new: only then is it known what the log holds. An append that the log
refused for good was not taken, and its number is free.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

B = TypeVar("B")


class NumberedAppends(Generic[B]):
    """The appends of one owner under one epoch."""

    def __init__(self) -> None:
        # Of the first of those that wait.
        self.sequence = 0
        self._waiting: deque[B] = deque()
        self._is_unread = False

    def add(self, what: B) -> None:
        """This goes behind what waits."""
        self._waiting.append(what)

    def next(self) -> B | None:
        """What is sent now, under `sequence`: it may have been sent before. None: nothing waits."""
        return self._waiting[0] if self._waiting else None

    def kept(self) -> None:
        """The log has it."""
        self._waiting.popleft()
        self.sequence += 1
        self._is_unread = True

    def read(self) -> None:
        """All that the log has was read."""
        self._is_unread = False

    @property
    def is_settled(self) -> bool:
        """Whether nothing waits, and all that was kept was read."""
        return not self._waiting and not self._is_unread

    def failed(self, *, passes: bool) -> None:
        """It was refused for good, or its trouble `passes`: then the log may have it."""
        if not passes:
            self._waiting.popleft()
