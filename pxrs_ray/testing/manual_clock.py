"""`ManualClock`: time that does not move until a test moves it."""

from __future__ import annotations

from pxrs_ray.clock import Instant


class ManualClock:
    """A `Clock` that tests move by hand. The wall part can jump; the monotonic part only rises."""

    def __init__(self, monotonic_ms: int = 0, wall_ms: int = 1_700_000_000_000) -> None:
        self._monotonic_ms = monotonic_ms
        self._wall_ms = wall_ms

    def now(self) -> Instant:
        """The present moment."""
        return Instant(self._monotonic_ms, self._wall_ms)

    def advance(self, by_ms: int) -> Instant:
        """Let time pass on both clocks, and return the new moment."""
        assert by_ms >= 0, "time never runs backwards; jump_wall moves the wall clock alone"
        self._monotonic_ms += by_ms
        self._wall_ms += by_ms
        return self.now()

    def jump_wall(self, by_ms: int) -> None:
        """Step the wall clock, as an operator or a time server does; nothing else moves."""
        self._wall_ms += by_ms
