"""`OpenLogs`: which logs a buffer has, and what each of them says. The reading half of a
`LogManager`.

Rules of this file. Nothing here changes a log. A log that could not be opened is the error that
answers its callers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pxrs_ray.data.protocol import LogEnds, QueueSpec
from pxrs_ray.errors import LeaseOver, LogReplaced, NotFound, PxrsError
from pxrs_ray.log.log_changes import LogChanges
from pxrs_ray.log.partition_log import PartitionLog
from pxrs_ray.model import Offset, PartitionId, QueuePartition

ForEach = Callable[[Callable[[Any], None], Iterable[Any]], None]
"""Does something to each of these, in any order or at once, and returns when all is done."""


def one_by_one(work: Callable[[Any], None], values: Iterable[Any]) -> None:
    """The `ForEach` without threads."""
    for value in values:
        work(value)


class OpenLogs:
    """See the rules at the head of this file."""

    def __init__(self, index: int, buffers: int) -> None:
        self._index = index
        self._buffers = buffers
        self.changed = LogChanges()
        self._specs: dict[str, QueueSpec] = {}
        self._logs: dict[QueuePartition, PartitionLog] = {}
        self._broken: dict[QueuePartition, PxrsError] = {}
        # Logs that `open` has not spoken of in this life.
        self._unconfirmed: set[QueuePartition] = set()

    def _partitions(self, spec: QueueSpec) -> range:
        return range(self._index, spec.partitions, self._buffers)

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues that have logs here."""
        return tuple(sorted(self._specs))

    def all_logs(self) -> list[PartitionLog]:
        """Every log that could be opened."""
        return list(self._logs.values())

    def is_damaged(self, place: QueuePartition) -> None:
        """What was sealed of a log is not what was written. Whoever has it on this disk alone has
        no other to go on with: it is told, and that is all."""

    def log(self, queue: str, partition: PartitionId) -> PartitionLog:
        """The log of one partition, once `open` has said in this life how far it should reach.

        Raises LeaseOver before that, NotFound, or why it could not be opened.
        """
        if self._unconfirmed and (queue, partition) in self._unconfirmed:
            raise LeaseOver(
                f"partition {partition} of {queue!r} waits until its coordinator has confirmed it"
            )
        log = self._logs.get((queue, partition))
        if log is not None:
            return log
        broken = self._broken.get((queue, partition))
        if broken is not None:
            raise broken
        raise NotFound(
            f"partition {partition} of queue {queue!r} is not on buffer {self._index} of "
            f"{self._buffers} (it has {', '.join(self.queues) or 'no queue yet'})"
        )

    def ends(self, queue: str) -> dict[PartitionId, LogEnds]:
        """The ends and the state of each log of `queue`, the broken ones included. Raises
        NotFound."""
        spec = self._specs.get(queue)
        if spec is None:
            raise NotFound(f"buffer {self._index} has no queue {queue!r}")
        return {p: self._ends_of((queue, p)) for p in self._partitions(spec)}

    def _ends_of(self, place: QueuePartition) -> LogEnds:
        log = self._logs.get(place)
        if log is not None:
            return log.ends()
        broken = self._broken.get(place, "it is being opened")
        state = "lost" if isinstance(broken, LogReplaced) else "failed"
        return LogEnds(place[1], 0, 0, 0, None, None, 0, 0, state=state, problem=str(broken))

    @property
    def queue_ids(self) -> dict[str, str]:
        """The queues that have logs here, with their ids."""
        return {queue: spec.queue_id for queue, spec in self._specs.items()}

    def changed_ends(
        self, since: int, most: int
    ) -> tuple[int, dict[str, dict[PartitionId, LogEnds]], bool]:
        """By queue, the ends of so many of the logs that have changed after that number of
        `changed`, and of all that cannot be opened; up to which change that is; and whether there
        was no more."""
        found: dict[str, dict[PartitionId, LogEnds]] = {}
        # Before the ends are read: what changes meanwhile is told once more.
        to, changed = self.changed.since(since, most)
        for place in [*(place for place in changed if place in self._logs), *self._broken]:
            found.setdefault(place[0], {})[place[1]] = self._ends_of(place)
        return to, found, len(changed) < most

    def known_ends(self, since: int = 0) -> dict[str, dict[PartitionId, Offset]]:
        """By queue id, how far each log has come that `open` has confirmed in this life; only of
        those that have changed after that number of `changed`."""
        found: dict[str, dict[PartitionId, Offset]] = {}
        for place in self.changed.since(since)[1]:
            log = self._logs.get(place)
            if log is None or not log.log_id or place in self._unconfirmed:
                continue
            if log.state != "waiting":
                found.setdefault(log.log_id, {})[place[1]] = log.visible_end
        return found
