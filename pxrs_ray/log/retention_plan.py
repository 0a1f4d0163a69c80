"""`RetentionPlan`: to which of a buffer's logs retention is applied, and when. Pure.

Rules of this file. Retention looks at a log when the log has changed since its last look, and when
something in it comes of age. A log that sleeps costs nothing, however many there are. What failed
is done again in the next round.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

from pxrs_ray.log.log_changes import LogChanges
from pxrs_ray.log.partition_log import PartitionLog
from pxrs_ray.model import QueuePartition


class RetentionPlan:
    """See the rules at the head of this file."""

    def __init__(
        self, changes: LogChanges, find: Callable[[QueuePartition], PartitionLog | None]
    ) -> None:
        self._changes = changes
        self._find = find
        self._seen = 0
        self._heap: list[tuple[int, QueuePartition]] = []
        self._due_ms: dict[QueuePartition, int] = {}
        # What the last round was given: only now it is known what became of it.
        self._given: list[tuple[QueuePartition, PartitionLog, int]] = []
        self._given_ms = 0

    def due(self, now_ms: int) -> list[PartitionLog]:
        """The logs for this round; `retain` each."""
        self._take_in_last_round()
        self._seen, changed = self._changes.since(self._seen)
        places = dict.fromkeys(changed)
        while self._heap and self._heap[0][0] <= now_ms:
            at_ms, place = heapq.heappop(self._heap)
            if self._due_ms.get(place) == at_ms:
                del self._due_ms[place]
                places[place] = None
        found = []
        for place in places:
            if (log := self._find(place)) is not None:
                found.append(log)
                self._given.append((place, log, log.retentions))
        self._given_ms = now_ms
        return found

    def _take_in_last_round(self) -> None:
        given, self._given = self._given, []
        # By the time of that round: what has come of age since was not judged by it.
        now_ms = self._given_ms
        for place, log, retentions in given:
            if self._find(place) is not log:
                continue
            at_ms = log.retain_at_ms(now_ms) if log.retentions != retentions else now_ms
            if at_ms is None:
                self._due_ms.pop(place, None)
            elif self._due_ms.get(place) != at_ms:
                self._due_ms[place] = at_ms
                heapq.heappush(self._heap, (at_ms, place))
