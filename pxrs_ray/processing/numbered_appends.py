"""`NumberedAppends`: the numbered appends of one owner to a log. Pure.

Rules of this file. A log takes each number once; a repeat must be identical. When an answer is
lost, it is unknown whether the log has the append. So everything unanswered is sent again,
unchanged, before anything new: only then is it known what the log holds. An append that the log
refused for good was not taken, and its number is free. One is under way at a time, so of those that
wait the log can have the first alone: what stands behind it may be replaced.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from pxrs_ray.supervision.passing_trouble import passes

B = TypeVar("B")
T = TypeVar("T")


class NumberedAppends(Generic[B]):
    """The appends of one owner under one epoch."""

    def __init__(self) -> None:
        # Of the first of those that wait.
        self._sequence = 0
        self._waiting: deque[B] = deque()
        # Whether the log may have the first of them.
        self._was_sent = False
        self._is_unread = False

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def add(self, what: B) -> None:
        """This goes behind what waits."""
        self._waiting.append(what)

    def replace(self, what: B) -> None:
        """This goes in the place of all that waits and was never sent."""
        while len(self._waiting) > self._was_sent:
            self._waiting.pop()
        self._waiting.append(what)

    def send(self, append: Callable[[B, int], T]) -> T | None:
        """Send all that waits, in order, under its number; answers what `append` answered last.
        Raises what it raises: a trouble that passes leaves what was sent, to be sent again."""
        answer: T | None = None
        while self._waiting:
            self._was_sent = True
            try:
                answer = append(self._waiting[0], self._sequence)
            except BaseException as error:
                if not passes(error):
                    self._was_sent = False
                    self._waiting.popleft()
                raise
            self._was_sent = False
            self._waiting.popleft()
            self._sequence += 1
            self._is_unread = True
        return answer

    def read(self) -> None:
        """All that the log has was read."""
        self._is_unread = False

    @property
    def is_settled(self) -> bool:
        """Whether nothing waits, and all that was kept was read."""
        return not self._waiting and not self._is_unread
