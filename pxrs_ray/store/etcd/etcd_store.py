# ruff: noqa: D102 (the docstrings of RegistryStore are the contract of these methods)
"""`EtcdStore`: the registry in etcd, written by transactions that compare what is stored.

Rules of this file. `keys` defines a group's keys; `head`, its generation and number of partitions,
is compared by every transaction. A row that was never claimed has no keys. In a batch each record
is a transaction inside the one that compares the head, so that each record has its own answer;
etcd's limit of 128 operations bounds what goes into one.

One promise is kept less strictly than elsewhere: etcd extends leases outside of transactions, so a
renewal that is under way while a new coordinator takes over may still count. It harms nothing:
leases end later then, never earlier, and ownership is compared with the generation all the same.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import quote, unquote

from pxrs_ray import model
from pxrs_ray.clock import wall_ms
from pxrs_ray.errors import AlreadyExists, StoreUnavailable, UsageError
from pxrs_ray.store import rules, texts
from pxrs_ray.store.deadline import Deadline, Persistence
from pxrs_ray.store.etcd import keys as etcd_keys
from pxrs_ray.store.etcd.connection import EtcdConnection, end_of
from pxrs_ray.store.etcd.documents import EtcdDocuments
from pxrs_ray.store.etcd.keys import GroupKeys, value_of, values_of
from pxrs_ray.store.etcd.member_leases import EtcdLeases
from pxrs_ray.store.etcd.writes import EtcdWrites
from pxrs_ray.store.registry import RegistryStore, StoreInfo
from pxrs_ray.store.url import StoreUrl

T = TypeVar("T")

SCHEMA_VERSION = 1
PUTS_MAX = 100


class EtcdStore(RegistryStore):
    """A registry under one prefix of an etcd cluster. Made by `open_store`."""

    def __init__(self, url: StoreUrl, *, prefix: str = "/pxrs/", deadline_ms: int = 5_000) -> None:
        self._url = url
        self._prefix = _whole_prefix(url.path, prefix)
        self._etcd = EtcdConnection(url, deadline_ms)
        self._leases = EtcdLeases(self._etcd)
        self._documents = EtcdDocuments(self._etcd)
        self._writes = EtcdWrites(self._etcd, self._leases)
        self._persistence = Persistence(
            where=url.shown,
            deadline_ms=deadline_ms,
            driver_errors=self._etcd.errors,
            is_passing=self._etcd.is_passing,
            scrub=url.scrub,
        )
        self._counts: dict[str, int] = {}
        self._registry_id: str | None = None
        self._closed = False

    def create(self) -> str:
        key, fresh = f"{self._prefix}registry", secrets.token_hex(16)
        etcd = self._etcd

        def attempt(deadline: Deadline) -> str:
            made = etcd.put(key, f"{fresh};{SCHEMA_VERSION}")
            etcd.txn(deadline, [etcd.is_unchanged(key, 0)], [made])
            _, (answer,) = etcd.txn(deadline, [], [etcd.get(key)])
            return value_of(answer) or ""

        found, _, version = self._run("create", attempt).partition(";")
        rules.check_version(self._url.shown, int(version), SCHEMA_VERSION)
        rules.check_registry_id(self._registry_id, found)
        self._registry_id = found
        return found

    def lead(self, group: str, partitions: int, holder: str) -> model.Snapshot:
        rules.check_lead(group, partitions, holder)
        keys, etcd = self._keys(group), self._etcd
        now_ms = wall_ms()

        def attempt(deadline: Deadline) -> model.Snapshot:
            while True:
                reads = [etcd.get(keys.head), etcd.get(keys.version)]
                _, found = etcd.txn(deadline, [], reads)
                head, last = value_of(found[0]), value_of(found[1])
                unchanged = [
                    etcd.is_unchanged(key, etcd_keys.revision_of(answer))
                    for key, answer in zip((keys.head, keys.version), found, strict=True)
                ]
                if head is None:
                    self._check_registry(deadline)
                    etcd.txn(deadline, unchanged[:1], [etcd.delete(keys.base, end_of(keys.base))])
                    unchanged[1] = etcd.is_unchanged(keys.version, 0)
                stored, count = map(int, (head or f"0;{partitions}").split(";"))
                if count != partitions:
                    raise UsageError(
                        f"group {group!r} has {count} partitions, asked for {partitions}; "
                        "the number of partitions of a group cannot change"
                    )
                generation = stored + 1
                version = (int(last) if last and head else 0) + 1
                led = rules.led_change(version, holder, generation, now_ms)
                changes = [
                    etcd.put(keys.head, f"{generation};{count}"),
                    etcd.put(keys.version, etcd_keys.padded(version)),
                    etcd.put(keys.change(version), texts.change_text(led)),
                    etcd.put(self._index(group), ""),
                ]
                holds, answers = etcd.txn(deadline, unchanged, [*changes, *self._reads(keys)])
                if holds:
                    return self._snapshot(group, answers[len(changes) :])

        snapshot = self._run(f"lead {group!r}", attempt)
        self._counts[group] = partitions
        assert snapshot is not None
        return snapshot

    def load(self, group: str) -> model.Snapshot | None:
        keys = self._keys(group)

        def attempt(deadline: Deadline) -> model.Snapshot | None:
            _, answers = self._etcd.txn(deadline, [], self._reads(keys))
            there = value_of(answers[0]) is not None
            return self._snapshot(group, answers) if there else None

        return self._run(f"load {group!r}", attempt)

    def groups(self) -> tuple[str, ...]:
        read = self._etcd.under(f"{self._prefix}groups/", keys_only=True)

        def attempt(deadline: Deadline) -> tuple[str, ...]:
            _, (answer,) = self._etcd.txn(deadline, [], [read])
            return tuple(sorted(unquote(name) for name in values_of(answer)))

        return self._run("groups", attempt)

    def write(
        self, group: str, generation: model.Generation, records: Sequence[model.Record]
    ) -> list[model.Outcome]:
        rules.check_records(records)
        keys = self._keys(group)

        def attempt(deadline: Deadline, count: int) -> list[model.Outcome] | None:
            leads = self._etcd.is_value(keys.head, f"{generation};{count}")
            outcomes = [model.Outcome.FENCED] * len(records)
            for wave in rules.waves(records):
                part = {index: records[index] for index in wave}
                if not self._writes.apply(deadline, keys, leads, count, part, outcomes):
                    # Deposed on the way: what was applied before stays applied.
                    return outcomes if model.Outcome.APPLIED in outcomes else None
            return outcomes

        return self._led(group, generation, attempt) or [model.Outcome.FENCED] * len(records)

    def renew(
        self,
        group: str,
        generation: model.Generation,
        members: Sequence[tuple[model.MemberId, model.Incarnation]],
        lease_ms: int,
    ) -> list[model.Outcome]:
        keys = self._keys(group)

        def attempt(deadline: Deadline, count: int) -> list[model.Outcome] | None:
            leads = self._etcd.is_value(keys.head, f"{generation};{count}")
            return self._leases.renew(deadline, keys, leads, members, lease_ms)

        return self._led(group, generation, attempt) or [model.Outcome.FENCED] * len(members)

    def expired(self, group: str) -> tuple[model.PartitionRow, ...]:
        keys = self._keys(group)
        leases = self._etcd.under(f"{keys.base}l/")

        def attempt(deadline: Deadline) -> tuple[model.PartitionRow, ...]:
            _, answers = self._etcd.txn(deadline, [], [*self._reads(keys), leases])
            if value_of(answers[0]) is None:
                return ()
            live = {(unquote(name), int(at)) for name, at in values_of(answers[-1]).items()}
            return tuple(
                row
                for row in self._snapshot(group, answers).partitions
                if row.owner is not None and (row.owner, row.incarnation) not in live
            )

        return self._run(f"expired of {group!r}", attempt)

    def changes(
        self, group: str, after_version: int, limit: int = 1_000
    ) -> tuple[model.Change, ...]:
        keys = self._keys(group)
        first = keys.change(max(0, after_version + 1))
        read = self._etcd.get(first, end_of(f"{keys.base}h/"), limit)

        def attempt(deadline: Deadline) -> tuple[model.Change, ...]:
            _, (answer,) = self._etcd.txn(deadline, [], [read])
            return tuple(map(texts.change_from, values_of(answer).values()))

        return self._run(f"changes of {group!r}", attempt) if limit > 0 else ()

    def trim_changes(self, group: str, generation: model.Generation, keep: int) -> None:
        keys, etcd = self._keys(group), self._etcd

        def attempt(deadline: Deadline, count: int) -> bool:
            leads = etcd.is_value(keys.head, f"{generation};{count}")
            read = etcd.under(f"{keys.base}h/", keys_only=True)
            _, (answer,) = etcd.txn(deadline, [], [read])
            versions = sorted(map(int, values_of(answer)))
            cut = len(versions) - keep
            if cut <= 0:
                return True
            old = etcd.delete(keys.change(0), keys.change(versions[cut - 1] + 1))
            return etcd.txn(deadline, [leads], [old])[0]

        self._led(group, generation, attempt)

    def put_document(
        self, group: str, generation: model.Generation, name: str, text: str
    ) -> model.Outcome:
        rules.check_document(name, text)
        keys = self._keys(group)

        def attempt(deadline: Deadline, count: int) -> bool:
            leads = self._etcd.is_value(keys.head, f"{generation};{count}")
            return self._documents.put(deadline, keys, [leads], name, text)

        return (
            model.Outcome.APPLIED if self._led(group, generation, attempt) else model.Outcome.FENCED
        )

    def documents(self, group: str) -> Mapping[str, str]:
        keys = self._keys(group)
        return self._run(
            f"documents of {group!r}", lambda deadline: self._documents.read_all(deadline, keys)
        )

    def restore(
        self,
        snapshot: model.Snapshot,
        changes: Sequence[model.Change],
        documents: Mapping[str, str],
    ) -> None:
        rules.check_restore(snapshot, documents)
        group, tries = snapshot.group, 0
        keys, etcd = self._keys(group), self._etcd
        absent = etcd.is_unchanged(keys.head, 0)
        puts = [etcd.put(key, value) for key, value in _group_values(keys, snapshot, changes)]
        head = etcd.put(keys.head, f"{snapshot.generation};{len(snapshot.partitions)}")

        def attempt(deadline: Deadline) -> bool:
            """Everything but the head, which alone makes it a group; then the head."""
            nonlocal tries
            tries += 1
            steps = [[etcd.delete(keys.base, end_of(keys.base))]]
            steps += [puts[at : at + PUTS_MAX] for at in range(0, len(puts), PUTS_MAX)]
            for step in steps:
                if not etcd.txn(deadline, [absent], step)[0]:
                    return False
            for name, text in documents.items():
                if text and not self._documents.put(deadline, keys, [absent], name, text):
                    return False
            return etcd.txn(deadline, [absent], [head, etcd.put(self._index(group), "")])[0]

        # After a lost answer it may be our own first try that is there.
        if not self._run(f"restore {group!r}", attempt) and not (
            tries > 1 and self.load(group) == snapshot
        ):
            raise AlreadyExists(f"group {group!r} exists in this store already")

    def remove_group(self, group: str, generation: model.Generation | None = None) -> model.Outcome:
        keys, etcd = self._keys(group), self._etcd

        def attempt(deadline: Deadline) -> model.Outcome:
            reads = [etcd.get(keys.head), etcd.under(f"{keys.base}l/")]
            _, (found, leases) = etcd.txn(deadline, [], reads)
            head = value_of(found)
            leads = []
            if generation is not None:
                if head is None:
                    self._check_registry(deadline)
                elif not rules.check_generation(int(head.split(";")[0]), generation, group):
                    return model.Outcome.FENCED
                leads = [etcd.is_unchanged(keys.head, etcd_keys.revision_of(found))]
            everything = etcd.delete(keys.base, end_of(keys.base))
            removed = [everything, etcd.delete(self._index(group))]
            if not etcd.txn(deadline, leads, removed)[0]:
                return model.Outcome.FENCED
            for kv in leases.response_range.kvs:
                etcd.revoke(deadline, int(kv.lease))
            return model.Outcome.APPLIED

        outcome = self._run(f"remove {group!r}", attempt)
        self._counts.pop(group, None)
        return outcome

    def describe(self) -> StoreInfo:
        warning = (
            "etcd keeps every past write until it is compacted: run it with "
            "--auto-compaction-mode=periodic --auto-compaction-retention=5m"
        )
        return StoreInfo("etcd", self._url.shown, True, (warning,))

    def close(self) -> None:
        self._closed = True
        self._etcd.close()

    def _keys(self, group: str) -> GroupKeys:
        return GroupKeys(f"{self._prefix}g/{quote(group, safe='')}/")

    def _index(self, group: str) -> str:
        return f"{self._prefix}groups/{quote(group, safe='')}"

    def _reads(self, keys: GroupKeys) -> list[Any]:
        """The reads that tell a snapshot."""
        etcd = self._etcd
        parts = [etcd.under(f"{keys.base}{part}/") for part in ("own", "ck", "m")]
        return [etcd.get(keys.head), etcd.get(keys.version), *parts]

    def _snapshot(self, group: str, answers: Sequence[Any]) -> model.Snapshot:
        """The snapshot that the answers to `_reads` tell."""
        generation, count = map(int, (value_of(answers[0]) or "0;0").split(";"))
        own, cells, members = (values_of(answer) for answer in answers[2:5])
        return model.Snapshot(
            group,
            generation,
            tuple(etcd_keys.rows_from(count, own, cells)),
            tuple(etcd_keys.members_from(members)),
            int(value_of(answers[1]) or 0),
        )

    def _led(
        self, group: str, generation: model.Generation, attempt: Callable[[Deadline, int], T]
    ) -> T | None:
        """Run what compares the head; None when `generation` is not the newest."""
        head = self._etcd.get(self._keys(group).head)

        def whole(deadline: Deadline) -> T | None:
            count = self._counts.get(group)
            if count is not None and (answer := attempt(deadline, count)):
                return answer
            # Refused, or the number of partitions is not known here yet: the head tells.
            _, (found,) = self._etcd.txn(deadline, [], [head])
            stored = value_of(found)
            if stored is None:
                self._check_registry(deadline)
                return None
            newest, now_count = map(int, stored.split(";"))
            if not rules.check_generation(newest, generation, group) or count == now_count:
                return None
            self._counts[group] = now_count
            return attempt(deadline, now_count)

        return self._run(f"write to {group!r}", whole)

    def _check_registry(self, deadline: Deadline) -> None:
        read = self._etcd.get(f"{self._prefix}registry")
        found = value_of(self._etcd.txn(deadline, [], [read])[1][0])
        rules.check_registry_id(self._registry_id, found.partition(";")[0] if found else None)

    def _run(self, what: str, attempt: Callable[[Deadline], T]) -> T:
        if self._closed:
            raise StoreUnavailable("this store was closed; open a new one")
        return self._persistence.run(what, attempt)


def _whole_prefix(path: str, prefix: str) -> str:
    """The URL's path before the prefix: etcd://host/team and /pxrs/ are /team/pxrs/."""
    path = path.rstrip("/")
    return f"{path}/" if f"{path}/".endswith(prefix) else path + prefix


def _group_values(
    keys: GroupKeys, snapshot: model.Snapshot, changes: Sequence[model.Change]
) -> list[tuple[str, str]]:
    """Every key and value of a group but its head and its documents."""
    found = [(keys.version, etcd_keys.padded(snapshot.last_version))]
    for row in snapshot.partitions:
        if row.epoch:
            own = texts.own_text(row.epoch, row.incarnation, row.owner)
            found.append((keys.own(row.partition), own))
            cell = etcd_keys.cell_text(row.checkpoint, row.attempts, row.detail)
            found.append((keys.cell(row.partition), cell))
    found += [(keys.member(one.member), etcd_keys.member_text(one)) for one in snapshot.members]
    found += [(keys.change(change.version), texts.change_text(change)) for change in changes]
    return found
