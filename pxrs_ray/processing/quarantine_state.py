"""`Quarantine`: which keys of a partition are put aside, and what waits behind each, in order.

Rules of this file. The truth is a log: partition p of the queue `{queue}.quarantine.{group}`
belongs to partition p of the queue. Only the owner writes what happened there, fenced by its epoch;
operators add their requests. This class is the fold of that log: every reader gets the same state
from the same records, and a record that repeats or comes too late changes nothing.

* parked     a message of a key is put aside, with its offset, attempts and error
* retry      an operator wants the key re-driven
* skip       an operator gives up the message at a position
* redriven   the message at a position has been processed, in its order
* failed     re-driving stopped at the message at a position, which failed again
* released   nothing waits behind the key any more: it flows again
* sought     the partition was moved to an offset: what was parked from there on, under an epoch
             before that, comes again by itself and is forgotten here

What waits is kept as four numbers a message; its text stays in the log.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from enum import StrEnum

from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Epoch, Message, Offset

PREFIX = "pxrs-"
KIND = "pxrs-kind"
# How much of an error's text is kept in memory; all of it is in the log.
ERROR_CHARS_KEPT = 300
COMPACT_FROM = 64


class QuarantineRecord(StrEnum):
    """One record of the log. See the rules at the head of this file."""

    PARKED = "parked"
    RETRY = "retry"
    SKIP = "skip"
    REDRIVEN = "redriven"
    FAILED = "failed"
    RELEASED = "released"
    SOUGHT = "sought"


@dataclass(frozen=True, slots=True)
class Parked:
    """One message that is put aside; `position` is its offset in the quarantine's log."""

    position: Offset
    offset: Offset
    attempts: int
    error: str
    at_ms: int
    epoch: Epoch = -1


class Entries(Mapping[Offset, Parked]):
    """The waiting messages of one key by position, in order; 32 bytes a message, and its error if
    it failed.

    Positions rise. The first is removed first: removing any other takes longer.
    """

    def __init__(self) -> None:
        # Position, offset, epoch and moment of each; what is before `_head` has gone.
        self._rows = [array("q") for _ in range(4)]
        self._head = 0
        self._failed: dict[Offset, tuple[int, str]] = {}

    def add(self, entry: Parked) -> None:
        """Put `entry` behind all others."""
        for row, number in zip(
            self._rows, (entry.position, entry.offset, entry.epoch, entry.at_ms), strict=True
        ):
            row.append(number)
        if entry.attempts or entry.error:
            self.note_failed(entry.position, entry.attempts, entry.error)

    def note_failed(self, position: Offset, attempts: int, error: str) -> None:
        """How often the message at `position` has failed, and how."""
        self._failed[position] = (attempts, error[:ERROR_CHARS_KEPT])

    def remove(self, position: Offset) -> None:
        """The message at `position`, if it is here, does not wait any more."""
        index = self._index(position)
        if index is None:
            return
        self._failed.pop(position, None)
        if index > self._head:
            for row in self._rows:
                del row[index]
            return
        self._head += 1
        if 2 * self._head > len(self._rows[0]) + COMPACT_FROM:
            for row in self._rows:
                del row[: self._head]
            self._head = 0

    def _index(self, position: object) -> int | None:
        positions = self._rows[0]
        if not isinstance(position, int):
            return None
        index = bisect_left(positions, position, self._head)
        found = index < len(positions) and positions[index] == position
        return index if found else None

    def __getitem__(self, position: Offset) -> Parked:
        index = self._index(position)
        if index is None:
            raise KeyError(position)
        _, offset, epoch, at_ms = (row[index] for row in self._rows)
        attempts, error = self._failed.get(position, (0, ""))
        return Parked(position, offset, attempts, error, at_ms, epoch)

    def __contains__(self, position: object) -> bool:
        return self._index(position) is not None

    def __iter__(self) -> Iterator[Offset]:
        return iter(self._rows[0][self._head :])

    def __len__(self) -> int:
        return len(self._rows[0]) - self._head


@dataclass(slots=True)
class QuarantinedKey:
    """One key that is put aside. `entries` are in the order in which they must be re-driven."""

    entries: Entries = field(default_factory=Entries)
    last_offset: Offset = -1
    last_epoch: Epoch = -1
    retrying: bool = False

    @property
    def first(self) -> Parked | None:
        """What must be re-driven, or skipped, before anything else of the key."""
        position = next(iter(self.entries), None)
        return None if position is None else self.entries[position]

    def comes_again(self, offset: Offset, before: Epoch) -> bool:
        """Whether a seek to `offset`, which made the epoch `before`, brings any of it once more."""
        return self.last_offset >= offset and self.last_epoch < before

    def seek(self, offset: Offset, before: Epoch) -> None:
        """Forget what was parked from `offset` on under an epoch below `before`."""
        waiting, self.entries = self.entries, Entries()
        self.last_offset = min(self.last_offset, offset - 1)
        for entry in waiting.values():
            if entry.offset < offset or entry.epoch >= before:
                self.entries.add(entry)
                self.last_offset = max(self.last_offset, entry.offset)


