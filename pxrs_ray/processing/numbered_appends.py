"""`NumberedAppends`: what one owner appends to a log, numbered one after the other. Pure.

Rules of this file. A log takes each number once: what comes again under it must be the same. Where
an answer was lost nobody knows what the log has taken. So what was sent and not answered is sent
again, as it was, before anything else is: only then is it known what the log holds. What the log
has refused for good was not taken; its number is free.
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
