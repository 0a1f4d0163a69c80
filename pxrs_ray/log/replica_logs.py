"""`ReplicaLogs`: the logs that one replica of a slot holds, a `LogManager` of `ReplicaLog`s.

Rules of this file. A log that is not here, and was made, is lost here alone: others have it. So it
is neither made anew nor gone on with above a gap until it is to be made: which it is once this
replica counts as in sync no longer. One that is damaged is dropped then, as if it had been lost,
and is served until then. A log that fails ends the whole replica (`ends`): what it had in memory
others have, and another life of it finds out anew how far it is. Retention is the leader's: a
follower drops what its leader has dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from pxrs_ray.data.protocol import QueueSpec
from pxrs_ray.errors import LogLost
from pxrs_ray.log.log_manager import LogManager
from pxrs_ray.log.partition_log import PartitionLog
from pxrs_ray.log.queues_file import drop_log
from pxrs_ray.log.replica_log import ReplicaLog
from pxrs_ray.model import Offset, PartitionId, QueuePartition


def _nobody(_: str) -> None: ...


def _of_nobody(_: Collection[tuple[str, PartitionId]]) -> None: ...


class ReplicaLogs(LogManager):
    """See the rules at the head of this file."""

    kind = ReplicaLog
    # Told why this replica is over.
    ends_with: Callable[[str], None] = staticmethod(_nobody)
    # Told of logs that are about to be closed: by the ids of their queues, and partitions.
    lets_go: Callable[[Collection[tuple[str, PartitionId]]], None] = staticmethod(_of_nobody)
    # Whether this replica leads, and knows of every group how far it has come.
    may_retain: Callable[[], bool] = staticmethod(lambda: False)

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        # Where what was sealed is not what was written.
        self.damaged: set[QueuePartition] = set()

    def is_damaged(self, place: QueuePartition) -> None:
        """As of any logs; others have it."""
        self.damaged.add(place)

    def drop_damaged(self) -> None:
        """Drop the logs that are damaged: they are lost here, and are taken from the others by the
        next life of this replica. Raises OSError."""
        for place in sorted(self.damaged & self._logs.keys()):
            log = self._logs[place]
            self.lets_go([(log.log_id, place[1])])
            log.abandon()
            drop_log(self.files, log.folder)
        self.damaged.clear()

    def whole(self) -> dict[tuple[str, PartitionId], ReplicaLog]:
        """Every log that is open, by the id of its queue and its partition."""
        return {
            (log.log_id, place[1]): log
            for place, log in list(self._logs.items())
            if isinstance(log, ReplicaLog) and log.log_id and log.state == "open"
        }

    def places(self) -> dict[tuple[str, PartitionId], QueuePartition]:
        """The same, with the names of their queues."""
        return {(log.log_id, place[1]): place for place, log in list(self._logs.items())}

    def missing(
        self, queues: Mapping[str, str], found: Mapping[tuple[str, PartitionId], ReplicaLog]
    ) -> tuple[str, ...]:
        """Of these queues, with their ids, those of which a log is not in `found`."""
        lacks = []
        for queue, queue_id in sorted(queues.items()):
            spec = self._specs.get(queue)
            known = spec is not None and spec.queue_id == queue_id
            if (
                spec is None
                or not known
                or any((queue_id, p) not in found for p in self._partitions(spec))
            ):
                lacks.append(queue)
        return tuple(lacks)

    def open(
        self,
        spec: QueueSpec,
        expected_ends: Mapping[PartitionId, Offset],
        now_ms: int,
        *,
        make: bool,
    ) -> None:
        """As any logs; one that was lost here may be made, also after it was asked for."""
        places = [place for place in self._logs if place[0] == spec.queue]
        if make and any(self._is_absent(self._logs[place]) for place in places):
            for place in places:
                self._expected.pop(place, None)
        super().open(spec, expected_ends, now_ms, make=make)

    def drop_queue(self, queue: str) -> None:
        """As of any logs."""
        self.lets_go([(log.log_id, p) for (of, p), log in self._logs.items() if of == queue])
        self.damaged = {place for place in self.damaged if place[0] != queue}
        super().drop_queue(queue)

    def _take_id(self, place: QueuePartition, queue_id: str) -> None:
        log = self._logs.get(place)
        if log is not None and log.log_id != queue_id:
            self.lets_go([(log.log_id, place[1])])
        super()._take_id(place, queue_id)

    def to_retain(self, now_ms: int) -> list[PartitionLog]:
        """As any logs, where this replica leads."""
        return super().to_retain(now_ms) if self.may_retain() else []

    @staticmethod
    def _is_absent(log: PartitionLog) -> bool:
        return isinstance(log, ReplicaLog) and log.is_absent

    def _confirm(self, log: PartitionLog, place: QueuePartition, now_ms: int) -> None:
        absent = self._is_absent(log)
        if absent and place in self._expected and place not in self._to_make:
            raise LogLost(f"{log.folder}: this replica had a log here, and it is gone")
        super()._confirm(log, place, now_ms)

    def _leave(self, place: QueuePartition, log: PartitionLog) -> None:
        self.ends_with(f"{log.folder}: it failed")
