"""How a worker waits until what it has done is committed. Pure.

Rules of this file. It waits for as long as the coordinator or its registry is away: nothing behind
is begun, and nothing fails for that. A worker that is told to stop waits no more: what is done is
handed back with its partition. A wait that takes long is shown.
"""

from __future__ import annotations

from enum import Enum

SLOW_S = 5.0


class CommitWaits(Enum):
    """What the worker does now."""

    GO_ON = "it is committed, or not the worker's any more"
    LEAVE = "the partition goes, and what is done with it"
    WAIT = "it is not known yet"
    SHOW = "it is not known yet, and that takes long"


class CommitWait:
    """One wait, since `began_s`."""

    def __init__(self, began_s: float) -> None:
        self._began_s = began_s

    def waits_s(self, now_s: float) -> float:
        """For how long it has waited."""
        return now_s - self._began_s

    def look(self, now_s: float, *, is_over: bool, told_to_stop: bool) -> CommitWaits:
        """Looked at again and again; `is_over`: the round of commits has ended."""
        if is_over:
            return CommitWaits.GO_ON
        if told_to_stop:
            return CommitWaits.LEAVE
        return CommitWaits.SHOW if self.waits_s(now_s) >= SLOW_S else CommitWaits.WAIT
