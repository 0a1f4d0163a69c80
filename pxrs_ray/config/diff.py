"""What differs between two configurations, and who must react to each difference."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pxrs_ray.config.declare import Effect, Options
from pxrs_ray.config.redact import without_secrets
from pxrs_ray.late_dataclass import dataclass

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo


@dataclass(frozen=True, slots=True)
class Difference:
    """One option that differs. `before` or `after` is None where a queue or group is absent.

    `changes` says who must react to it, and how.
    """

    option: str
    before: Any
    after: Any
    changes: tuple[Effect, ...]

    @property
    def allowed(self) -> bool:
        """Whether a running topology can take it."""
        return Effect.FIXED not in self.changes

    def __str__(self) -> str:
        before, after = without_secrets(self.before), without_secrets(self.after)
        text = told(self.changes)
        if not self.allowed and isinstance(before, str) and after is None:
            # It was left out, and what it was by itself then is another one now.
            text += f": write {self.option.rpartition('.')[2]} = {before!r} to keep it"
        return f"{self.option}: {before!r} -> {after!r} ({text})"


def differences(before: Options, after: Options, path: str = "") -> Iterator[Difference]:
    """Yield every option that differs, in the order of declaration, queues and groups by name."""
    for name, field in type(before).model_fields.items():
        old, new = getattr(before, name), getattr(after, name)
        if name in ("queues", "groups"):
            yield from _by_name(old, new, name)
        elif isinstance(old, Options) and type(old) is type(new):
            yield from differences(old, new, f"{path}{name}.")
        elif in_order(field, old) != in_order(field, new):
            yield Difference(path + name, old, new, _changes(field, old, new))


def _by_name(
    before: Mapping[str, Options], after: Mapping[str, Options], kind: str
) -> Iterator[Difference]:
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        path = f"{kind}.{name}"
        if old is not None and new is not None:
            yield from differences(old, new, path + ".")
        else:
            yield Difference(path, old, new, (_whole(kind, gone=new is None),))


def _whole(kind: str, *, gone: bool) -> Effect:
    """Who must react to a queue or group that comes or goes."""
    if kind == "groups":
        return Effect.COORDINATOR
    # A queue holds messages: it is removed by `pxrs queue delete`, never by a file.
    return Effect.FIXED if gone else Effect.BUFFERS


def who_reacts(before: Options, after: Options) -> frozenset[Effect]:
    """Everybody who must react to what differs."""
    return frozenset(who for found in differences(before, after) for who in found.changes)


def told(changes: Iterable[Effect]) -> str:
    """How a change takes effect, for people."""
    return "; ".join(change.told for change in changes)


def in_order(field: FieldInfo, value: Any) -> Any:
    """The value as it is compared: equal tables in another order may be no equal values."""
    if isinstance(value, dict) and _extra(field).get("ordered"):
        return list(value.items())
    return value


def declared(field: FieldInfo) -> tuple[Effect, ...]:
    """Who must react to a change of this option."""
    return tuple(Effect(who) for who in _extra(field)["change"])


def _changes(field: FieldInfo, old: Any, new: Any) -> tuple[Effect, ...]:
    apart = _extra(field)["apart"]
    if old in apart or new in apart:
        return (Effect.FIXED,)
    if old is None and (first := _extra(field)["at_first"]):
        return tuple(Effect(who) for who in first)
    # Of another kind: what only one of them has is, in the other, as by default.
    others = [
        who
        for one in (old, new)
        if isinstance(one, Options)
        for name, inner in type(one).model_fields.items()
        if getattr(one, name) != inner.default
        for who in declared(inner)
    ]
    return tuple(dict.fromkeys([*declared(field), *others]))


def _extra(field: FieldInfo) -> dict[str, Any]:
    extra = field.json_schema_extra
    return extra if isinstance(extra, dict) else {}
