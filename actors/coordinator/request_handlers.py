"""`RequestHandlers`: finds the method that answers a request, by the request's type.

    class ConsumerReplicas:
        @answers_for_group(ScaleGroup)
        async def scale(self, consumers: int) -> None: ...

Rules of this file. A method that answers takes the fields of its request, and gives the request's
answer: mypy holds both. Each type of request has one method. Callers are other processes: what they
sent is checked before the method is called.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

from pxrs_ray.actors.cluster.coordinator_request import GroupRequest, Request
from pxrs_ray.errors import UnsupportedVersion
from pxrs_ray.group.event_checks import check_call

A = TypeVar("A")
P = ParamSpec("P")
S = TypeVar("S")

Method = Callable[Concatenate[S, P], Coroutine[Any, Any, A]]
# The request that a method answers is noted on its function under this name.
ANSWERS = "answers_request"


def answers(kind: Callable[P, Request[A]]) -> Callable[[Method[S, P, A]], Method[S, P, A]]:
    """The decorated method answers this request; it takes all of its fields."""
    return _noting(kind)


def answers_for_group(
    kind: Callable[Concatenate[str, P], GroupRequest[A]],
) -> Callable[[Method[S, P, A]], Method[S, P, A]]:
    """The decorated method answers this request for its group; it takes the other fields."""
    return _noting(kind)


def _noting(kind: object) -> Callable[[Method[S, P, A]], Method[S, P, A]]:
    def note(method: Method[S, P, A]) -> Method[S, P, A]:
        setattr(method, ANSWERS, kind)
        return method

    return note


def answered_by(kind: type) -> dict[type[Request[Any]], str]:
    """Which requests a class answers, and the method that does."""
    named = ((name, getattr(kind, name)) for name in dir(kind))
    return {getattr(made, ANSWERS): name for name, made in named if hasattr(made, ANSWERS)}


class RequestHandlers:
    """Answers requests with the methods of its parts."""

    def __init__(self, *parts: object) -> None:
        self._handlers: dict[type[Request[Any]], Callable[..., Awaitable[Any]]] = {
            kind: getattr(part, name)
            for part in parts
            for kind, name in answered_by(type(part)).items()
        }

    async def answer(self, request: Request[A]) -> A:
        """Carry out a request.

        Raises UnsupportedVersion for one that is unknown, UsageError for one with wrong values.
        """
        handler = self._handlers.get(type(request))
        if handler is None:
            raise UnsupportedVersion(
                f"this coordinator knows no request {type(request).__name__!r}: its caller runs "
                "other code; run `pxrs restart coordinator`, then try again"
            )
        arguments = request.arguments()
        check_call(handler, arguments)
        answer: A = await handler(*arguments)
        return answer
