"""What carried a call to a buffer fails as one of our errors: `ours`; what that means says
`pxrs_ray.data.call_tries`, the same whatever carried it.

Rules of this file. An error of Ray's or of a socket says nothing about the outcome: it is Away.
What a method raised by accident is an answer of a buffer that lives, in one line.
"""

from __future__ import annotations

from ray.exceptions import RayError, RayTaskError

from pxrs_ray.data.call_tries import CallFailure as CallFailure
from pxrs_ray.data.call_tries import meaning_of
from pxrs_ray.data.call_tries import not_served as not_served
from pxrs_ray.errors import BufferAway, LogAway, LogError, PxrsError
from pxrs_ray.supervision.passing_trouble import passes
from pxrs_ray.supervision.restart_rules import first_line


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
    return meaning_of(ours(error))
