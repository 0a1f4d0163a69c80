"""`Steps`: work that takes many calls, decided without making any of them.

Rules of this file. Such work is a generator. It yields what is to be done next, as data, and is
sent what came of it, or is thrown why nothing did. It has no clock, no event loop and no wait of
its own: who carries it makes the calls and decides nothing. An actor carries it with `await`, the
simulator over its network. Whoever lets go of it in the middle calls it no more (Python then
throws a GeneratorExit): so a step that must follow another whatever happens stands in an `except`
of what was thrown, never in a `finally`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

T = TypeVar("T")

Steps = Generator[Any, Any, T]


async def carried(steps: Steps[T], carry: Callable[[Any], Awaitable[Any]]) -> T:
    """What comes of `steps` when `carry` does each of them; whatever it raises is thrown in."""
    answer: Any = None
    error: BaseException | None = None
    while True:
        try:
            step = steps.send(answer) if error is None else steps.throw(error)
        except StopIteration as over:
            found: T = over.value
            return found
        answer, error = None, None
        try:
            answer = await carry(step)
        except BaseException as caught:  # noqa: BLE001 - the steps decide what it means
            error = caught
