"""How options are declared: their types and bounds, and the base class of everything that holds
options.

Rules of this file. An option has a default, a bound, its unit last in its name, one sentence of
documentation, and a statement of how it may change on a running topology (`Effect`).
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pxrs_ray.config.messages import refusal
from pxrs_ray.config.redact import without_secrets

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30
PARTITIONS_MAX = 65_536
CONSUMERS_MAX = 10_000
HOUR_MS = 3_600_000

Strategy = Literal["modulo", "jump", "tenant", "round_robin", "label", "broadcast"]
Hash = Literal["xxh64", "murmur3_128", "murmur3_32", "sha256", "crc32", "java"]
Durability = Literal["memory", "interval", "always"]
LostLogPolicy = Literal["stop", "continue"]
CommitMode = Literal["interval", "batch", "message"]
FailurePolicy = Literal["stop", "skip", "dead_letter", "quarantine"]
Submit = Literal["burst", "batch", "sequential_by_originator", "sequential_by_tenant", "sequential"]
Processing = Literal[
    "skip_all_failures",
    "skip_all_failures_and_timed_out",
    "retry_all",
    "retry_failed",
    "retry_timed_out",
    "retry_failed_and_timed_out",
]
Start = Literal["start", "end"]

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
Name = Annotated[str, Field(pattern=NAME_PATTERN, examples=["payments", "eu.orders-2"])]
ImportPath = Annotated[
    str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$", examples=["shop.handlers:charge"])
]
# One of the built-in ones, or a function of the user's own.
Assignor = Annotated[
    str,
    Field(
        pattern=r"^(sticky|range|round_robin|tenant|static|[A-Za-z_][\w.]*:[A-Za-z_][\w.]*)$",
        examples=["sticky", "range", "round_robin", "tenant", "static", "shop.spread:by_rack"],
    ),
]
Bytes = Annotated[int, Field(ge=1, le=1 << 50)]
MessageBytes = Annotated[int, Field(ge=1, le=GIB)]  # a column of Arrow holds at most 2 GiB
Milliseconds = Annotated[int, Field(ge=1, le=10 * 366 * 24 * HOUR_MS)]
MillisecondsOrNone = Annotated[int, Field(ge=0, le=10 * 366 * 24 * HOUR_MS)]
LeaseSeconds = Annotated[float, Field(ge=1, le=3_600)]
Weight = Annotated[float, Field(gt=0, le=1_000_000)]


class Effect(StrEnum):
    """How an option takes effect on a topology that is running.

    LIVE: at once. RESTART: the actors concerned are replaced, one after another. FIXED: not at
    all; another topology, or an emptied one, can have it.
    """

    LIVE = "live"
    RESTART = "restart"
    FIXED = "fixed"


def option(
    default: Any,
    text: str,
    change: Effect = Effect.LIVE,
    *,
    apart: tuple[str, ...] = (),
    ordered: bool = False,
    **bounds: Any,
) -> Any:
    """Declare one option.

    To a value that stands `apart`, and from it, no running topology can change. The order of an
    `ordered` table has a meaning: another order is another value.
    """
    extra: dict[str, Any] = {"change": change.value, "apart": list(apart), "ordered": ordered}
    return Field(default, description=text, json_schema_extra=extra, **bounds)


class Options(BaseModel):
    """The base class of all options: frozen, strict; a wrong value raises ConfigError."""

    model_config = ConfigDict(
        frozen=True, strict=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True
    )

    if not TYPE_CHECKING:  # type checkers see the options as arguments

        def __init__(self, /, **options: Any) -> None:
            try:
                self.__pydantic_validator__.validate_python(options, self_instance=self)
            except ValidationError as error:
                raise refusal(type(self), error) from None

        # Said of pydantic's own: inside a larger configuration, problems are collected, not raised.
        __init__.__pydantic_base_init__ = True

    def __repr_args__(self) -> Any:
        """What differs from the defaults, without secrets: a repr that people can read."""
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if value != field.default:
                yield name, without_secrets(value)
