"""The only module that reads clocks.

The core never reads the time: an `Instant` is passed to it. Deadlines, lingers and back-offs
compare monotonic readings, which no clock step can move. The wall clock only dates what people and
messages show; the difference of two of its readings never decides anything. A tidy test refuses the
wall clock everywhere but here.
"""

from __future__ import annotations

import time
from typing import Protocol

from pxrs_ray.late_dataclass import dataclass

_LEASE_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


@dataclass(frozen=True, slots=True)
class Instant:
    """One moment, on both clocks, in milliseconds."""

    monotonic_ms: int
    wall_ms: int


class Clock(Protocol):
    """Anything that can tell the time."""

    def now(self) -> Instant:
        """The present moment; the monotonic part never falls."""


class SystemClock:
    """The clocks of this machine."""

    def now(self) -> Instant:
        """The present moment."""
        return Instant(monotonic_ms(), wall_ms())


def monotonic_ms() -> int:
    """For deadlines, lingers and back-offs: it never falls, and means nothing elsewhere."""
    return time.monotonic_ns() // 1_000_000


def lease_clock_ms() -> int:
    """For leases: as `monotonic_ms`, but it goes on while the machine sleeps, where that is told.

    Who slept must find its lease over when it wakes.
    """
    return time.clock_gettime_ns(_LEASE_CLOCK) // 1_000_000


def wall_ms() -> int:
    """Milliseconds since 1970, to date things with: it may jump either way at any moment."""
    return time.time_ns() // 1_000_000
