"""The ways of processing a partition: `Ordered`, `ByKey` and `Packs`, each with its own options.

Rules of this file. A group has exactly one mode. An option stands in the modes in which it does
something, and can be written in no other. What holds in every mode is an option of the group.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from pxrs_ray.config.declare import (
    ByteCount,
    CommitMode,
    Effect,
    Milliseconds,
    MillisecondsOrNone,
    Options,
    Processing,
    Submit,
    Weight,
    option,
)
from pxrs_ray.config.old_spellings import renamed
from pxrs_ray.data.log_limits import MIB
from pxrs_ray.model import TENANT_HEADER
from pxrs_ray.processing.pack_rules import PACK_RECORDS_MAX

Calls = Annotated[int, Field(ge=1, le=1_024)]


class ProcessingMode(Options):
    """What every mode has: its name, which is always said, also where the rest is left out."""

    mode: str

    @classmethod
    def meant_by(cls, name: str, unknown: Mapping[str, Any], origin: str) -> str:
        """As `Options.meant_by`: what it is called now, or in which other mode it exists."""
        known = renamed(name)
        if known in cls.model_fields:
            return f"is called {known} now"
        others = [
            f"mode {other.model_fields['mode'].default!r}"
            for other in ProcessingMode.__subclasses__()
            if known in other.model_fields
        ]
        if not others:
            return ""
        own = cls.model_fields["mode"].default
        return f"mode {own!r} has no such option; it is one of {' and '.join(others)}"

    @model_validator(mode="after")
    def _says_its_mode(self) -> Self:
        self.model_fields_set.add("mode")
        return self

    @model_serializer(mode="wrap")
    def _with_its_mode(self, rest: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Written without defaults, nothing would tell two modes apart.
        return {"mode": self.mode, **rest(self)}


class Ordered(ProcessingMode):
    """One message (or batch) of a partition after the other."""

    mode: Literal["ordered"] = option(
        "ordered", "One message of a partition after the other.", Effect.WORKERS
    )
    commit_mode: CommitMode = option(
        "interval",
        "When a consumer commits. interval: by commit_interval_ms and commit_records. batch: after "
        "each batch. message: after each message.",
        Effect.WORKERS,
    )
    consumer_per_partition: bool = option(
        True,
        "True: a consumer processes its partitions at the same time. False: it processes one "
        "message at a time, over all its partitions.",
        Effect.NEW_CONSUMERS,
    )


class ByKey(ProcessingMode):
    """Messages of one key one after the other; messages of different keys at once."""

    mode: Literal["by_key"] = option(
        "by_key", "Each key in order, many keys of a partition at once.", Effect.WORKERS
    )
    parallelism: Calls = option(
        16, "How many messages of one partition are processed at the same time.", Effect.WORKERS
    )
    handler_timeout_ms: Milliseconds | None = option(
        None, "An attempt that takes longer has failed; None sets no limit.", Effect.WORKERS
    )
    lookahead_records: int = option(
        20_000,
        "The most messages of one partition that a consumer holds in memory.",
        Effect.WORKERS,
        ge=1,
    )
    lookahead_bytes: ByteCount = option(
        64 * MIB, "The most bytes of one partition that a consumer holds in memory.", Effect.WORKERS
    )
    gap_log: bool = option(
        True,
        "What is done out of order is also kept in the queue '<queue>.gaps.<group>', where it is "
        "more than a row of the registry holds. Without it few messages begin then, until it fits.",
        Effect.WORKERS,
    )
    fair_tenants: bool = option(
        False,
        "Tenants take turns within a partition, instead of being served in order of arrival.",
        Effect.WORKERS,
    )
    tenant_weights: dict[str, Weight] = option(
        {},
        "How many turns a tenant gets for each turn of a tenant that is not named here. Setting it "
        "switches fair_tenants on.",
        Effect.WORKERS,
    )
    tenant_header: str = option(
        TENANT_HEADER,
        "The header that names the tenant of a message.",
        Effect.WORKERS,
        min_length=1,
    )


class Packs(ProcessingMode):
    """Pack by pack: a pack runs in rounds, as its strategies say, before the next one begins."""

    mode: Literal["packs"] = option(
        "packs", "One pack of messages of a partition after the other.", Effect.WORKERS
    )
    submit_strategy: Submit = option(
        "burst",
        "Which messages of a pack are processed at the same time; see docs/processing.md.",
        Effect.WORKERS,
    )
    processing_strategy: Processing = option(
        "skip_all_failures",
        "Which messages of a pack are tried again after a round; see docs/processing.md.",
        Effect.WORKERS,
    )
    parallelism: Calls = option(
        16,
        "The most messages of one partition that are processed at the same time.",
        Effect.WORKERS,
    )
    pack_records: int = option(
        1_000, "The most messages of a pack.", Effect.WORKERS, ge=1, le=PACK_RECORDS_MAX
    )
    batch_records: int = option(
        100,
        'With `submit_strategy = "batch"`: how many messages run at once.',
        Effect.WORKERS,
        ge=1,
    )
    timeout_ms: Milliseconds = option(
        60_000,
        "A message that is not done this long after its pack's round began has timed out.",
        Effect.WORKERS,
    )
    retries: int = option(3, "How often a pack is retried; 0 never gives up.", Effect.WORKERS, ge=0)
    pause_ms: MillisecondsOrNone = option(
        1_000,
        "The pause before a pack's first retry; it doubles with each further one.",
        Effect.WORKERS,
    )
    pause_ms_max: MillisecondsOrNone = option(
        10_000, "The longest pause between retries.", Effect.WORKERS
    )
    failure_percentage: Annotated[float, Field(ge=0, le=100)] = option(
        100.0,
        "A pack is not retried when more than this percentage of it has failed in a round, or has "
        "timed out.",
        Effect.WORKERS,
    )
    tenant_header: str = option(
        TENANT_HEADER,
        'With `submit_strategy = "sequential_by_tenant"`: the header that names the tenant of a '
        "message.",
        Effect.WORKERS,
        min_length=1,
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.pause_ms > self.pause_ms_max:
            raise ValueError(
                f"pause_ms = {self.pause_ms}: must be at most pause_ms_max, which is "
                f"{self.pause_ms_max}"
            )
        return self


def _by_its_name(value: Any) -> Any:
    return {"mode": value} if isinstance(value, str) else value


# A mode, a table with its name and options, or its name alone.
AnyMode = Annotated[
    Ordered | ByKey | Packs, Field(discriminator="mode"), BeforeValidator(_by_its_name)
]
