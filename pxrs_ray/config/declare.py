"""How options are declared: their types and bounds, and the base class of everything that holds
options.

Rules of this file: an option has a default, a bound, its unit last in its name, one sentence of
documentation, and a word on who must react to its change on a running topology (`Effect`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import core_schema

from pxrs_ray import model
from pxrs_ray.config.messages import refusal
from pxrs_ray.config.redact import without_secrets
from pxrs_ray.data import log_limits
from pxrs_ray.data.log_limits import GIB
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.processing import pack_rules, retry_rules

# How many partitions a queue has where nothing says so.
PARTITIONS = 16
HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class OneOf:
    """Says of an option that it is the value of one of `kind`: the enum is the list of values."""

    kind: type[StrEnum]

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return core_schema.literal_schema([each.value for each in self.kind])


StrategyOption = Annotated[str, OneOf(model.Strategy)]
Hash = Annotated[str, OneOf(model.HashName)]
DurabilityOption = Annotated[str, OneOf(log_limits.Durability)]
LostLogPolicy = Annotated[str, OneOf(log_limits.LossPolicy)]
FailurePolicyOption = Annotated[str, OneOf(retry_rules.FailurePolicy)]
Submit = Annotated[str, OneOf(pack_rules.SubmitStrategy)]
Processing = Annotated[str, OneOf(pack_rules.ProcessingStrategy)]
# Nothing but the configuration names these.
CommitMode = Literal["interval", "batch", "message"]
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
        pattern=rf"^({'|'.join(model.AssignorName)}|[A-Za-z_][\w.]*:[A-Za-z_][\w.]*)$",
        examples=[*(name.value for name in model.AssignorName), "shop.spread:by_rack"],
    ),
]
# Ray's own rule for labels of nodes.
LabelOrNone = Annotated[
    str,
    Field(
        pattern=r"^$|^([a-z0-9.-]+/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$",
        examples=["ray.io/availability-zone", "rack"],
    ),
]
ByteCount = Annotated[int, Field(ge=1, le=1 << 50)]
MessageBytes = Annotated[int, Field(ge=1, le=GIB)]  # a column of Arrow holds at most 2 GiB
Milliseconds = Annotated[int, Field(ge=1, le=10 * 366 * 24 * HOUR_MS)]
MillisecondsOrNone = Annotated[int, Field(ge=0, le=10 * 366 * 24 * HOUR_MS)]
LeaseSeconds = Annotated[float, Field(ge=1, le=3_600)]
Weight = Annotated[float, Field(gt=0, le=1_000_000)]


class Effect(StrEnum):
    """Who must react when an option changes on a running topology, and how.

    The one word on it: `pxrs up`, docs/options.md, `Topology.apply` and the consumers themselves
    all go by what an option declares here. An option may need several of them.
    """

    COORDINATOR = "coordinator"
    BUFFERS = "buffers"
    CONSUMERS = "consumers"
    WORKERS = "workers"
    NEW_CONSUMERS = "new consumers"
    START = "start"
    PRODUCERS = "producers"
    NEW_COORDINATOR = "new coordinator"
    FIXED = "fixed"

    @property
    def told(self) -> str:
        """The same for people: how it takes effect."""
        return _TOLD[self]


_TOLD = {
    Effect.COORDINATOR: "live, in the coordinator",
    Effect.BUFFERS: "live, in the buffers",
    Effect.CONSUMERS: "live, in the consumers",
    Effect.WORKERS: "live, in the consumers, between two messages",
    Effect.NEW_CONSUMERS: "replaces consumers one by one",
    Effect.START: "`pxrs up` starts the consumers anew",
    Effect.PRODUCERS: "for producers that begin",
    Effect.NEW_COORDINATOR: "after `pxrs restart coordinator`",
    Effect.FIXED: "fixed",
}


def option(
    default: Any,
    text: str,
    *changes: Effect,
    apart: tuple[object, ...] = (),
    ordered: bool = False,
    at_first: tuple[Effect, ...] = (),
    **bounds: Any,
) -> Any:
    """Declare one option, and who must react to its `changes`.

    To a value that stands `apart`, and from it, no running topology can change. The order of an
    `ordered` table has a meaning: another order is another value. From None to its first value
    it changes as `at_first` says, where that is given.
    """
    assert changes, "an option says who must react to its change"
    who = [change.value for change in changes]
    extra: dict[str, Any] = {"change": who, "apart": list(apart), "ordered": ordered}
    extra["at_first"] = [change.value for change in at_first]
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

        # Pydantic sets this flag on its own `__init__`; with it, nested models report errors to the
        # outer model instead of raising them.
        __init__.__pydantic_base_init__ = True

    @classmethod
    def meant_by(cls, name: str, unknown: Mapping[str, Any], origin: str) -> str:
        """What to say of an option that is not one of these; '' where nothing better is known than
        the nearest name. `unknown` has the values of all such options beside each other, and
        `origin` says where it stands: a line of a file, a variable, or '' for an argument.
        """
        return ""

    def __repr_args__(self) -> Any:
        """What differs from the defaults, without secrets: a repr that people can read."""
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if value != field.default:
                yield name, without_secrets(value)
