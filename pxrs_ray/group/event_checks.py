"""Refuses invalid events before anything of them is applied.

Rules of this file. A group's records go to a store in batches with those of others, and memory
changes before the store is asked. So what the store would refuse has to be refused here, by name,
to the caller. The limits are the stores' own (`store.rules`). Text that only tells people why
something happened is never refused: it is made harmless instead.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, get_type_hints

from pxrs_ray.errors import NotFound, UsageError
from pxrs_ray.group.events import (
    Commit,
    Configure,
    Event,
    Join,
    Leave,
    PartitionProgress,
    Raise,
    Release,
    Seek,
)
from pxrs_ray.model import Member, Offset, PartitionId, Progress
from pxrs_ray.store.rules import ATTEMPTS_MAX, NUMBER_MAX, check_detail, check_member

MILLISECONDS_MAX = 10 * 366 * 24 * 3_600_000
INPUT_SHOWN_CHARS = 60
# Exactly these: True is an int, and numpy has integers of its own that no store keeps.
PROGRESS_KINDS = (int, int, int, int, str)


def check_event(event: Event) -> None:
    """Raise UsageError for an event with a value that no store could keep."""
    match event:
        case Commit() | Release():
            _check_rows(event.rows)
        case Join():
            for member in event.members:
                _check_joining(member)
        case Leave():
            _check_number("incarnation", event.incarnation)
        case Configure():
            _check_settings(event)
        case Raise():
            for partition, epoch in event.epochs.items():
                _check_number(f"partition {partition}: epoch", epoch)
        case Seek():
            for partition, offset in event.offsets.items():
                if offset >= 0:  # below is refused with the partition's own words
                    _check_number(f"partition {partition}: offset", offset)


def check_offsets(offsets: Mapping[PartitionId, Offset], group: str, partitions: int) -> None:
    """Raise NotFound for a partition that `group` has not, UsageError for an impossible offset."""
    for partition, offset in offsets.items():
        if not 0 <= partition < partitions:
            raise NotFound(f"group {group} has partitions 0 to {partitions - 1}, not {partition}")
        if offset < 0:
            raise UsageError(f"cannot seek partition {partition} to offset {offset}: below 0")


def _check_rows(rows: Iterable[PartitionProgress]) -> None:
    for row in rows:
        done = row.progress
        if type(done) is not Progress:
            raise UsageError(f"a row of progress is {_shown(row)}: its progress is none")
        numbers = (type(row.partition), type(row.epoch), type(done.checkpoint), type(done.attempts))
        if (*numbers, type(done.detail)) != PROGRESS_KINDS:
            raise UsageError(f"a row of progress is {_shown(row)}: four numbers, and a text")
        if not 0 <= done.checkpoint <= NUMBER_MAX:
            raise UsageError(
                f"partition {row.partition}: checkpoint is {done.checkpoint}, allowed: 0 to "
                f"{NUMBER_MAX}"
            )
        if not 0 <= done.attempts <= ATTEMPTS_MAX:
            raise UsageError(
                f"partition {row.partition}: attempts is {done.attempts}, allowed: 0 to "
                f"{ATTEMPTS_MAX}"
            )
        if done.detail:
            check_detail(row.partition, done.detail)


def _check_joining(member: Member) -> None:
    check_member(member)
    _check_weight(member.member, member.weight)
    _check_number(f"member {member.member!r}: incarnation", member.incarnation)
    if not 0 <= member.grace_ms <= MILLISECONDS_MAX:
        raise UsageError(
            f"member {member.member!r}: grace_ms is {member.grace_ms}, allowed: 0 to "
            f"{MILLISECONDS_MAX}"
        )


def _check_settings(event: Configure) -> None:
    for name, weight in (event.weights or {}).items():
        _check_weight(name, weight)
    for name in ("lease_ms", "revoke_deadline_ms", "prepare_ms", "grace_ms"):
        value = getattr(event, name)
        lowest = 0 if name in ("prepare_ms", "grace_ms") else 1
        if value is not None and not lowest <= value <= MILLISECONDS_MAX:
            raise UsageError(f"{name} is {value}, allowed: {lowest} to {MILLISECONDS_MAX}")


def _check_weight(member: str, weight: float) -> None:
    if not (math.isfinite(weight) and weight > 0):
        raise UsageError(f"weight of {member!r} is {weight}: weights must be above 0 and finite")


def _check_number(what: str, number: int) -> None:
    if not 0 <= number <= NUMBER_MAX:
        raise UsageError(f"{what} is {number}, allowed: 0 to {NUMBER_MAX}")


def harmless(text: str) -> str:
    """`text` for people, on one line: what no store keeps or no terminal should get is shown
    as '?'."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " if c.isspace() else "?" for c in text)


# --- calls ----------------------------------------------------------------------------------------


def check_call(method: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Raise UsageError when `arguments` are not what `method` (bound) is declared with.

    Callers are other processes: whatever they send must be answered by name, and never get far
    enough to raise in the middle of a change.
    """
    function = getattr(method, "__func__", method)
    parameters, adapters = _declared(function)
    name = function.__name__
    if not parameters[0] <= len(arguments) <= parameters[1]:
        raise UsageError(
            f"{name} takes {parameters[0]} to {parameters[1]} arguments, got {len(arguments)}"
        )
    from pydantic import ValidationError

    for (parameter, adapter), value in zip(adapters, arguments, strict=False):
        try:
            adapter.validate_python(value, strict=True)
        except ValidationError as error:
            found = error.errors(include_url=False, include_context=False)[0]
            place = ".".join(str(part) for part in (parameter, *found["loc"]))
            raise UsageError(
                f"{name}: {place} = {_shown(found['input'])}: {found['msg']}"
            ) from None
        except RecursionError:
            raise UsageError(f"{name}: {parameter} is nested too deeply") from None


@lru_cache(maxsize=256)
def _declared(function: Callable[..., Any]) -> tuple[tuple[int, int], list[tuple[str, Any]]]:
    """How few and how many arguments `function` takes, and what checks each."""
    from pydantic import ConfigDict, TypeAdapter

    hints = get_type_hints(function, include_extras=True)
    known = [p for p in inspect.signature(function).parameters.values() if p.name != "self"]
    least = sum(p.default is p.empty for p in known)
    arbitrary = ConfigDict(arbitrary_types_allowed=True)
    adapters = []
    for parameter in known:
        hint = hints[parameter.name]
        try:
            adapter = TypeAdapter(hint, config=arbitrary)
        except Exception:  # noqa: BLE001 - a class of its own rules: only an instance will do
            adapter = TypeAdapter(hint)
        adapters.append((parameter.name, adapter))
    return (least, len(known)), adapters


def _shown(value: object) -> str:
    try:
        text = harmless(repr(value))
    except Exception:  # noqa: BLE001 - it is another's object
        text = type(value).__name__
    return text if len(text) <= INPUT_SHOWN_CHARS else text[:INPUT_SHOWN_CHARS] + "..."
