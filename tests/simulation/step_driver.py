"""Carries `Steps` for a simulated process: calls that are late, lost or done twice, and deaths.

Rules of this file. What is to be done is done by `make`, which tells what came of it, once or
never. A process that has ended goes on with nothing; what it asked for may be done all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pxrs_ray.steps import Do, Steps
from tests.simulation.simulator.world import Action, Process, once

Tell = Callable[[Any], None]
Make = Callable[[Do[Any], Tell], None]


def drive(process: Process, steps: Steps[Any], make: Make, ended: Tell) -> None:
    """Do what the steps say; `ended` gets what they return, or the error that they raise."""

    def go_on(came: Any) -> None:
        if not process.alive:
            return
        try:
            what = steps.throw(came) if isinstance(came, BaseException) else steps.send(came)
        except StopIteration as end:
            ended(end.value)
        except Exception as error:
            ended(error)
        else:
            make(what, _once(go_on))

    go_on(None)


def _once(tell: Tell) -> Tell:
    came: list[Any] = []
    first = once(lambda: tell(came[0]))

    def told(answer: Any) -> None:
        came.append(answer)
        first()

    return told


class Turns:
    """One after another, as under a lock. The next begins when `over` is called."""

    def __init__(self) -> None:
        self._waiting: list[Action] = []

    def take(self, begin: Action) -> None:
        """Begin now, or when everybody before is over."""
        self._waiting.append(begin)
        if len(self._waiting) == 1:
            begin()

    def over(self) -> None:
        """Whoever had the turn is done."""
        del self._waiting[0]
        if self._waiting:
            self._waiting[0]()
