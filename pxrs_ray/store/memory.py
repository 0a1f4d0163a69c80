# ruff: noqa: D102 (the docstrings of RegistryStore are the contract of these methods)
"""`MemoryStore`: the registry in one process. The verified fake of the tests, and a real store.

Rules of this file. One lock around everything, so that a call is one atomic step. The data live
in a `MemoryRegistry`; several stores on one registry stand for several clients of one server.
Time comes from `now_ms`, which is the store's own clock for leases.
"""

from __future__ import annotations

import bisect
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

from pxrs_ray.clock import monotonic_ms, wall_ms
from pxrs_ray.errors import AlreadyExists, StoreUnavailable, UsageError
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import (
    Change,
    Generation,
    Incarnation,
    Member,
    MemberId,
    MemberWrite,
    Outcome,
    PartitionRow,
    Record,
    Snapshot,
    Write,
    WriteKind,
)
from pxrs_ray.store import rules
from pxrs_ray.store.registry import RegistryStore, StoreInfo

_APPLIED, _FENCED, _BEHIND = Outcome.APPLIED, Outcome.FENCED, Outcome.BEHIND
_COMMIT = WriteKind.COMMIT


class _Row:
    """A partition row that changes in place: one object a partition, none a commit."""

    __slots__ = ("attempts", "checkpoint", "detail", "epoch", "incarnation", "owner", "partition")

    def __init__(self, row: PartitionRow) -> None:
        self.partition = row.partition
        self.set(row)

    def set(self, row: PartitionRow) -> None:
        self.owner = row.owner
        self.incarnation = row.incarnation
        self.epoch = row.epoch
        self.checkpoint = row.checkpoint
        self.attempts = row.attempts
        self.detail = row.detail

    def frozen(self) -> PartitionRow:
        return PartitionRow(
            self.partition,
            self.owner,
            self.incarnation,
            self.epoch,
            self.checkpoint,
            self.attempts,
            self.detail,
        )


@dataclass
class _Group:
    rows: dict[int, _Row]
    generation: Generation = 0
    last_version: int = 0
    members: dict[MemberId, Member] = field(default_factory=dict)
    lease_until_ms: dict[MemberId, int] = field(default_factory=dict)
    history: list[Change] = field(default_factory=list)
    documents: dict[str, str] = field(default_factory=dict)

    def remember(self, change: Change) -> None:
        """Append a history entry; an entry of a version that is there already changes nothing."""
        if change.version > self.last_version:
            self.history.append(change)
            self.last_version = change.version

    def snapshot(self, group: str) -> Snapshot:
        return Snapshot(
            group,
            self.generation,
            tuple(row.frozen() for row in self.rows.values()),
            tuple(self.members[name] for name in sorted(self.members)),
            self.last_version,
        )


def _steady_ms() -> Callable[[], int]:
    """Milliseconds since 1970 at the start, then by the monotonic clock, which never jumps."""
    offset_ms = wall_ms() - monotonic_ms()
    return lambda: monotonic_ms() + offset_ms


class MemoryRegistry:
    """What the stores of one process share: the data of every group, their lock and clock."""

    def __init__(self, now_ms: Callable[[], int] | None = None) -> None:
        self.now_ms = now_ms or _steady_ms()
        self.id = secrets.token_hex(16)
        self.lock = threading.Lock()
        self.groups: dict[str, _Group] = {}


