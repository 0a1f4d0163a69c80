"""How a buffer turns an error of one partition into the `Refused` that travels. Pure."""

from __future__ import annotations

from typing import Any

from pxrs_ray.data.protocol import Appended, Refused
from pxrs_ray.errors import (
    LeaseOver,
    LockHeld,
    LogAway,
    LogError,
    LogLost,
    NotFound,
    OffsetOutOfRange,
    PartitionFull,
    PxrsError,
    SequenceGap,
)
from pxrs_ray.log.partition_log import PartitionLog
from pxrs_ray.log.producer_fence import ProducerFence
from pxrs_ray.model import PartitionId
from pxrs_ray.supervision.passing_trouble import passes
from pxrs_ray.supervision.restart_rules import told


class RefusedAppends:
    """How many frames were refused for good since the buffer started, and why the last one was.

    What passes by itself is not counted: a lease that ends, an order of arrival.
    """

    def __init__(self) -> None:
        self.count = 0
        self._last: tuple[str, Refused] | None = None

    def note(self, queue: str, answer: Refused) -> None:
        """A producer gets this answer."""
        if not isinstance(answer.error, (LeaseOver, SequenceGap)):
            self.count += 1
            self._last = queue, answer

    @property
    def last(self) -> str:
        """The last one, in words; '' before the first."""
        if self._last is None:
            return ""
        queue, answer = self._last
        return f"P{answer.partition} of {queue}: {told(answer.error)}"


def append_frame(
    log: PartitionLog,
    producers: ProducerFence,
    now_ms: int,
    partition: PartitionId,
    header: bytes,
    body: Any,
) -> Appended | Refused:
    """Append one frame, with a refusal as the answer that travels."""
    try:
        producers.check(log.queue, header)
        return log.append(header, body, now_ms)
    except SequenceGap as error:
        expected, heard = log.expected_sequence(header), log.heard(header)
        return Refused(partition, error, expected_sequence=expected, heard=heard)
    except Exception as error:  # noqa: BLE001 - one partition's trouble is its own
        return refused(partition, answerable(error), log)


def answerable(error: Exception) -> PxrsError:
    """The error as one of ours: what a reply can carry and its reader can judge."""
    if isinstance(error, PxrsError):
        return error
    return (LogAway if passes(error) else LogError)(told(error))


def refused(partition: PartitionId, error: PxrsError, log: PartitionLog | None) -> Refused:
    """The answer that says why, and what can be read instead."""
    if log is None or not isinstance(error, (OffsetOutOfRange, LogLost)):
        return Refused(partition, error)
    return Refused(partition, error, start_offset=log.start_offset, end_offset=log.visible_end)


def may_pass(error: PxrsError, log: PartitionLog | None) -> bool:
    """Whether a change of the log (or of what logs there are) may end this refusal."""
    if isinstance(error, LogLost):
        return log is not None and log.state == "waiting"
    if isinstance(error, (LogAway, LockHeld)):
        return log is None or log.state != "open"
    return isinstance(error, (NotFound, PartitionFull, SequenceGap))
