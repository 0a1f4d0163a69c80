"""Carries `Steps` in a simulated process: what awaits in an actor waits here for virtual time.

Rules of this file. A process that ends in the middle leaves its steps where they are, for ever. A
step is answered once; what is said later is not heard.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from pxrs_ray.steps import Do, Steps
from tests.simulation.simulator.world import Process

T = TypeVar("T")

Respond = Callable[[Any], None]
"""Takes what came of a step; an exception is thrown."""


@dataclass(frozen=True, slots=True)
class Ask(Do[Any]):
    """A step of the simulator's own: `begin` is given how to answer it."""

    begin: Callable[[Respond], None]


def carry_out(
    process: Process,
    steps: Steps[Any],
    carry: Callable[[Any, Respond], None],
    over: Respond = lambda _: None,
) -> None:
    """Have `carry` do each of `steps`, as `process`; `over` is told what came of all of it."""

    def go_on(answer: Any) -> None:
        if not process.alive:
            return
        try:
            if isinstance(answer, BaseException):
                step = steps.throw(answer)
            else:
                step = steps.send(answer)
        except StopIteration as end:
            over(end.value)
            return
        except Exception as error:
            over(error.with_traceback(None))
            return
        heard = False

        def respond(found: Any) -> None:
            nonlocal heard
            if not heard:
                heard = True
                process.run(lambda: go_on(found))

        if isinstance(step, Ask):
            step.begin(respond)
        else:
            carry(step, respond)

    go_on(None)


def carried(steps: Steps[T], make: Callable[[Do[Any]], Steps[Any]]) -> Steps[T]:
    """Steps in which each of `steps` is done by steps of its own: `make` says by which."""
    try:
        what = next(steps)
        while True:
            try:
                came = yield from make(what)
            except Exception as error:
                what = steps.throw(error)
            else:
                what = steps.send(came)
    except StopIteration as end:
        answer: T = end.value
        return answer


class Turn:
    """Whoever takes it has it until it is given back; the others wait, in order."""

    def __init__(self) -> None:
        self._taken = False
        self._waiting: deque[Respond] = deque()

    def take(self, respond: Respond) -> None:
        if self._taken:
            self._waiting.append(respond)
        else:
            self._taken = True
            respond(None)

    def give(self) -> None:
        if self._waiting:
            self._waiting.popleft()(None)
        else:
            self._taken = False
