"""`OpenLogs`: which logs a buffer has, and what each of them says. The reading half of a
`LogManager`.

Rules of this file. Nothing here changes a log. A log that could not be opened is the error that
answers its callers.
"""

from __future__ import annotations

from pxrs_ray.data.protocol import LogEnds, QueueSpec
from pxrs_ray.errors import LeaseOver, LogReplaced, NotFound, PxrsError
from pxrs_ray.log.partition_log import PartitionLog
from pxrs_ray.model import Offset, PartitionId

Place = tuple[str, PartitionId]


class OpenLogs:
    """See the rules at the head of this file."""

    def __init__(self, index: int, buffers: int) -> None:
        self._index = index
        self._buffers = buffers
        self._specs: dict[str, QueueSpec] = {}
        self._logs: dict[Place, PartitionLog] = {}
        self._broken: dict[Place, PxrsError] = {}
        # Logs that `open` has not spoken of in this life.
        self._unconfirmed: set[Place] = set()

    def _partitions(self, spec: QueueSpec) -> range:
        return range(self._index, spec.partitions, self._buffers)

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues that have logs here."""
        return tuple(sorted(self._specs))

    def all_logs(self) -> list[PartitionLog]:
        """Every log that could be opened."""
        return list(self._logs.values())

    def log(self, queue: str, partition: PartitionId) -> PartitionLog:
        """The log of one partition, once `open` has said in this life how far it should reach.

        Raises LeaseOver before that, NotFound, or why it could not be opened.
        """
        if self._unconfirmed and (queue, partition) in self._unconfirmed:
            raise LeaseOver(f"partition {partition} of {queue!r} waits for its coordinator's word")
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
        found = {}
        for partition in self._partitions(spec):
            log = self._logs.get((queue, partition))
            if log is not None:
                found[partition] = log.ends()
                continue
            broken = self._broken.get((queue, partition), "it is being opened")
            state = "lost" if isinstance(broken, LogReplaced) else "failed"
            found[partition] = LogEnds(
                partition, 0, 0, 0, None, None, 0, 0, state=state, problem=str(broken)
            )
        return found

    def known_ends(self) -> dict[str, dict[PartitionId, Offset]]:
        """By queue id, how far each log has come that `open` has confirmed in this life."""
        found: dict[str, dict[PartitionId, Offset]] = {}
        for place, log in list(self._logs.items()):
            if log.log_id and place not in self._unconfirmed and log.state != "waiting":
                found.setdefault(log.log_id, {})[place[1]] = log.visible_end
        return found
