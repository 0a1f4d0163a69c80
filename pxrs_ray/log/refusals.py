"""How a buffer turns an error of one partition into the `Refused` that travels. Pure."""

from __future__ import annotations

from typing import Any

from pxrs_ray.data.protocol import Appended, Refused
from pxrs_ray.errors import (
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