class Quarantine:
    """See the rules at the head of this file."""

    def __init__(self) -> None:
        self.keys: dict[bytes | None, QuarantinedKey] = {}
        self.next_position: Offset = 0

    def __len__(self) -> int:
        """How many messages are put aside."""
        return sum(len(aside.entries) for aside in self.keys.values())

    def dropped(self, to: Offset) -> None:
        """The log has dropped what lay below `to`, also what was not read yet: what of it was put
        aside does not wait any more. The owner drops a log when nothing is aside; so whoever only
        looks may never see how a key came to flow."""
        if to <= self.next_position:
            return
        self.next_position = to
        for key, aside in list(self.keys.items()):
            for position in [p for p in aside.entries if p < to]:
                aside.entries.remove(position)
            if not aside.entries:
                del self.keys[key]

    def apply(self, record: Message) -> None:
        """Take in the next record of the log; one that was taken in already changes nothing."""
        if record.offset < self.next_position:
            return
        self.next_position = record.offset + 1
        told = dict(record.headers)
        kind = told.get(KIND, b"").decode()
        if kind == QuarantineRecord.PARKED:
            self._parked(record, told)
            return
        if kind == QuarantineRecord.SOUGHT:
            self._sought(_number(told, "offset"), _number(told, "epoch"))
            return
        aside = self.keys.get(record.key)
        if aside is None:
            return
        position = _number(told, "position")
        if kind == QuarantineRecord.RETRY:
            aside.retrying = True
        elif kind in (QuarantineRecord.SKIP, QuarantineRecord.REDRIVEN):
            aside.entries.remove(position)
            if kind == QuarantineRecord.SKIP and not aside.entries:
                aside.retrying = True
        elif kind == QuarantineRecord.FAILED and position in aside.entries:
            aside.retrying = False
            error = told.get(f"{PREFIX}error", b"").decode(errors="replace")
            aside.entries.note_failed(position, _number(told, "attempts"), error)
        elif kind == QuarantineRecord.RELEASED:
            aside.retrying = False
            if not aside.entries:
                del self.keys[record.key]

    def _parked(self, record: Message, told: Mapping[str, bytes]) -> None:
        offset = _number(told, "offset")
        aside = self.keys.setdefault(record.key, QuarantinedKey())
        if record.key is not None and offset <= aside.last_offset:
            return
        aside.last_offset, aside.last_epoch = offset, _number(told, "epoch")
        error = told.get(f"{PREFIX}error", b"").decode(errors="replace")
        attempts, at_ms = _number(told, "attempts"), _number(told, "at-ms")
        aside.entries.add(
            Parked(record.offset, offset, attempts, error, at_ms, _number(told, "epoch"))
        )

    def comes_again(self, offset: Offset, before: Epoch) -> bool:
        """Whether anything that was parked was sought back over: see `QuarantineRecord.SOUGHT`."""
        return any(aside.comes_again(offset, before) for aside in self.keys.values())

    def _sought(self, offset: Offset, before: Epoch) -> None:
        for key, aside in list(self.keys.items()):
            waited = bool(aside.entries)
            if aside.comes_again(offset, before):
                aside.seek(offset, before)
            if waited and not aside.entries:
                del self.keys[key]


def _number(told: Mapping[str, bytes], name: str) -> int:
    value = told.get(PREFIX + name, b"-1")
    return int(value) if value.lstrip(b"-").isdigit() else -1


def headers_of(kind: QuarantineRecord, **values: object) -> tuple[tuple[str, bytes], ...]:
    """The headers that make a record: `kind`, and each value under its name."""
    told = ((PREFIX + name.replace("_", "-"), str(value)) for name, value in values.items())
    return ((KIND, kind.value.encode()), *((name, text.encode()) for name, text in told))


def restored(record: Message, partition: int) -> Message:
    """The message that a PARKED record holds, as it was in its queue."""
    told = dict(record.headers)
    kept: Sequence[tuple[str, bytes]] = [h for h in record.headers if not h[0].startswith(PREFIX)]
    return replace(record, partition=partition, offset=_number(told, "offset"), headers=tuple(kept))
