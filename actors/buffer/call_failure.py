"""Turns failures of what carries a call to a buffer into our errors: `ours`. What such an error
means is in `pxrs_ray.data.call_tries`, for every carrier alike.

Rules of this file. An error of Ray or of a socket says nothing about the outcome: the buffer is
Away. An unexpected exception of a method is the answer of a living buffer; it is passed on in one
line.
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
