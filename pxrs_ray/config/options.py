"""The options of groups, and those of their options that a topology sets for all.

What is said in `GroupOptions` once stands in the topology and holds for each group that does not
say otherwise itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from pydantic import model_validator

from pxrs_ray.config.declare import (
    CONSUMERS_MAX,
    MIB,
    Assignor,
    Bytes,
    Effect,
    FailurePolicy,
    ImportPath,
    LeaseSeconds,
    Milliseconds,
    MillisecondsOrNone,
    Name,
    Options,
    Start,
    Weight,
    option,
)
from pxrs_ray.config.old_spellings import moved
from pxrs_ray.config.processing_modes import AnyMode, ByKey, Ordered

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
    settings: dict[str, Any] = option(
        {},
        "What a handler that is a class is made with, as keyword arguments. It stands in the "
        "registry as it is: name a variable that holds a secret, not the secret.",
        Effect.NEW_CONSUMERS,
        examples=[{"model": "small", "temperature": 0.2}],
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
    processing: AnyMode = option(
        Ordered(),
        "How a partition is worked: 'ordered', 'by_key' or 'packs', or a table with that mode and "
        "its options.",
        Effect.WORKERS,
    )
    commit_interval_ms: Milliseconds = option(
        200,
        "The longest time between two commits.",
        Effect.CONSUMERS,
    )
    commit_records: int = option(
        10_000,
        "The most processed messages that are not committed.",
        Effect.CONSUMERS,
        ge=1,
    )
    calls_per_minute: int | None = option(
        None,
        "The most calls of the handler in any minute, of all consumers of the group together; "
        "None does not limit them.",
        Effect.COORDINATOR,
        Effect.WORKERS,
        ge=1,
    )
    cost_per_minute: float | None = option(
        None,
        "The most that the calls of any minute may cost, as `cost` says; the last of them may go "
        "beyond it.",
        Effect.COORDINATOR,
        Effect.WORKERS,
        gt=0,
    )
    cost: ImportPath | None = option(
        None,
        "What a message costs, before it is handled: 'module:function', which takes a message and "
        "returns a number (tokens, cents). For cost_per_minute.",
        Effect.NEW_CONSUMERS,
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
        "its key: it is put aside, with all that follows of the key, until somebody re-drives it "
        "(quarantine needs the processing mode 'by_key').",
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
        "Where quarantine puts messages aside; None makes '<queue>.quarantine.<group>'. A running "
        "group can get its first one.",
        Effect.FIXED,
        at_first=(Effect.WORKERS,),
    )
    respawn: bool = option(
        True, "Start a new consumer in the place of one that died.", Effect.COORDINATOR
    )
    ray_options: dict[str, Any] = option(
        {}, "Ray's options of the consumer actors: num_cpus, resources, ...", Effect.NEW_CONSUMERS
    )
    niceness: int = option(
        0,
        "The niceness of the consumers' processes, where the system lets it be set; Ray's is 15.",
        Effect.NEW_CONSUMERS,
        ge=0,
        le=19,
    )
    pull_bytes_max: Bytes = option(
        MIB, "The most bytes that one fetch returns for a partition.", Effect.CONSUMERS
    )
    start: Start = option(
        "start",
        "Where a new group starts: at the first message that is kept, or at the end.",
        Effect.FIXED,
    )

    @classmethod
    def meant_by(cls, name: str, unknown: Mapping[str, Any], origin: str) -> str:
        """As `Options.meant_by`: much that groups had themselves is of a processing mode now."""
        return moved(name, unknown, origin)

    @property
    def lease_ms(self) -> int:
        """The lease in milliseconds."""
        return round(self.lease_ttl_seconds * 1_000)

    def weight_of(self, consumer: str) -> float:
        """What share of the partitions a consumer of this name has, against 1 of others."""
        return self.consumer_weights.get(consumer, 1.0)

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
        if (self.cost is None) != (self.cost_per_minute is None):
            raise ValueError("cost and cost_per_minute are only of use together")
        if (self.assignor == "static") != (self.static_map is not None):
            raise ValueError("assignor = 'static' and static_map are only of use together")
        if self.failure_policy == "quarantine" and not isinstance(self.processing, ByKey):
            raise ValueError(
                "failure_policy = 'quarantine' puts one key aside while the others go on, which "
                f'mode {self.processing.mode!r} does not do: write processing = "by_key" (or a '
                'table with mode = "by_key" and its options), or take another failure_policy'
            )
        numbers = [number for each in (self.static_map or {}).values() for number in each]
        if len(numbers) != len(set(numbers)):
            raise ValueError("static_map: names a partition twice")
        return self
