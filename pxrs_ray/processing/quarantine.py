"""`Quarantine`: which keys of a partition are put aside, and what waits behind each, in order.

Rules of this file. The truth is a log: partition p of the queue `{queue}.quarantine.{group}`
belongs to partition p of the queue. Only the owner writes what happened there, fenced by its
epoch; operators add what they want. This class is the fold of that log: the same records give the
same state to everybody who reads them, and a record that repeats or comes too late changes nothing.

* parked     a message of a key is put aside, with its offset, attempts and error
* retry      an operator wants the key re-driven
* skip       an operator gives up the message at a position
* redriven   the message at a position has been processed, in its order
* failed     re-driving stopped at the message at a position, which failed again
* released   nothing waits behind the key any more: it flows again
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from pxrs_ray.model import Message, Offset

PREFIX = "pxrs-"
KIND = "pxrs-kind"


class Record(StrEnum):
    """See the rules at the head of this file."""

    PARKED = "parked"
    RETRY = "retry"
    SKIP = "skip"
    REDRIVEN = "redriven"
    FAILED = "failed"
    RELEASED = "released"


@dataclass(frozen=True, slots=True)
class Parked:
    """One message that is put aside; `position` is its offset in the quarantine's log."""

    position: Offset
    offset: Offset
    attempts: int
    error: str
    at_ms: int


@dataclass(slots=True)
class Aside:
    """One key that is put aside. `entries` are in the order in which they must be re-driven."""

    entries: OrderedDict[Offset, Parked] = field(default_factory=OrderedDict)
    last_offset: Offset = -1
    retrying: bool = False

    @property
    def first(self) -> Parked | None:
        """What must be re-driven, or skipped, before anything else of the key."""
        return next(iter(self.entries.values()), None)


class Quarantine:
    """See the rules at the head of this file."""

    def __init__(self) -> None:
        self.keys: dict[bytes | None, Aside] = {}
        self.next_position: Offset = 0

    def __len__(self) -> int:
        """How many messages are put aside."""
        return sum(len(aside.entries) for aside in self.keys.values())

    def apply(self, record: Message) -> None:
        """Take in the next record of the log; one that was taken in already changes nothing."""
        if record.offset < self.next_position:
            return
        self.next_position = record.offset + 1
        told = dict(record.headers)
        kind = told.get(KIND, b"").decode()
        if kind == Record.PARKED:
            self._parked(record, told)
            return
        aside = self.keys.get(record.key)
        if aside is None:
            return
        position = _number(told, "position")
        if kind == Record.RETRY:
            aside.retrying = True
        elif kind in (Record.SKIP, Record.REDRIVEN):
            aside.entries.pop(position, None)
            if kind == Record.SKIP and not aside.entries:
                aside.retrying = True
        elif kind == Record.FAILED and position in aside.entries:
            aside.retrying = False
            entry = aside.entries[position]
            error = told.get(f"{PREFIX}error", b"").decode(errors="replace")
            aside.entries[position] = replace(
                entry, attempts=_number(told, "attempts"), error=error
            )
        elif kind == Record.RELEASED:
            aside.retrying = False
            if not aside.entries:
                del self.keys[record.key]

    def _parked(self, record: Message, told: Mapping[str, bytes]) -> None:
        offset = _number(told, "offset")
        aside = self.keys.setdefault(record.key, Aside())
        if record.key is not None and offset <= aside.last_offset:
            return
        aside.last_offset = offset
        error = told.get(f"{PREFIX}error", b"").decode(errors="replace")
        aside.entries[record.offset] = Parked(
            record.offset, offset, _number(told, "attempts"), error, _number(told, "at-ms")
        )


def _number(told: Mapping[str, bytes], name: str) -> int:
    value = told.get(PREFIX + name, b"-1")
    return int(value) if value.lstrip(b"-").isdigit() else -1


def headers_of(kind: Record, **values: object) -> tuple[tuple[str, bytes], ...]:
    """The headers that make a record: `kind`, and each value under its name."""
    told = ((PREFIX + name.replace("_", "-"), str(value)) for name, value in values.items())
    return ((KIND, kind.value.encode()), *((name, text.encode()) for name, text in told))


def restored(record: Message, partition: int) -> Message:
    """The message that a PARKED record holds, as it was in its queue."""
    told = dict(record.headers)
    kept: Sequence[tuple[str, bytes]] = [h for h in record.headers if not h[0].startswith(PREFIX)]
    return replace(record, partition=partition, offset=_number(told, "offset"), headers=tuple(kept))
