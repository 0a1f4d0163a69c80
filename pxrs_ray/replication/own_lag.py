"""`OwnLag`: for how long a coordinator was behind with its own work lately. Pure: takes the time.

Rules of this file. Who is slow itself, for its machine is, hears late of those who live: what it
did not hear then says nothing of them. So it waits for as much longer as it was late, and for twice
as long at the most: one that is gone is missed all the same.
"""

from __future__ import annotations

from collections import deque


class OwnLag:
    """Tell it each time when something is done that is due `every_ms`."""

    def __init__(self, every_ms: int, window_ms: int) -> None:
        self._every_ms, self._window_ms = every_ms, window_ms
        self._last_ms: int | None = None
        # When it was late, and for how long.
        self._late: deque[tuple[int, int]] = deque()

    def ticked(self, now_ms: int) -> None:
        """It is done now."""
        last_ms, self._last_ms = self._last_ms, now_ms
        # As much again is no lag: nothing is done to the millisecond.
        if last_ms is not None and (late_ms := now_ms - last_ms - 2 * self._every_ms) > 0:
            self._late.append((now_ms, late_ms))

    def grace_ms(self, now_ms: int) -> int:
        """For so much longer others may be silent."""
        while self._late and self._late[0][0] < now_ms - self._window_ms:
            self._late.popleft()
        return min(self._window_ms, sum(late_ms for _, late_ms in self._late))
