"""The bounds and promises of partition logs. Every number has its unit last in its name."""

from __future__ import annotations

from enum import StrEnum

from pxrs_ray.errors import ConfigError
from pxrs_ray.late_dataclass import dataclass

MIB = 1 << 20
GIB = 1 << 30
# What one partition may hold where nothing says so.
IN_MEMORY_BYTES_MAX = 256 * MIB
ON_DISK_BYTES_MAX = 64 * GIB


class Durability(StrEnum):
    """When an append is acknowledged, and so what a crash can take back.

    | durability | acknowledged after        | process killed          | power cut               |
    |------------|---------------------------|-------------------------|-------------------------|
    | MEMORY     | it is in the memory       | all unread messages     | all unread messages     |
    | INTERVAL   | it is in the page cache   | nothing                 | what was not synced yet |
    | ALWAYS     | fdatasync returned        | nothing                 | nothing                 |

    Whatever is lost, offsets stay monotone and the loss is a recorded gap.
    """

    MEMORY = "memory"
    INTERVAL = "interval"
    ALWAYS = "always"


class LossPolicy(StrEnum):
    """What a log does that came back without data it should have.

    STOP refuses appends and reads with LogLost until an operator accepts the loss; CONTINUE
    goes on above everything that was ever given out. Either way the gap is recorded.
    """

    STOP = "stop"
    CONTINUE = "continue"


@dataclass(frozen=True, slots=True)
class LogLimits:
    """The bounds of one partition log.

    `partition_bytes_max` bounds what is kept, on disk or (MEMORY) in memory: beyond it, what
    every group has passed is dropped, and where that is not enough an append is refused with
    PartitionFull; None is the bound of its durability above. `retention_ms` and
    `retention_bytes` drop whole sealed segments that are older or beyond; None keeps them.
    `retention_passed` drops them as soon as every known group passed them. No rule drops what a
    known group has not passed, unless `drop_unread`.
    `producer_idle_ms` is how long a silent producer's sequence is remembered.
    """

    durability: Durability
    lost_log_policy: LossPolicy
    partition_bytes_max: int | None
    tail_bytes_max: int
    segment_bytes_max: int
    fsync_interval_ms: int
    retention_ms: int | None
    retention_bytes: int | None
    retention_passed: bool
    drop_unread: bool
    frame_bytes_max: int
    # What no option sets.
    index_interval_bytes: int = 64 << 10
    producers_max: int = 20_000
    producer_idle_ms: int = 7 * 24 * 3_600_000

    def __post_init__(self) -> None:
        # Whoever makes limits of words (a file, a caller) gets what code compares by identity.
        for name, kind in (("durability", Durability), ("lost_log_policy", LossPolicy)):
            try:
                object.__setattr__(self, name, kind(getattr(self, name)))
            except ValueError:
                known = ", ".join(kind)
                raise ConfigError(
                    f"{name} must be one of {known}, not {getattr(self, name)!r}"
                ) from None
        for name in (
            "tail_bytes_max",
            "segment_bytes_max",
            "index_interval_bytes",
            "fsync_interval_ms",
            "frame_bytes_max",
            "producers_max",
            "producer_idle_ms",
        ):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("partition_bytes_max", "retention_ms", "retention_bytes"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} must be at least 1 or None, not {value}")

    @property
    def bytes_max(self) -> int:
        """The bound of a partition in bytes, with the default for the durability filled in."""
        if self.partition_bytes_max is not None:
            return self.partition_bytes_max
        in_memory = self.durability is Durability.MEMORY
        return IN_MEMORY_BYTES_MAX if in_memory else ON_DISK_BYTES_MAX

    @property
    def passed_bytes_max(self) -> int:
        """How much may be kept of what every group has passed: memory is given back sooner."""
        if self.durability is Durability.MEMORY:
            return min(self.tail_bytes_max, self.bytes_max)
        return self.bytes_max
