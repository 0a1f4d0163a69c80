"""The options of groups, and those of their options that a topology sets for all.

What is said in `GroupOptions` once stands in the topology and holds for each group that does not
say otherwise itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from pydantic import model_validator

from pxrs_ray.config.declare import (
    Assignor,
    ByteCount,
    Effect,
    FailurePolicyOption,
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
from pxrs_ray.data.log_limits import MIB
from pxrs_ray.model import CONSUMERS_MAX, AssignorName

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
        1, "The fewest consumers; with 0 an idle group stops all of them.", Effect.COORDINATOR, ge=0
    )
    consumers_max: int = option(
        CONSUMERS_MAX,
        "The most consumers. A group never has more consumers than partitions.",
        Effect.COORDINATOR,
        ge=1,
        le=CONSUMERS_MAX,
    )
    target_lag_ms: Milliseconds = option(
        5_000,
        "Consumers are added when a waiting message is older than this.",
        Effect.COORDINATOR,
    )
    drain_ms: Milliseconds = option(
        20_000,
        "How fast a backlog shall be processed: the number of consumers is chosen for this time.",
        Effect.COORDINATOR,
    )
    settle_ms: Milliseconds = option(
        15_000,
        "How long to wait after a scaling change before its effect is measured.",
        Effect.COORDINATOR,
    )
    calm_ms: Milliseconds = option(
        60_000,
        "Consumers are removed only after fewer would have been enough for this long.",
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
        "How long a number of consumers that did not raise throughput is avoided.",
        Effect.COORDINATOR,
    )
    idle_ms: Milliseconds = option(
        120_000,
        "With `consumers_min = 0`: all consumers stop after this long without a message.",
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
        1,
        "The number of consumers at the start; `pxrs scale` changes it later.",
        Effect.COORDINATOR,
        ge=0,
        le=CONSUMERS_MAX,
    )
    scaling: ScalingConfig | None = option(
        None,
        "Scale the number of consumers by load. Without this table, `consumers` is the number.",
        Effect.COORDINATOR,
    )
    assignor: Assignor = option(
        AssignorName.STICKY.value,
        "How partitions are distributed over the consumers; see docs/processing.md.",
        Effect.COORDINATOR,
    )
    static_map: dict[str, list[int]] | None = option(
        None, "With `assignor = 'static'`: the partitions of each consumer.", Effect.COORDINATOR
    )
    consumer_weights: dict[str, Weight] = option(
        {},
        "Weights of consumers by name ('billing-0'): partitions are distributed by weight. "
        "A consumer that is not named here has weight 1.",
        Effect.COORDINATOR,
        examples=[{"billing-0": 2.0}],
    )
    tenant: str | None = option(
        None,
        "With `assignor = 'tenant'`: the tenant that the group serves. Its hash selects the "
        "consumer that gets the first partition. None takes the group's name.",
        Effect.COORDINATOR,
    )
    grace_ms: MillisecondsOrNone = option(
        0,
        "How long a dead consumer's partitions wait for its return; 0 reassigns them at once.",
        Effect.COORDINATOR,
    )
    processing: AnyMode = option(
        Ordered(),
        "How the messages of a partition are processed: 'ordered', 'by_key' or 'packs', or a table "
        "with that mode and its options.",
        Effect.WORKERS,
    )
    commit_interval_ms: Milliseconds = option(
        200,
        "The longest time between two commits.",
        Effect.CONSUMERS,
    )
    commit_records: int = option(
        10_000,
        "A consumer commits at the latest after this many processed messages.",
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
        "How often a message is tried before failure_policy applies; 0 never gives up.",
        Effect.WORKERS,
        ge=0,
    )
    backoff_ms: Milliseconds = option(
        100,
        "The pause before the second attempt; it doubles with each further one.",
        Effect.WORKERS,
    )
    backoff_ms_max: Milliseconds = option(
        10_000, "The longest pause between two attempts.", Effect.WORKERS
    )
    failure_policy: FailurePolicyOption = option(
        "stop",
        "What happens to a message after attempts_max attempts. stop: its partition halts. skip: "
        "the message is skipped. dead_letter: it is sent to dead_letter_queue. quarantine: it is "
        "put aside, with all later messages of its key, until an operator retries or skips it; "
        "this needs the processing mode 'by_key'.",
        Effect.WORKERS,
    )
    dead_letter_queue: Name | None = option(
        None,
        "The queue of the topology that gets dead letters; None makes '<queue>.dead'.",
        Effect.CONSUMERS,
    )
    prepare_ms: MillisecondsOrNone = option(
        0,
        "How long a partition's next owner may load (`on_prepare`) while the present owner keeps "
        "working. With 0 partitions move without preparation.",
        Effect.COORDINATOR,
    )
    quarantine_queue: Name | None = option(
        None,
        "The queue in which quarantine keeps messages; None makes '<queue>.quarantine.<group>'. A "
        "running group that has none can get one.",
        Effect.FIXED,
        at_first=(Effect.WORKERS,),
    )
    respawn: bool = option(
        True, "A consumer that died is replaced by a new one.", Effect.COORDINATOR
    )
    ray_options: dict[str, Any] = option(
        {}, "Options of Ray for the consumer actors: num_cpus, resources, ...", Effect.NEW_CONSUMERS
    )
    niceness: int = option(
        0,
        "The niceness of the consumers' processes, where the system permits it. Ray's own is 15.",
        Effect.NEW_CONSUMERS,
        ge=0,
        le=19,
    )
    pull_bytes_max: ByteCount = option(
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
        if (self.assignor == AssignorName.STATIC) != (self.static_map is not None):
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
