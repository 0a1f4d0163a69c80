"""The one rule that says what a failed call to a buffer means, whatever carried it.

Rules of this file. A failure is one of three. Away: no buffer has served the call; the same call is
made again, with pauses, until its caller's deadline, for every call is idempotent. An answer: the
log has said something that only its caller can judge (another owner or term, a lost or full log,
another offset). Refused: the call itself is wrong, and is the same however often it is made. An
error of Ray's or of a socket says nothing about the outcome: it is Away. What a method raised by
accident is an answer of a buffer that lives, in one line.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum

from ray.exceptions import RayError, RayTaskError

from pxrs_ray.data.protocol import Refused
from pxrs_ray.errors import (
    BufferAway,
    DeadlineExceeded,
    DiskFull,
    Fenced,
    LeaseOver,
    LockHeld,
    LogAway,
    LogCorrupted,
    LogError,
    LogLost,
    NotFound,
    OffsetOutOfRange,
    PartitionFull,
    PxrsError,
    RetentionBlocked,
    SequenceGap,
)
from pxrs_ray.supervision.passing_trouble import passes
from pxrs_ray.supervision.restart_rules import first_line


class CallFailure(Enum):
    """What a failed call means to its caller; see the rules at the head of this file."""

    AWAY = "away"
    ANSWER = "answer"
    REFUSED = "refused"


_AWAY = (BufferAway, DeadlineExceeded, LeaseOver)
_ANSWERS = (
    DiskFull,
    Fenced,
    LockHeld,
    LogAway,
    LogCorrupted,
    LogLost,
    NotFound,
    OffsetOutOfRange,
    PartitionFull,
    RetentionBlocked,
    SequenceGap,
)


def ours(error: BaseException) -> PxrsError:
    """A failure as its caller gets it: one of our errors, in one line."""
    cause = error.cause if isinstance(error, RayTaskError) else error
    if isinstance(cause, PxrsError):
        return cause
    text = f"{type(cause).__name__}: {first_line(cause)}"
    if cause is error and isinstance(error, RayError):
        return BufferAway(text)
    # The method raised it by accident. Ray carries that as the cause, a socket as it is.
    return (LogAway if passes(cause) else LogError)(text)


def failure_of(error: BaseException) -> CallFailure:
    """What a failure means: of a call, or the error of a `Refused`."""
    found = ours(error)
    if isinstance(found, _AWAY):
        return CallFailure.AWAY
    return CallFailure.ANSWER if isinstance(found, _ANSWERS) else CallFailure.REFUSED


def not_served(answer: object) -> PxrsError | None:
    """Why the buffer has not served this answer's call; None when it has, or says something else.

    A buffer without a lease refuses every partition of a call.
    """
    parts = answer.values() if isinstance(answer, Mapping) else answer
    for part in parts if isinstance(parts, Iterable) else ():
        if isinstance(part, Refused) and failure_of(part.error) is CallFailure.AWAY:
            return part.error
    return None
