"""What a failed call to a buffer means, and when it is made again: `meaning_of`, `not_served` and
`CallTries`. Pure: the caller passes the time.

Rules of this file. A failure is one of three. Away: no buffer has served the call; the same call is
made again, with growing pauses, until its caller's deadline, for every call is idempotent. An
answer: the log has said something that only its caller can judge (another owner or term, a lost or
full log, another offset). Refused: the call itself is wrong, and is the same however often it is
made. Only what is away is made again; after the deadline that is told as DeadlineExceeded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum

from pxrs_ray.backoff import Backoff
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
    LogLost,
    NotFound,
    OffsetOutOfRange,
    PartitionFull,
    PxrsError,
    RetentionBlocked,
    SequenceGap,
)
from pxrs_ray.model import Offset

# Whoever is silent for so long is asked anew, where there is time left.
ANSWER_S = 10.0
PAUSE_FIRST_S = 0.05
PAUSE_MOST_S = 0.5


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


def meaning_of(error: PxrsError) -> CallFailure:
    """What one of our errors means: of a call, or the error of a `Refused`."""
    if isinstance(error, _AWAY):
        return CallFailure.AWAY
    return CallFailure.ANSWER if isinstance(error, _ANSWERS) else CallFailure.REFUSED


def not_served(answer: object) -> PxrsError | None:
    """Why the buffer has not served this answer's call; None when it has, or says something else.

    A buffer without a lease refuses every partition of a call.
    """
    parts = answer.values() if isinstance(answer, Mapping) else answer
    for part in parts if isinstance(parts, Iterable) else ():
        if isinstance(part, Refused) and meaning_of(part.error) is CallFailure.AWAY:
            return part.error
    return None


class CallTries:
    """The tries of one call that blocks its caller, until `try_for_s` from its beginning."""

    def __init__(self, what: str, now_s: float, try_for_s: float, answer_s: float) -> None:
        """`what` tells the buffer and the call in an error: 'buffer 0 of topology t: reading'."""
        self._what = what
        self._try_for_s, self._answer_s = try_for_s, answer_s
        self._end_s = now_s + try_for_s
        self._backoff = Backoff(PAUSE_FIRST_S, PAUSE_MOST_S)

    def wait_s(self, now_s: float) -> float:
        """How long the try that is made now waits for its answer."""
        return min(self._answer_s, max(PAUSE_FIRST_S, self._end_s - now_s))

    def again_in_s(self, trouble: PxrsError, now_s: float) -> float:
        """A try has failed: for how long to rest before the next one.

        Raises what is no buffer that is away, and DeadlineExceeded when the time is over.
        """
        if meaning_of(trouble) is not CallFailure.AWAY:
            raise trouble
        pause_s = self._backoff.failed()
        if now_s + pause_s > self._end_s:
            raise DeadlineExceeded(
                f"{self._what} was not possible in {self._try_for_s:g} s: {trouble}"
            ) from trouble
        return pause_s


def next_to_read(refusal: Refused, offset: Offset) -> Offset | None:
    """Where a reader goes on that was refused at `offset`: what the log no longer has is passed
    over. None: there is nothing more. Raises every other refusal."""
    start = refusal.start_offset
    if not isinstance(refusal.error, OffsetOutOfRange) or start is None:
        raise refusal.error
    return start if start > offset else None
