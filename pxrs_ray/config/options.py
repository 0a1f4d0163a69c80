"""The options of groups, and those of their options that a topology sets for all.

What is said in `GroupOptions` once stands in the topology and holds for each group that does not
say otherwise itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import Field, model_validator

from pxrs_ray.config.declare import (
    CONSUMERS_MAX,
    MIB,
    Assignor,
    Bytes,
    CommitMode,
    Effect,
    FailurePolicy,
    ImportPath,
    LeaseSeconds,
    Milliseconds,
    MillisecondsOrNone,
    Name,
    Options,
    Processing,
    Start,
    Submit,
    Weight,
    option,
)

if TYPE_CHECKING:
    from pxrs_ray.scaling import ScalerSettings


class GroupOptions(Options):
    """What a topology says of its groups, and a group may say otherwise."""

    lease_ttl_seconds: LeaseSeconds = option(
        10.0,
        "A consumer that sends no heartbeat for this long loses its partitions.",
        Effect.COORDINATOR,
    )
    revoke_deadline_ms: Milliseconds = option(
        10_000,
        "How long a consumer may take to finish and flush a partition that moves.",
        Effect.COORDINATOR,
        Effect.CONSUMERS,
    )


class ScalingConfig(Options):
    """How many consumers a group has, by its load. See `pxrs_ray.scaling` for what it does."""

    consumers_min: int = option(
        1, "The fewest consumers; with 0 an idle group stops them all.", Effect.COORDINATOR, ge=0
    )
    consumers_max: int = option(
        CONSUMERS_MAX,
        "The most consumers; there are never more than partitions.",
        Effect.COORDINATOR,
        ge=1,
        le=CONSUMERS_MAX,
    )
    target_lag_ms: Milliseconds = option(
        5_000,
        "The age that a waiting message may reach before consumers are added.",
        Effect.COORDINATOR,
    )
    drain_ms: Milliseconds = option(
        20_000,
        "How long working off a backlog may take; fewer consumers would take longer.",
        Effect.COORDINATOR,
    )
    settle_ms: Milliseconds = option(
        15_000,
        "How long to wait after a change of the number before its effect is measured.",
        Effect.COORDINATOR,
    )
    calm_ms: Milliseconds = option(
        60_000,
        "Remove consumers only after fewer would have been enough for this long.",
        Effect.COORDINATOR,
    )
    gain_min: float = option(
        0.05,
        "Added consumers stay only if throughput rises by at least this share.",
        Effect.COORDINATOR,
        ge=0,
        le=1,
    )
    remember_ms: Milliseconds = option(
        600_000,
        "How long a number of consumers that did not raise throughput is not tried again.",
        Effect.COORDINATOR,
    )
    idle_ms: Milliseconds = option(
        120_000,
        "With `consumers_min = 0`: stop all consumers after this long without a message.",
        Effect.COORDINATOR,
    )
    utilisation: float = option(
        0.8,
        "The share of its time that a consumer should be busy.",
        Effect.COORDINATOR,
        ge=0.1,
        le=1,
    )

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
        None, "What is called with each message or batch: 'module:name'.", Effect.START
    )
    consumers: int = option(
        1, "How many consumers to start with.", Effect.COORDINATOR, ge=0, le=CONSUMERS_MAX
    )
    scaling: ScalingConfig | None = option(
        None,
        "Scale the number of consumers by load. Without this table, `consumers` is the number.",
        Effect.COORDINATOR,
    )
    assignor: Assignor = option(
        "sticky", "How partitions are shared out: see docs/processing.md.", Effect.COORDINATOR
    )
    static_map: dict[str, list[int]] | None = option(
        None, "For the assignor static: the partitions of each consumer.", Effect.COORDINATOR
    )
    consumer_weights: dict[str, Weight] = option(
        {},
        "The share of the partitions that a consumer gets, by its name ('billing-0'), against 1 of "
        "each that is not named here.",
        Effect.COORDINATOR,
        examples=[{"billing-0": 2.0}],
    )
    tenant: str | None = option(
        None,
        "For the assignor tenant: whose messages the group works. It decides with which consumer "
        "the sharing out begins; None takes the group's name.",
        Effect.COORDINATOR,
    )
    grace_ms: MillisecondsOrNone = option(
        0,
        "How long a dead consumer's partitions wait for its return; 0 reassigns them at once.",
        Effect.COORDINATOR,
    )
    commit_mode: CommitMode = option(
        "interval",
        "When a consumer commits: by time and count, after each batch, each message.",
        Effect.WORKERS,
    )
    commit_interval_ms: Milliseconds = option(
        200,
        'With `commit_mode = "interval"`: the longest time between two commits.',
        Effect.CONSUMERS,
    )
    commit_records: int = option(
        10_000,
        'With `commit_mode = "interval"`: the most processed messages that are not committed.',
        Effect.CONSUMERS,
        ge=1,
    )
    attempts_max: int = option(
        5,
        "Deliveries of one message before the failure policy; 0 never gives up.",
        Effect.WORKERS,
        ge=0,
    )
    backoff_ms: Milliseconds = option(
        100, "The pause before the first new attempt; it doubles.", Effect.WORKERS
    )
    backoff_ms_max: Milliseconds = option(
        10_000, "The longest pause between two attempts.", Effect.WORKERS
    )
    failure_policy: FailurePolicy = option(
        "stop",
        "After attempts_max: stop the partition, skip the message, dead_letter it, or quarantine "
        "its key: it is put aside, with all that follows of the key, until somebody re-drives it.",
        Effect.WORKERS,
    )
    dead_letter_queue: Name | None = option(
        None,
        "Where dead_letter sends: a queue of the topology; None makes '<queue>.dead'.",
        Effect.CONSUMERS,
    )
    prepare_ms: MillisecondsOrNone = option(
        0,
        "How long a partition's next owner may load (`on_prepare`) while the present one works "
        "on; 0 hands over cold.",
        Effect.COORDINATOR,
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
        Effect.NEW_CONSUMERS,
    )
    parallelism: int | None = option(
        None,
        "How many messages of one partition are in work at once, each key in order; None is 1, "
        "and 16 where a submit or processing strategy is given.",
        Effect.WORKERS,
        ge=1,
        le=64,
    )
    handler_timeout_ms: Milliseconds | None = option(
        None, "An attempt that takes longer has failed; None waits for ever.", Effect.WORKERS
    )
    lookahead_records: int = option(
        20_000,
        "With parallelism: the most messages of one partition in memory.",
        Effect.WORKERS,
        ge=1,
    )
    lookahead_bytes: Bytes = option(
        64 * MIB, "With parallelism: the most bytes of one partition in memory.", Effect.WORKERS
    )
    fair_tenants: bool = option(
        False,
        "Let tenants take turns within a partition, instead of processing in order of arrival.",
        Effect.WORKERS,
    )
    tenant_weights: dict[str, Weight] = option(
        {},
        "Turns of a tenant for each turn of one that is not named here; turns `fair_tenants` on.",
        Effect.WORKERS,
    )
    tenant_header: str = option(
        "tenant", "The header that names the tenant of a message.", Effect.WORKERS, min_length=1
    )
    submit_strategy: Submit | None = option(
        None,
        "Work pack by pack: what of a pack is in work at once; see docs/processing.md.",
        Effect.WORKERS,
    )
    processing_strategy: Processing | None = option(
        None,
        "Work pack by pack: what is tried again after it; see docs/processing.md.",
        Effect.WORKERS,
    )
    pack_records: int = option(
        1_000, "The most messages of a pack.", Effect.WORKERS, ge=1, le=1_900
    )
    submit_batch_records: int = option(
        100,
        'With `submit_strategy = "batch"`: how many messages run at once.',
        Effect.WORKERS,
        ge=1,
    )
    pack_timeout_ms: Milliseconds = option(
        60_000, "A message of a pack that is not done by then has timed out.", Effect.WORKERS
    )
    pack_retries: int = option(
        3, "How often a pack is tried again; 0 never gives up.", Effect.WORKERS, ge=0
    )
    pack_pause_ms: MillisecondsOrNone = option(
        1_000, "The pause before a pack's first retry; it doubles.", Effect.WORKERS
    )
    pack_pause_ms_max: MillisecondsOrNone = option(
        10_000, "The longest pause between retries.", Effect.WORKERS
    )
    failure_percentage: Annotated[float, Field(ge=0, le=100)] = option(
        100.0,
        "A pack of which more than this failed or timed out in one round is not retried.",
        Effect.WORKERS,
    )
    respawn: bool = option(
        True, "Start a new consumer in the place of one that died.", Effect.COORDINATOR
    )
    ray_options: dict[str, Any] = option(
        {}, "Ray's options of the consumer actors: num_cpus, resources, ...", Effect.NEW_CONSUMERS
    )
    pull_bytes_max: Bytes = option(
        MIB, "The most bytes that one fetch returns for a partition.", Effect.CONSUMERS
    )
    start: Start = option(
        "start",
        "Where a new group starts: at the first message that is kept, or at the end.",
        Effect.FIXED,
    )

    @property
    def lease_ms(self) -> int:
        """The lease in milliseconds."""
        return round(self.lease_ttl_seconds * 1_000)

    def weight_of(self, consumer: str) -> float:
        """What share of the partitions a consumer of this name has, against 1 of others."""
        return self.consumer_weights.get(consumer, 1.0)

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
