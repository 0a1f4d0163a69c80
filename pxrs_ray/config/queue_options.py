"""The options of queues, and those of their options that a topology sets for all.

What is said in `QueueOptions` once stands in the topology and holds for each queue that does not
say otherwise itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pydantic import field_validator

from pxrs_ray.config.declare import (
    PARTITIONS,
    ByteCount,
    DurabilityOption,
    Effect,
    Hash,
    LostLogPolicy,
    MessageBytes,
    Milliseconds,
    Options,
    StrategyOption,
    option,
)
from pxrs_ray.config.redact import without_secrets
from pxrs_ray.data.log_limits import GIB, IN_MEMORY_BYTES_MAX, MIB, ON_DISK_BYTES_MAX
from pxrs_ray.model import NOT_FOR_DEAD_LETTERS, PARTITIONS_MAX

if TYPE_CHECKING:
    from pxrs_ray.data.log_limits import LogLimits
    from pxrs_ray.partitioning import PartitioningSpec
    from pxrs_ray.sources.open_source import SourceSpec


class QueueOptions(Options):
    """What a topology says of its queues, and a queue may say otherwise."""

    strategy: StrategyOption = option(
        "modulo", "How a key's partition is chosen; see docs/processing.md.", Effect.FIXED
    )
    hash: Hash = option("xxh64", "The hash function that the strategy uses.", Effect.FIXED)
    hash_seed: int = option(42, "The hash's seed; 42 is Spark's.", Effect.FIXED, ge=0, lt=1 << 64)
    durability: DurabilityOption = option(
        "interval",
        "When an append is acknowledged. memory: nothing is written to disk. interval: the disk is "
        "synced every fsync_interval_ms. always: the disk is synced first. A queue in memory "
        "cannot move to disk later, nor back.",
        Effect.BUFFERS,
        apart=("memory",),
    )
    fsync_interval_ms: Milliseconds = option(
        50, "The longest time between two syncs to disk.", Effect.BUFFERS
    )
    message_bytes_max: MessageBytes = option(
        16 * MIB,
        "The largest message: key, payload and headers together.",
        Effect.BUFFERS,
        Effect.PRODUCERS,
    )
    partition_bytes_max: ByteCount | None = option(
        None,
        f"The most bytes of one partition's log; None is {ON_DISK_BYTES_MAX // GIB} GiB on disk "
        f"and {IN_MEMORY_BYTES_MAX // MIB} MiB in memory. A full log drops what all groups have "
        "processed. If that does not free enough, producers wait or get PartitionFull.",
        Effect.BUFFERS,
    )
    tail_bytes_max: ByteCount = option(
        16 * MIB,
        "How many bytes of its newest messages a partition keeps in memory.",
        Effect.BUFFERS,
    )
    segment_bytes_max: ByteCount = option(
        128 * MIB, "A segment file is closed at this size, and the next one begins.", Effect.BUFFERS
    )
    retention_ms: Milliseconds | None = option(
        None, "Segments older than this are dropped; None keeps them.", Effect.BUFFERS
    )
    retention_bytes: ByteCount | None = option(
        None, "The oldest segments beyond this size are dropped; None keeps them.", Effect.BUFFERS
    )
    retention_passed: bool = option(
        False, "Segments are dropped as soon as all groups have processed them.", Effect.BUFFERS
    )
    drop_unread: bool = option(
        False, "Retention may drop messages that a group has not processed yet.", Effect.BUFFERS
    )
    lost_log_policy: LostLogPolicy = option(
        "stop",
        "What happens to a partition whose log lost data. stop: it halts until an operator accepts "
        "the loss. continue: it goes on above the gap.",
        Effect.BUFFERS,
    )


class QueueConfig(QueueOptions):
    """One queue. In a `PxrsConfig` it is resolved: what it left out is what the topology says."""

    partitions: int = option(
        PARTITIONS, "The number of partitions.", Effect.FIXED, ge=1, le=PARTITIONS_MAX
    )

    tenant_span: int = option(
        1,
        "With strategy 'tenant': over how many partitions one tenant's messages spread. With 1 "
        "they stay in order.",
        Effect.FIXED,
        ge=1,
        le=PARTITIONS_MAX,
    )
    labels: dict[str, int] | None = option(
        None,
        "With strategy 'label': how many partitions each label gets. Together they are all of the "
        "queue's, in this order.",
        Effect.FIXED,
        ordered=True,
        examples=[{"gpu": 4, "cpu": 12}],
    )

    delays: bool = option(
        False,
        "Messages may be sent with a delay: they wait in '<queue>.delayed', and a consumer of the "
        "group of that name moves them here when they are due; see docs/processing.md.",
        Effect.PRODUCERS,
    )

    replies: bool = option(
        False,
        "Handlers may reply to messages: replies are kept in '<queue>.replies' for a day, for who "
        "waits; see docs/processing.md.",
        Effect.CONSUMERS,
    )

    source: str | None = option(
        None,
        "The external queue that this queue reads: file:///path?key=field, "
        "redis://host/0?stream=name&key=field, or module:function; see docs/sources.md.",
        Effect.FIXED,
        pattern=r"^(file:///.+|rediss?://.+|[A-Za-z_][\w.]*:[A-Za-z_][\w.]*)$",
        examples=["file:///data/orders.jsonl?key=account", "shop.sources:open_orders"],
    )

    @field_validator("source")
    @classmethod
    def _source_without_password(cls, source: str | None) -> str | None:
        # The configuration is kept in the registry, and shown: a secret has no place in it.
        if source is not None and without_secrets(source) != source:
            raise ValueError(
                "source: a password may not stand here, for the registry keeps this text: write "
                "redis://user@host/0?...&password_env=NAME (a variable of the nodes where "
                "consumers run) or &password_file=/path"
            )
        return source

    def source_spec(self) -> SourceSpec | None:
        """The same, as readers of an external queue take it."""
        from pxrs_ray.sources.open_source import SourceSpec

        if self.source is None:
            return None
        return SourceSpec(self.source, self.spread())

    def spread(self) -> PartitioningSpec:
        """How messages spread over the partitions, as producers and readers take it."""
        from pxrs_ray.partitioning import PartitioningSpec

        return PartitioningSpec(
            self.partitions,
            self.strategy,
            self.hash,
            self.hash_seed,
            self.tenant_span,
            tuple((self.labels or {}).items()),
        )

    def spread_problems(self) -> Iterator[str]:
        """What of strategy, labels and tenant_span does not fit together, once it is resolved."""
        if (self.strategy == "label") != (self.labels is not None):
            yield f"strategy = {self.strategy!r}: 'label' and labels are only of use together"
        if self.tenant_span > 1 and self.strategy != "tenant":
            yield f"tenant_span = {self.tenant_span}: only of use with strategy = 'tenant'"
        if self.tenant_span > self.partitions:
            yield (
                f"tenant_span = {self.tenant_span}: must be at most partitions, which is "
                f"{self.partitions}"
            )
        if self.delays and self.source is not None:
            yield "delays = true: not of use with a source, which decides itself what comes when"
        if self.replies and self.source is not None:
            yield "replies = true: not of use with a source, whose messages have no ids"
        if self.delays and self.source is None and self.strategy in NOT_FOR_DEAD_LETTERS:
            yield (
                f"delays = true: not with strategy = {self.strategy!r}; a delayed message finds "
                "its partition by its key alone"
            )
        sizes = list((self.labels or {}).values())
        if self.labels is not None and (sum(sizes) != self.partitions or min(sizes) < 1):
            yield (
                f"labels = {self.labels}: must share out exactly {self.partitions} partitions, at "
                "least 1 each"
            )

    def log_limits(self) -> LogLimits:
        """The same, as the partition logs take it."""
        from pxrs_ray.data.log_limits import Durability, LogLimits, LossPolicy

        return LogLimits(
            durability=Durability(self.durability),
            lost_log_policy=LossPolicy(self.lost_log_policy),
            partition_bytes_max=self.partition_bytes_max,
            tail_bytes_max=self.tail_bytes_max,
            segment_bytes_max=self.segment_bytes_max,
            frame_bytes_max=max(64 * MIB, self.message_bytes_max * 65 // 64 + MIB),
            fsync_interval_ms=self.fsync_interval_ms,
            retention_ms=self.retention_ms,
            retention_bytes=self.retention_bytes,
            retention_passed=self.retention_passed,
            drop_unread=self.drop_unread,
        )
