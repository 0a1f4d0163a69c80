"""The options of queues and groups, and those of their options that a topology sets for all.

What is said in `QueueOptions` and `GroupOptions` once stands in the topology and holds for each
queue and group that does not say otherwise itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import Field, field_validator, model_validator

from pxrs_ray.config.declare import (
    CONSUMERS_MAX,
    MIB,
    PARTITIONS_MAX,
    Assignor,
    Bytes,
    CommitMode,
    Durability,
    Effect,
    FailurePolicy,
    Hash,
    ImportPath,
    LeaseSeconds,
    LostLogPolicy,
    MessageBytes,
    Milliseconds,
    MillisecondsOrNone,
    Name,
    Options,
    Processing,
    Start,
    Strategy,
    Submit,
    Weight,
    option,
)
from pxrs_ray.config.redact import without_secrets

if TYPE_CHECKING:
    from pxrs_ray.data.log_limits import LogLimits
    from pxrs_ray.partitioning import PartitioningSpec
    from pxrs_ray.scaling import ScalerSettings
    from pxrs_ray.sources.open_source import SourceSpec


class QueueOptions(Options):
    """What a topology says of its queues, and a queue may say otherwise."""

    strategy: Strategy = option("modulo", "How a key finds its partition.", Effect.FIXED)
    hash: Hash = option("xxh64", "The hash function under the strategy.", Effect.FIXED)
    hash_seed: int = option(42, "The hash's seed; 42 is Spark's.", Effect.FIXED, ge=0, lt=1 << 64)
    durability: Durability = option(
        "interval",
        "When an append is acknowledged: memory (never on disk), interval (synced every "
        "fsync_interval_ms), always (synced before it); a queue stays in memory, or on disk.",
        Effect.RESTART,
        apart=("memory",),
    )
    fsync_interval_ms: Milliseconds = option(50, "The longest time between two syncs to disk.")
    message_bytes_max: MessageBytes = option(
        16 * MIB,
        "The largest message: key, payload and headers; producers take it when they begin.",
    )
    partition_bytes_max: Bytes | None = option(
        None,
        "What one partition's log may hold; None is 64 GiB on disk and 256 MiB in memory. Beyond "
        "it, what all groups have passed is dropped, and where that is not enough producers wait "
        "or get PartitionFull.",
    )
    tail_bytes_max: Bytes = option(
        16 * MIB, "What one partition keeps in memory of its newest messages."
    )
    segment_bytes_max: Bytes = option(128 * MIB, "A segment file is closed at this size.")
    retention_ms: Milliseconds | None = option(None, "Drop segments older than this; None keeps.")
    retention_bytes: Bytes | None = option(None, "Drop segments beyond this; None keeps.")
    retention_passed: bool = option(False, "Drop segments as soon as all groups have passed them.")
    drop_unread: bool = option(False, "Let retention drop what a group has not passed yet.")
    lost_log_policy: LostLogPolicy = option(
        "stop", "What a partition does whose log came back without data it should have."
    )


class QueueConfig(QueueOptions):
    """One queue. In a `PxrsConfig` it is resolved: what it left out is what the topology says."""

    partitions: int = option(
        16, "How many partitions; never changes afterwards.", Effect.FIXED, ge=1, le=PARTITIONS_MAX
    )

    tenant_span: int = option(
        1,
        "With strategy 'tenant': over how many partitions one tenant's messages spread; with 1 "
        "they are in order.",
        Effect.FIXED,
        ge=1,
        le=PARTITIONS_MAX,
    )
    labels: dict[str, int] | None = option(
        None,
        "With strategy 'label': each label's number of partitions, in this order, all of them.",
        Effect.FIXED,
        ordered=True,
        examples=[{"gpu": 4, "cpu": 12}],
    )

    source: str | None = option(
        None,
        "Where the messages are when they are not ours: file:///path?key=field, "
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
        sizes = list((self.labels or {}).values())
        if self.labels is not None and (sum(sizes) != self.partitions or min(sizes) < 1):
            yield (
                f"labels = {self.labels}: must share out exactly {self.partitions} partitions, at "
                "least 1 each"
            )

    def log_limits(self) -> LogLimits:
        """The same, as the partition logs take it."""
        from pxrs_ray.data.log_limits import Durability as LogDurability
        from pxrs_ray.data.log_limits import LogLimits, LossPolicy

        return LogLimits(
            durability=LogDurability(self.durability),
            on_loss=LossPolicy(self.lost_log_policy),
            partition_bytes_max=self.partition_bytes_max,
            hot_bytes_max=self.tail_bytes_max,
            segment_bytes_max=self.segment_bytes_max,
            frame_bytes_max=max(64 * MIB, self.message_bytes_max * 65 // 64 + MIB),
            sync_interval_ms=self.fsync_interval_ms,
            retention_ms=self.retention_ms,
            retention_bytes=self.retention_bytes,
            retention_passed=self.retention_passed,
            drop_unread=self.drop_unread,
        )


class GroupOptions(Options):
    """What a topology says of its groups, and a group may say otherwise."""

    lease_ttl_seconds: LeaseSeconds = option(
        10.0, "A consumer that is silent for this long loses its partitions."
    )
    revoke_deadline_ms: Milliseconds = option(
        10_000, "How long a consumer may take to finish and flush a partition that moves."
    )


class ScalingConfig(Options):
    """How many consumers a group has, by its load. See `pxrs_ray.scaling` for what it does."""

    consumers_min: int = option(1, "Never fewer; 0 lets an idle group sleep.", ge=0)
    consumers_max: int = option(
        CONSUMERS_MAX, "Never more (nor more than partitions).", ge=1, le=CONSUMERS_MAX
    )
    target_lag_ms: Milliseconds = option(5_000, "The age that a waiting message may reach.")
    drain_ms: Milliseconds = option(20_000, "A backlog is to be worked off in this time.")
    settle_ms: Milliseconds = option(15_000, "A change is judged after this time.")
    calm_ms: Milliseconds = option(60_000, "So long must fewer have been enough to have fewer.")
    gain_min: float = option(
        0.05, "By this share must more consumers do more to be kept.", ge=0, le=1
    )
    remember_ms: Milliseconds = option(600_000, "So long is a size that did not help not tried.")
    idle_ms: Milliseconds = option(120_000, "So long without a message, then asleep.")
    utilisation: float = option(0.8, "The share of its time a consumer should work.", ge=0.1, le=1)

    def settings(self) -> ScalerSettings:
        """The same, as the scaler takes it."""
        from pxrs_ray.scaling import ScalerSettings

        return ScalerSettings(**self.model_dump())

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        if self.consumers_min > self.consumers_max:
            raise ValueError(
                f"consumers_min = {self.consumers_min}: must be at most consumers_max, which is "
                f"{self.consumers_max}"
            )
        return self


class GroupConfig(GroupOptions):
    """One consumer group. In a `PxrsConfig` it is resolved, as queues are."""

    queue: Name = option(..., "The queue that the group reads.", Effect.FIXED)
    handler: ImportPath | None = option(
        None, "What is called with each message or batch: 'module:name'.", Effect.RESTART
    )
    consumers: int = option(1, "How many consumers to start with.", ge=0, le=CONSUMERS_MAX)
    scaling: ScalingConfig | None = option(
        None, "Let the load decide how many consumers there are; left out, it is `consumers`."
    )
    assignor: Assignor = option("sticky", "How partitions are shared out: see docs/processing.md.")
    static_map: dict[str, list[int]] | None = option(
        None, "For the assignor static: the partitions of each consumer."
    )
    grace_ms: MillisecondsOrNone = option(
        0, "How long a dead consumer's partitions wait for it to come back; 0 hands them on."
    )
    commit_mode: CommitMode = option(
        "interval", "When a consumer commits: by time and count, after each batch, each message."
    )
    commit_interval_ms: Milliseconds = option(200, "Mode interval: the longest time uncommitted.")
    commit_records: int = option(10_000, "Mode interval: the most messages uncommitted.", ge=1)
    attempts_max: int = option(
        5, "Deliveries of one message before the failure policy; 0 never gives up.", ge=0
    )
    backoff_ms: Milliseconds = option(100, "The pause before the first new attempt; it doubles.")
    backoff_ms_max: Milliseconds = option(10_000, "The longest pause between two attempts.")
    failure_policy: FailurePolicy = option(
        "stop",
        "After attempts_max: stop the partition, skip the message, dead_letter it, or quarantine "
        "its key: it is put aside, with all that follows of the key, until somebody re-drives it.",
    )
    dead_letter_queue: Name | None = option(
        None, "Where dead_letter sends: a queue of the topology; None makes '<queue>.dead'."
    )
    prepare_ms: MillisecondsOrNone = option(
        0,
        "How long a partition's next owner may load (`on_prepare`) while the present one works "
        "on; 0 hands over cold.",
    )
    quarantine_queue: Name | None = option(
        None,
        "Where quarantine puts messages aside; None makes '<queue>.quarantine.<group>'.",
        Effect.FIXED,
    )
    consumer_per_partition: bool = option(
        True,
        "Work each partition of a consumer on its own; False: one message at a time, whichever "
        "of its partitions it is of.",
        Effect.RESTART,
    )
    parallelism: int | None = option(
        None,
        "How many messages of one partition are in work at once, each key in order; None is 1, "
        "and 16 where a submit or processing strategy is given.",
        ge=1,
        le=64,
    )
    handler_timeout_ms: Milliseconds | None = option(
        None, "An attempt that takes longer has failed; None waits for ever."
    )
    lookahead_records: int = option(
        20_000, "With parallelism: the most messages of one partition in memory.", ge=1
    )
    lookahead_bytes: Bytes = option(
        64 * MIB, "With parallelism: the most bytes of one partition in memory."
    )
    fair_tenants: bool = option(
        False, "Let tenants take turns within a partition, instead of first come, first served."
    )
    tenant_weights: dict[str, Weight] = option(
        {}, "Turns of a tenant for each turn of one that is not named here; makes tenants fair."
    )
    tenant_header: str = option("tenant", "The header that says whose a message is.", min_length=1)
    submit_strategy: Submit | None = option(
        None, "Work pack by pack: what of a pack is in work at once; see docs/processing.md."
    )
    processing_strategy: Processing | None = option(
        None, "Work pack by pack: what is tried again after it; see docs/processing.md."
    )
    pack_records: int = option(1_000, "The most messages of a pack.", ge=1, le=1_900)
    submit_batch_records: int = option(100, "Strategy batch: how many at once.", ge=1)
    pack_timeout_ms: Milliseconds = option(60_000, "What is not done by then has timed out.")
    pack_retries: int = option(3, "How often a pack is tried again; 0 never gives up.", ge=0)
    pack_pause_ms: MillisecondsOrNone = option(
        1_000, "The pause before a pack's first retry; it doubles."
    )
    pack_pause_ms_max: MillisecondsOrNone = option(10_000, "The longest pause between retries.")
    failure_percentage: Annotated[float, Field(ge=0, le=100)] = option(
        100.0, "A pack of which more than this failed or timed out in one round is not retried."
    )
    respawn: bool = option(True, "Start a new consumer in the place of one that died.")
    ray_options: dict[str, Any] = option(
        {}, "Ray's options of the consumer actors: num_cpus, resources, ...", Effect.RESTART
    )
    pull_bytes_max: Bytes = option(MIB, "The most that one read brings.")
    start: Start = option("start", "Where a group that has never committed begins.", Effect.FIXED)

    @property
    def lease_ms(self) -> int:
        """The lease in milliseconds."""
        return round(self.lease_ttl_seconds * 1_000)

    @property
    def by_pack(self) -> bool:
        """Whether messages are worked pack by pack, as strategies say."""
        return self.submit_strategy is not None or self.processing_strategy is not None

    @property
    def by_lane(self) -> bool:
        """Whether messages are worked key by key, with what that makes possible."""
        return not self.by_pack and bool(
            self.calls_max > 1
            or self.failure_policy == "quarantine"
            or self.handler_timeout_ms is not None
            or self.fair_tenants
            or self.tenant_weights
        )

    @property
    def calls_max(self) -> int:
        """How many messages of one partition may be in work at once."""
        return self.parallelism or (16 if self.by_pack else 1)

    @property
    def static_owners(self) -> dict[int, str] | None:
        """`static_map` the other way round: the consumer of each partition."""
        if self.static_map is None:
            return None
        return {number: name for name, numbers in self.static_map.items() for number in numbers}

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.backoff_ms > self.backoff_ms_max:
            raise ValueError(
                f"backoff_ms = {self.backoff_ms}: must be at most backoff_ms_max, which is "
                f"{self.backoff_ms_max}"
            )
        if (self.assignor == "static") != (self.static_map is not None):
            raise ValueError("assignor = 'static' and static_map are only of use together")
        if self.pack_pause_ms > self.pack_pause_ms_max:
            raise ValueError(
                f"pack_pause_ms = {self.pack_pause_ms}: must be at most pack_pause_ms_max, which "
                f"is {self.pack_pause_ms_max}"
            )
        if not self.consumer_per_partition and self.calls_max > 1:
            raise ValueError(
                "consumer_per_partition = False is one message at a time: leave parallelism and "
                "the strategies out"
            )
        if self.by_pack and self.failure_policy == "quarantine":
            raise ValueError(
                "failure_policy = 'quarantine' keeps each key in order, which packs do not: leave "
                "submit_strategy and processing_strategy out (parallelism works many keys at once)"
            )
        if (self.by_pack or self.by_lane) and self.commit_mode != "interval":
            raise ValueError(
                f"commit_mode = {self.commit_mode!r}: must be 'interval' where messages are worked "
                "in packs, in parallel, with a time limit, fairly, or with a quarantine: what is "
                "done is kept message by message there"
            )
        numbers = [number for each in (self.static_map or {}).values() for number in each]
        if len(numbers) != len(set(numbers)):
            raise ValueError("static_map: names a partition twice")
        return self
