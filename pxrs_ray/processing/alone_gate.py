"""`AloneGate`: lets a suspect message run alone among the calls of one process. Pure.

Rules of this file. While the gate is `closed`, only the call that is alone may begin. Of several
that wait to be alone the youngest goes first: a call that had run for long before the process died
is more likely to be innocent. It waits for the calls in progress, but at most as long as it may be
alone; then it continues beside them. A call that was alone for its time continues beside others
too.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count

Turn = tuple[int, int]

_TURN = count()


class AloneGate:
    """The gate of one process. Whoever runs it lets one thread in at a time; `closed` is looked at
    by all."""

    def __init__(self) -> None:
        self.closed = False
        self.alone_until_s = 0.0
        self._waiting: list[Turn] = []
        # Who is alone, and until when it waits for the others.
        self._alone: object = None
        self._patience_s = 0.0

    def is_open(self, now_s: float) -> bool:
        """Whether others may begin; who has been alone for its time is so no more."""
        if self.closed and now_s >= self.alone_until_s:
            self.closed, self._alone = False, None
        return not self.closed

    def line_up(self, age_ms: int) -> Turn:
        """Wait to be alone, with a call that had been under way for so long at the death."""
        turn = (age_ms, next(_TURN))
        heappush(self._waiting, turn)
        return turn

    def go_in(self, turn: Turn, who: object, alone_s: float, now_s: float) -> bool:
        """Close the gate for `who`, when it is its turn: nobody begins from here on."""
        if not self.is_open(now_s) or self._waiting[0] != turn:
            return False
        heappop(self._waiting)
        self.closed, self._alone = True, who
        # While it waits for the others nobody may take the gate from it.
        self.alone_until_s = float("inf")
        self._patience_s = now_s + alone_s
        return True

    def may_begin(self, alone_s: float, *, others: bool, now_s: float) -> bool:
        """Whether who went in begins: the `others` have ended, or it has waited long enough."""
        if others and now_s < self._patience_s:
            return False
        self.alone_until_s = now_s + alone_s
        return True

    def give_up(self, turn: Turn) -> None:
        """It does not wait any more."""
        self._waiting.remove(turn)
        self._waiting.sort()

    def leave(self, who: object) -> None:
        """The call of `who` has ended, or never began: when it was alone, others may begin."""
        if self._alone is who:
            self.closed, self._alone = False, None
