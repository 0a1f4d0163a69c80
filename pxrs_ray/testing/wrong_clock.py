"""A wall clock that is wrong, for tests: what it may not touch is every deadline."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

HOUR_S = 3_600.0


class WrongClock:
    """By how much the wall clock is wrong now; set it to make the clock jump."""

    def __init__(self, wrong_s: float) -> None:
        self.wrong_s = wrong_s


@contextmanager
def wrong_wall_clock(wrong_s: float = 0.0) -> Iterator[WrongClock]:
    """Make the wall clock that this process's Python code reads wrong, until the block ends.

    Not for gRPC, which compares it with the clock of its C core, right as ever: on a machine
    whose clock is wrong both are.
    """
    true_time: Callable[[], float] = time.time
    true_time_ns: Callable[[], int] = time.time_ns
    clock = WrongClock(wrong_s)

    def error_s() -> float:
        caller = sys._getframe(2).f_globals.get("__name__", "")
        return 0.0 if caller.partition(".")[0] == "grpc" else clock.wrong_s

    time.time = lambda: true_time() + error_s()
    time.time_ns = lambda: true_time_ns() + int(error_s() * 1_000_000_000)
    try:
        yield clock
    finally:
        time.time, time.time_ns = true_time, true_time_ns
