"""`Steps`: a procedure that decides, and does nothing itself. Pure.

    def rename(name: str) -> Steps[bool]:
        if (yield from do(Read(name))) is None:
            return False
        yield from do(Write(name))
        return True

Rules of this file. Steps are a generator that yields what is to be done, one thing at a time, and
is sent what came of it; an error that came of it is raised where it was yielded. Whoever carries
them does exactly what is yielded: an actor with its calls, a simulation with calls that are lost,
late or done twice, and with a death between any two. Whoever lets go of them in the middle calls
them no more (Python then throws a GeneratorExit): what must follow whatever happens is yielded in
an `except` of what was thrown, never in a `finally`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, Generic, TypeAlias, TypeVar

A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)


class Do(Generic[A_co]):
    """Something to be done, of which an `A_co` comes; each subclass is a frozen dataclass."""


Steps: TypeAlias = Generator[Do[Any], Any, A]


def do(what: Do[A]) -> Steps[A]:
    """Have this done; what comes of it."""
    answer: A = yield what
    return answer


async def carry(steps: Steps[A], make: Callable[[Do[Any]], Awaitable[Any]]) -> A:
    """Do what the steps say, each by `make`; what they return. Raises what they raise."""
    try:
        what = next(steps)
        while True:
            try:
                answer = await make(what)
            except BaseException as error:  # noqa: BLE001 - the steps decide what comes of it
                what = steps.throw(error)
            else:
                what = steps.send(answer)
    except StopIteration as end:
        result: A = end.value
        return result


def carry_now(steps: Steps[A], make: Callable[[Do[Any]], Any]) -> A:
    """As `carry`, on a thread: `make` does each at once."""
    try:
        what = next(steps)
        while True:
            try:
                answer = make(what)
            except BaseException as error:  # noqa: BLE001 - the steps decide what comes of it
                what = steps.throw(error)
            else:
                what = steps.send(answer)
    except StopIteration as end:
        result: A = end.value
        return result
