"""The input and output of a scaler: frozen data, every time and rate with its unit in the name."""

from __future__ import annotations

from pxrs_ray.errors import ConfigError
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import MemberId, Offset, PartitionId


@dataclass(frozen=True, slots=True)
class PartitionLoad:
    """One partition at one moment: the end of its log, the group's position, and its owner."""

    partition: PartitionId
    end_offset: Offset
    checkpoint: Offset
    lag_ms: int
    owner: MemberId | None

    @property
    def lag(self) -> int:
        """Messages not yet passed."""
        return max(0, self.end_offset - self.checkpoint)


@dataclass(frozen=True, slots=True)
class Observation:
    """A group at one moment. `wanted` consumers were asked for, `running` of them work."""

    at_ms: int
    wanted: int
    running: int
    partitions: tuple[PartitionLoad, ...]

    @property
    def lag(self) -> int:
        """Messages not yet passed, all partitions together."""
        return sum(p.lag for p in self.partitions)


@dataclass(frozen=True, slots=True)
class ScalerSettings:
    """The bounds of a scaler, and how fast it reacts.

    `target_lag_ms` is the age that the oldest waiting message may have; a backlog is to be worked
    off within `drain_ms`. `settle_ms` must pass after a change before its effect is measured, and
    before the next scale-out; `calm_ms` of little load must pass before a scale-in. `gain_min` is
    the share by which more consumers must raise throughput to be kept; for `remember_ms` a size
    that did not help is not tried again. A group whose `consumers_min` is 0 stops all consumers
    after `idle_ms` without a message.
    """

    consumers_min: int
    consumers_max: int
    target_lag_ms: int
    drain_ms: int
    settle_ms: int
    calm_ms: int
    gain_min: float
    remember_ms: int
    idle_ms: int
    utilisation: float

    def __post_init__(self) -> None:
        if not 0 <= self.consumers_min <= self.consumers_max:
            raise ConfigError(
                f"scaling needs 0 <= consumers_min <= consumers_max, got {self.consumers_min} "
                f"and {self.consumers_max}"
            )
        if not 0.1 <= self.utilisation <= 1.0:
            raise ConfigError(f"scaling.utilisation = {self.utilisation}: must be 0.1 to 1.0")
        for name in ("target_lag_ms", "drain_ms", "settle_ms", "calm_ms", "remember_ms", "idle_ms"):
            if getattr(self, name) < 1:
                raise ConfigError(f"scaling.{name} = {getattr(self, name)}: must be at least 1")


@dataclass(frozen=True, slots=True)
class Advice:
    """How many consumers there should be, and why. `skew` names a partition that alone is late."""

    consumers: int
    reason: str
    skew: PartitionId | None = None
