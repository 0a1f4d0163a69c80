"""What handlers of users do now and then, and must harm nobody but their own message with."""

from __future__ import annotations

import multiprocessing
import os
import random
import sys
import time
from collections.abc import Callable

from tests.actors.recording import Notebook

EVERY = 2_500
SLEEP_S = 30.0
JOIN_S = 10.0


class Mischief:
    """Before one of `EVERY` messages or so: an exit, an end of the process, a child."""

    def __init__(self, every: int = EVERY) -> None:
        self._every = every
        self._dice = random.Random(os.getpid())
        self._kinds: tuple[Callable[[], None], ...] = (_exit, _end, _fork, _helper, _helper)

    def perhaps(self, notebook: Notebook) -> None:
        """Do something, seldom; it is noted first, for some of it leaves no time."""
        if self._dice.randrange(self._every):
            return
        kind = self._dice.choice(self._kinds)
        notebook.write(f"handler {kind.__name__.strip('_')}", None)
        kind()


def _exit() -> None:
    sys.exit(3)


def _end() -> None:
    os._exit(9)


def _fork() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


def _helper() -> None:
    """A process of multiprocessing, that is told to end: it must, and nobody else."""
    helper = multiprocessing.get_context("fork").Process(target=time.sleep, args=(SLEEP_S,))
    helper.start()
    helper.terminate()
    helper.join(JOIN_S)
    alive = helper.is_alive()
    helper.kill()
    helper.join()
    if alive:
        raise RuntimeError("a helper process did not end when it was told to")
