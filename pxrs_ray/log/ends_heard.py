"""`EndsHeard`: the ends of one buffer's logs, for a caller that asks again and again. Pure.

Rules of this file. Only what has changed since the last answer is asked for; everything else stays
as known. An answer of another life of the buffer, or about a queue that was made anew, replaces all
that was known. Answers may arrive in another order than the questions.
"""

from __future__ import annotations

from pxrs_ray.data.protocol import ChangedEnds, LogEnds
from pxrs_ray.model import PartitionId


class EndsHeard:
    """See the rules at the head of this file."""

    def __init__(self) -> None:
        self._incarnation = ""
        self._to = 0
        self._queue_ids: dict[str, str] = {}
        self._ends: dict[str, dict[PartitionId, LogEnds]] = {}

    @property
    def heard(self) -> tuple[str, int]:
        """What to ask with: of which life was heard, and up to which change."""
        return (self._incarnation, self._to)

    def take(self, answer: ChangedEnds) -> dict[str, dict[PartitionId, LogEnds]]:
        """By queue, where each log of the buffer stands now."""
        if answer.incarnation != self._incarnation:
            self._queue_ids.clear()
            self._ends.clear()
        elif answer.to < self._to:
            return self._all()
        self._incarnation, self._to = answer.incarnation, answer.to
        known, self._queue_ids = self._queue_ids, dict(answer.queue_ids)
        for queue in [q for q in self._ends if known.get(q) != self._queue_ids.get(q)]:
            del self._ends[queue]
        for queue, ends in answer.ends.items():
            self._ends.setdefault(queue, {}).update(ends)
        return self._all()

    def _all(self) -> dict[str, dict[PartitionId, LogEnds]]:
        return {queue: dict(ends) for queue, ends in self._ends.items()}
