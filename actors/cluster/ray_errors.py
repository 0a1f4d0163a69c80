"""Tells which of Ray's errors say that an actor is away, and which that it is gone for ever."""

from __future__ import annotations

from ray.exceptions import ActorUnavailableError, ActorUnschedulableError, RayActorError


def is_away(error: BaseException | None) -> bool:
    """Whether the actor that was called is restarting or gone for ever."""
    return isinstance(error, RayActorError | ActorUnschedulableError)


def is_gone(error: BaseException | None) -> bool:
    """Whether the actor that was called is gone for ever: another one may have its name."""
    return is_away(error) and not isinstance(error, ActorUnavailableError)
