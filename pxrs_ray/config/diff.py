"""Compares two configurations, and says how each difference can take effect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pxrs_ray.config.declare import Effect, Options
from pxrs_ray.config.redact import without_secrets

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo


@dataclass(frozen=True, slots=True)
class Difference:
    """One option that differs. `before` or `after` is None where a queue or group is absent.

    `change` says how the topology can take it.
    """

    option: str
    before: Any
    after: Any
    change: Effect

    @property
    def allowed(self) -> bool:
        """Whether a running topology can take it."""
        return self.change is not Effect.FIXED

    def __str__(self) -> str:
        before, after = without_secrets(self.before), without_secrets(self.after)
        return f"{self.option}: {before!r} -> {after!r} ({self.change.value})"


def differences(before: Options, after: Options, path: str = "") -> Iterator[Difference]:
    """Yield every option that differs, in the order of declaration, queues and groups by name."""
    for name, field in type(before).model_fields.items():
        old, new = getattr(before, name), getattr(after, name)
        if name in ("queues", "groups"):
            yield from _by_name(old, new, name)
        elif in_order(field, old) != in_order(field, new):
            yield Difference(path + name, old, new, _change(field, old, new))


def _by_name(
    before: Mapping[str, Options], after: Mapping[str, Options], kind: str
) -> Iterator[Difference]:
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        path = f"{kind}.{name}"
        if old is not None and new is not None:
            yield from differences(old, new, path + ".")
        else:
            # A queue holds messages: it is removed by a command of its own, never by a file.
            gone = kind == "queues" and new is None
            yield Difference(path, old, new, Effect.FIXED if gone else Effect.LIVE)


def in_order(field: FieldInfo, value: Any) -> Any:
    """The value as it is compared: equal tables in another order may be no equal values."""
    if isinstance(value, dict) and _extra(field).get("ordered"):
        return list(value.items())
    return value


def _change(field: FieldInfo, old: Any, new: Any) -> Effect:
    extra = _extra(field)
    if old in extra.get("apart", ()) or new in extra.get("apart", ()):
        return Effect.FIXED
    return Effect(str(extra.get("change", Effect.LIVE.value)))


def _extra(field: FieldInfo) -> dict[str, Any]:
    extra = field.json_schema_extra
    return extra if isinstance(extra, dict) else {}
