"""A registry store of your own: one JSON file, guarded by a file lock.

It shows what a store has to do, and how to prove that it does it:

    python examples/own_store.py            # runs the contract suite on it, and tells

A topology uses it by `store = "python:own_store:open_json?path=/data/registry.json"`.

The compare-and-set rules come from `pxrs_ray.store.rules`, so that only reading, writing and the
lock are left. Every call takes the lock, reads the file, and writes it anew when it changed
anything: right, and slow.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import secrets
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pxrs_ray.errors import AlreadyExists, StoreUnavailable, UsageError
from pxrs_ray.model import Change, MemberWrite, Outcome, PartitionRow, Record, Snapshot, Write
from pxrs_ray.store import RegistryStore, StoreInfo, rules
from pxrs_ray.testing.store_contract import ContractResult, run_contract

Group = dict[str, Any]


class JsonFileStore(RegistryStore):
    def __init__(self, path: Path) -> None:
        self._path = path
        self._closed = False

    @contextmanager
    def _open(self) -> Iterator[dict[str, Any]]:
        """The whole file, alone; written back, synced and put in place when it was changed."""
        if self._closed:
            raise StoreUnavailable("this store was closed")
        with self._path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            before = self._path.read_text() if self._path.exists() else "{}"
            data = json.loads(before)
            yield data
            after = json.dumps(data)
            if after != before:
                fresh = self._path.with_suffix(".new")
                with fresh.open("w") as file:
                    file.write(after)
                    file.flush()
                    os.fsync(file.fileno())
                fresh.replace(self._path)

    @contextmanager
    def _group(self, name: str) -> Iterator[Group | None]:
        with self._open() as data:
            yield data.get("groups", {}).get(name)

    @contextmanager
    def _led(self, name: str, generation: int) -> Iterator[Group | None]:
        """The group when `generation` is its newest, else None."""
        with self._group(name) as group:
            newest = group is not None and rules.check_generation(
                group["generation"], generation, name
            )
            yield group if newest else None

    def create(self) -> str:
        with self._open() as data:
            data.setdefault("groups", {})
            return str(data.setdefault("id", secrets.token_hex(16)))

    def lead(self, group: str, partitions: int, holder: str) -> Snapshot:
        rules.check_lead(group, partitions, holder)
        with self._open() as data:
            rows = [dataclasses.astuple(PartitionRow(p)) for p in range(partitions)]
            found = data.setdefault("groups", {}).setdefault(group, _new_group(rows))
            if len(found["rows"]) != partitions:
                raise UsageError(f"group {group!r} has {len(found['rows'])} partitions")
            found["generation"] += 1
            version = found["version"] + 1
            _tell(found, rules.led_change(version, holder, found["generation"], _now_ms()))
            return _snapshot(group, found)

    def load(self, group: str) -> Snapshot | None:
        with self._group(group) as found:
            return None if found is None else _snapshot(group, found)

    def groups(self) -> tuple[str, ...]:
        with self._open() as data:
            return tuple(sorted(data.get("groups", {})))

    def write(self, group: str, generation: int, records: Sequence[Record]) -> list[Outcome]:
        rules.check_records(records)
        with self._led(group, generation) as found:
            if found is None:
                return [Outcome.FENCED] * len(records)
            return [
                _apply_write(found, record)
                if isinstance(record, Write)
                else _apply_member(found, record)
                for record in records
            ]

    def renew(
        self, group: str, generation: int, members: Sequence[tuple[str, int]], lease_ms: int
    ) -> list[Outcome]:
        with self._led(group, generation) as found:
            outcomes = [Outcome.FENCED] * len(members)
            for number, (name, incarnation) in enumerate(members):
                if found is not None and _is_live(found, name, incarnation):
                    found["members"][name]["until_ms"] = _now_ms() + lease_ms
                    outcomes[number] = Outcome.APPLIED
            return outcomes

    def expired(self, group: str) -> tuple[PartitionRow, ...]:
        with self._group(group) as found:
            rows = [PartitionRow(*row) for row in found["rows"]] if found else []
            return tuple(
                row for row in rows if row.owner and not _is_live(found, row.owner, row.incarnation)
            )

    def changes(self, group: str, after_version: int, limit: int = 1_000) -> tuple[Change, ...]:
        with self._group(group) as found:
            history = [Change(*change) for change in found["history"]] if found else []
            return tuple([c for c in history if c.version > after_version][:limit])

    def trim_changes(self, group: str, generation: int, keep: int) -> None:
        with self._led(group, generation) as found:
            if found is not None:
                del found["history"][: max(0, len(found["history"]) - keep)]

    def put_document(self, group: str, generation: int, name: str, text: str) -> Outcome:
        rules.check_document(name, text)
        with self._led(group, generation) as found:
            if found is None:
                return Outcome.FENCED
            if text:
                found["documents"][name] = text
            else:
                found["documents"].pop(name, None)
            return Outcome.APPLIED

    def documents(self, group: str) -> Mapping[str, str]:
        with self._group(group) as found:
            return {} if found is None else found["documents"]

    def restore(
        self, snapshot: Snapshot, changes: Sequence[Change], documents: Mapping[str, str]
    ) -> None:
        rules.check_restore(snapshot, documents)
        with self._open() as data:
            if snapshot.group in data["groups"]:
                raise AlreadyExists(f"group {snapshot.group!r} exists in this store already")
            group = _new_group([dataclasses.astuple(row) for row in snapshot.partitions])
            group |= {"generation": snapshot.generation, "version": snapshot.last_version}
            group["history"] = [dataclasses.astuple(change) for change in changes]
            group["documents"] = dict(documents)
            for member in snapshot.members:
                _put_member(group, member, 0)
            data["groups"][snapshot.group] = group

    def remove_group(self, group: str, generation: int | None = None) -> Outcome:
        with self._open() as data:
            groups = data.get("groups", {})
            if group in groups and generation is not None:
                newest = groups[group]["generation"]
                if not rules.check_generation(newest, generation, group):
                    return Outcome.FENCED
            groups.pop(group, None)
            return Outcome.APPLIED

    def describe(self) -> StoreInfo:
        return StoreInfo("json file", f"file://{self._path}", True, ("slow: for a few groups",))

    def close(self) -> None:
        self._closed = True


def _new_group(rows: list[Any]) -> Group:
    empty: Group = {"generation": 0, "version": 0, "members": {}, "history": [], "documents": {}}
    return empty | {"rows": rows}


def _snapshot(name: str, group: Group) -> Snapshot:
    members = [
        rules.member_from(member, stored["incarnation"], stored["words"])
        for member, stored in sorted(group["members"].items())
    ]
    rows = tuple(PartitionRow(*row) for row in group["rows"])
    return Snapshot(name, group["generation"], rows, tuple(members), group["version"])


def _tell(group: Group, change: Change) -> None:
    group["history"].append(dataclasses.astuple(change))
    group["version"] = change.version


def _apply_write(group: Group, write: Write) -> Outcome:
    if not 0 <= write.partition < len(group["rows"]):
        return Outcome.FENCED
    row = PartitionRow(*group["rows"][write.partition])
    after = rules.next_row(row, write)
    if after is None:
        return rules.refused_outcome(row, write)
    group["rows"][write.partition] = dataclasses.astuple(after)
    if write.version:
        _tell(group, rules.change_of(write))
    return Outcome.APPLIED


def _apply_member(group: Group, record: MemberWrite) -> Outcome:
    wanted, stored = record.member, group["members"].get(record.member.member)
    if record.kind == "joined":
        if stored is not None and stored["incarnation"] > wanted.incarnation:
            return Outcome.FENCED
        _put_member(group, wanted, record.lease_ms)
    elif stored is None:
        return Outcome.APPLIED
    elif stored["incarnation"] != wanted.incarnation:
        return Outcome.FENCED
    else:
        del group["members"][wanted.member]
    if record.version > group["version"]:  # a repetition is told once
        _tell(group, rules.change_of(record))
    return Outcome.APPLIED


def _put_member(group: Group, member: Any, lease_ms: int) -> None:
    group["members"][member.member] = {
        "incarnation": member.incarnation,
        "words": rules.member_attributes(member),
        "until_ms": _now_ms() + lease_ms,
    }


def _is_live(group: Any, name: str, incarnation: int) -> bool:
    stored = group["members"].get(name)
    return (
        stored is not None
        and stored["incarnation"] == incarnation
        and stored["until_ms"] > _now_ms()
    )


def _now_ms() -> int:
    """The machine's clock since its start, which all processes share and nobody can set."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def open_json(path: str, **_prefix_and_deadline: object) -> JsonFileStore:
    """What `store = "python:own_store:open_json?path=..."` calls."""
    return JsonFileStore(Path(path))


def _show(result: ContractResult) -> None:
    print(f"{'ok    ' if result.passed else 'FAILED'} {result.test} {result.failure}")


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "registry.json"
        results = run_contract(lambda: JsonFileStore(path), claim_race_rounds=20, report=_show)
    failed = sum(not result.passed for result in results)
    print(f"{len(results) - failed} of {len(results)} promises kept")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