class MemoryStore(RegistryStore):
    """A registry in this process's memory; it ends with the process.

    Pass the same `registry` to several stores to share it. `now_ms` is the clock of a registry of
    its own, for leases and 'led' entries; give it a manual clock's reading in tests.
    """

    def __init__(
        self, registry: MemoryRegistry | None = None, *, now_ms: Callable[[], int] | None = None
    ) -> None:
        if registry is not None and now_ms is not None:
            raise UsageError("a shared registry has its clock already: give it to MemoryRegistry")
        self._registry = registry or MemoryRegistry(now_ms)
        self._now_ms = self._registry.now_ms
        self._closed = False

    def create(self) -> str:
        self._check_open()
        return self._registry.id

    def lead(self, group: str, partitions: int, holder: str) -> Snapshot:
        self._check_open()
        rules.check_lead(group, partitions, holder)
        with self._registry.lock:
            state = self._registry.groups.get(group)
            if state is None:
                rows = {number: _Row(PartitionRow(number)) for number in range(partitions)}
                state = self._registry.groups[group] = _Group(rows)
            elif len(state.rows) != partitions:
                raise UsageError(
                    f"group {group!r} has {len(state.rows)} partitions, asked for {partitions}; "
                    "the number of partitions of a group cannot change"
                )
            state.generation += 1
            state.remember(
                rules.led_change(state.last_version + 1, holder, state.generation, self._now_ms())
            )
            return state.snapshot(group)

    def load(self, group: str) -> Snapshot | None:
        self._check_open()
        with self._registry.lock:
            state = self._registry.groups.get(group)
            return None if state is None else state.snapshot(group)

    def groups(self) -> tuple[str, ...]:
        self._check_open()
        with self._registry.lock:
            return tuple(sorted(self._registry.groups))

    def write(self, group: str, generation: Generation, records: Sequence[Record]) -> list[Outcome]:
        self._check_open()
        rules.check_records(records)
        with self._registry.lock:
            state = self._led(group, generation)
            if state is None:
                return [_FENCED] * len(records)
            rows = state.rows
            outcomes: list[Outcome] = []
            for record in records:
                if isinstance(record, MemberWrite):
                    outcomes.append(self._write_member(state, record))
                    continue
                row = rows.get(record.partition)
                if row is None:
                    outcomes.append(_FENCED)
                elif record.kind is _COMMIT:
                    # The hot path, written out: it makes no object. Equal to `rules.next_row`.
                    if (
                        row.epoch != record.epoch
                        or row.owner != record.owner
                        or row.owner is None
                        or row.incarnation != record.incarnation
                    ):
                        outcomes.append(_FENCED)
                    elif row.checkpoint > record.checkpoint:
                        outcomes.append(_BEHIND)
                    else:
                        row.checkpoint = record.checkpoint
                        row.attempts = record.attempts
                        row.detail = record.detail
                        outcomes.append(_APPLIED)
                else:
                    outcomes.append(_write_ownership(state, row, record))
            return outcomes

    def _write_member(self, state: _Group, record: MemberWrite) -> Outcome:
        wanted = record.member
        stored = state.members.get(wanted.member)
        if record.kind == "joined":
            if stored is not None and stored.incarnation > wanted.incarnation:
                return _FENCED
            state.members[wanted.member] = wanted
            state.lease_until_ms[wanted.member] = self._now_ms() + record.lease_ms
        elif stored is None:
            return _APPLIED
        elif stored.incarnation != wanted.incarnation:
            return _FENCED
        else:
            del state.members[wanted.member], state.lease_until_ms[wanted.member]
        state.remember(rules.change_of(record))
        return _APPLIED

    def renew(
        self,
        group: str,
        generation: Generation,
        members: Sequence[tuple[MemberId, Incarnation]],
        lease_ms: int,
    ) -> list[Outcome]:
        self._check_open()
        with self._registry.lock:
            state = self._led(group, generation)
            if state is None:
                return [_FENCED] * len(members)
            now_ms = self._now_ms()
            outcomes = []
            for name, incarnation in members:
                live = _is_live(state, name, incarnation, now_ms)
                if live:
                    state.lease_until_ms[name] = now_ms + lease_ms
                outcomes.append(_APPLIED if live else _FENCED)
            return outcomes

    def expired(self, group: str) -> tuple[PartitionRow, ...]:
        self._check_open()
        with self._registry.lock:
            state = self._registry.groups.get(group)
            if state is None:
                return ()
            now_ms = self._now_ms()
            return tuple(
                row.frozen()
                for row in state.rows.values()
                if row.owner is not None and not _is_live(state, row.owner, row.incarnation, now_ms)
            )

    def changes(self, group: str, after_version: int, limit: int = 1_000) -> tuple[Change, ...]:
        self._check_open()
        with self._registry.lock:
            state = self._registry.groups.get(group)
            if state is None:
                return ()
            start = bisect.bisect_right(state.history, after_version, key=lambda c: c.version)
            return tuple(state.history[start : start + limit])

    def trim_changes(self, group: str, generation: Generation, keep: int) -> None:
        self._check_open()
        with self._registry.lock:
            state = self._led(group, generation)
            if state is not None:
                del state.history[: max(0, len(state.history) - keep)]

    def put_document(self, group: str, generation: Generation, name: str, text: str) -> Outcome:
        self._check_open()
        rules.check_document(name, text)
        with self._registry.lock:
            state = self._led(group, generation)
            if state is None:
                return _FENCED
            if text:
                state.documents[name] = text
            else:
                state.documents.pop(name, None)
            return _APPLIED

    def documents(self, group: str) -> Mapping[str, str]:
        self._check_open()
        with self._registry.lock:
            state = self._registry.groups.get(group)
            return {} if state is None else dict(state.documents)

    def restore(
        self, snapshot: Snapshot, changes: Sequence[Change], documents: Mapping[str, str]
    ) -> None:
        self._check_open()
        rules.check_restore(snapshot, documents)
        with self._registry.lock:
            if snapshot.group in self._registry.groups:
                raise AlreadyExists(f"group {snapshot.group!r} exists in this store already")
            self._registry.groups[snapshot.group] = _Group(
                {row.partition: _Row(row) for row in snapshot.partitions},
                snapshot.generation,
                snapshot.last_version,
                {member.member: member for member in snapshot.members},
                # A moved registry's members are not running: their leases start over as ended.
                {member.member: self._now_ms() for member in snapshot.members},
                sorted(changes, key=lambda change: change.version),
                {name: text for name, text in documents.items() if text},
            )

    def remove_group(self, group: str, generation: Generation | None = None) -> Outcome:
        self._check_open()
        with self._registry.lock:
            there = group in self._registry.groups
            if there and generation is not None and self._led(group, generation) is None:
                return _FENCED
            self._registry.groups.pop(group, None)
            return _APPLIED

    def describe(self) -> StoreInfo:
        return StoreInfo(
            "memory", "memory:", False, ("the registry lives in this process and ends with it",)
        )

    def close(self) -> None:
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable("this store was closed; open a new one")

    def _led(self, group: str, generation: Generation) -> _Group | None:
        """The group when `generation` is its newest, else None. Call with the lock held."""
        state = self._registry.groups.get(group)
        if state is None or not rules.check_generation(state.generation, generation, group):
            return None
        return state


def _write_ownership(state: _Group, row: _Row, record: Write) -> Outcome:
    before = row.frozen()
    after = rules.next_row(before, record)
    if after is None:
        return rules.refused_outcome(before, record)
    row.set(after)
    state.remember(rules.change_of(record))
    return _APPLIED


def _is_live(state: _Group, name: MemberId, incarnation: Incarnation, now_ms: int) -> bool:
    member = state.members.get(name)
    return (
        member is not None
        and member.incarnation == incarnation
        and state.lease_until_ms[name] > now_ms
    )
