"""The only home of time.

The core never asks for the time: an `Instant` is handed to it. Deadlines compare the monotonic
part, which no clock step can move; the wall part only dates history for people.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Instant:
    """One moment, on both clocks, in milliseconds."""

    monotonic_ms: int
    wall_ms: int


class Clock(Protocol):
    """Whatever can say what time it is."""

    def now(self) -> Instant:
        """The present moment; the monotonic part never falls."""


class SystemClock:
    """The clocks of this machine."""

    def now(self) -> Instant:
        """The present moment."""
        return Instant(time.monotonic_ns() // 1_000_000, time.time_ns() // 1_000_000)
