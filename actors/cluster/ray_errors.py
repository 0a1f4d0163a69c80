"""Tells Ray's errors from ours, and which of them a retry may cure.

Rules of this file. An exception that a method raised on purpose (a `PxrsError`) is an answer. An
error that Ray itself raises (an actor that restarts, a node that is gone) says nothing about the
outcome: calls to buffers are idempotent, so they are repeated until their caller's deadline.
"""

from __future__ import annotations

from typing import Any

import ray
from ray.exceptions import (
    ActorUnavailableError,
    ActorUnschedulableError,
    RayActorError,
    RayTaskError,
)

from pxrs_ray.actors import names
from pxrs_ray.errors import BufferAway, NotFound, PxrsError


def ours(error: BaseException) -> PxrsError:
    """What a failed call to a buffer means to our code: its answer, or that nobody knows."""
    cause = error.cause if isinstance(error, RayTaskError) else error
    if isinstance(cause, PxrsError):
        return cause
    lines = str(cause).strip().splitlines() or [""]
    return BufferAway(f"{type(cause).__name__}: {lines[0]}")


def is_away(error: BaseException) -> bool:
    """Whether the actor that was called is restarting or gone for ever."""
    return isinstance(error, RayActorError | ActorUnschedulableError)


def is_gone(error: BaseException) -> bool:
    """Whether the actor that was called is gone for ever: another one may have its name."""
    return is_away(error) and not isinstance(error, ActorUnavailableError)


def find_buffer(topology: str, index: int) -> Any:
    """The handle of a running buffer. Raises NotFound, which says how to start one."""
    name = names.buffer(topology, index)
    try:
        return ray.get_actor(name, namespace=names.NAMESPACE)
    except ValueError:
        raise NotFound(
            f"no buffer {name!r} runs in this Ray cluster: deploy topology {topology!r} first"
        ) from None
