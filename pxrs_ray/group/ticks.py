"""`Ticks`: when a group looks at its clock, and whether its registry is there. Pure."""

from __future__ import annotations

from pxrs_ray.clock import Instant
from pxrs_ray.group.events import Tick
from pxrs_ray.group.group_coordinator import GroupCoordinator
from pxrs_ray.supervision.registry_watch import RegistryWatch, notice_ms

SWEEP_MS_MAX = 1_000
TICK_MS_MIN = 5


class Ticks:
    """At the next deadline, yet often enough to notice that this process stood still."""

    def __init__(self, registry: RegistryWatch) -> None:
        self.due_ms: int | None = None
        self.sweep_ms_max = SWEEP_MS_MAX
        self._registry = registry

    def stop(self) -> None:
        """Let no time pass."""
        self.due_ms = None

    def begin(self, core: GroupCoordinator, now_ms: int) -> None:
        """The next one comes in time."""
        pause_ms = min(self.sweep_ms_max, core.settings.lease_ms // 10)
        wake_ms = core.next_wake_ms()
        left_ms = pause_ms if wake_ms is None else wake_ms - now_ms
        self.due_ms = now_ms + max(TICK_MS_MIN, min(pause_ms, left_ms))

    def tick(self, core: GroupCoordinator, writing_since_ms: int | None, now: Instant) -> Tick:
        """Time has passed."""
        lease_ms = core.settings.lease_ms
        return Tick(registry_away=self.registry_away(notice_ms(lease_ms), writing_since_ms, now))

    def registry_away(self, notice_ms: int, writing_since_ms: int | None, now: Instant) -> bool:
        """Whether the registry is away, or this group's records wait for it, longer than that."""
        now_ms = now.monotonic_ms
        waits = writing_since_ms is not None and now_ms - writing_since_ms >= notice_ms
        return waits or self._registry.away_ms(now_ms, notice_ms) is not None
