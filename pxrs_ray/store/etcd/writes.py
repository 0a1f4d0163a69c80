"""Batches of records in etcd: nested transactions, each answered by itself."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

from pxrs_ray.model import MemberWrite, Outcome, Record, Write, WriteKind
from pxrs_ray.store import rules
from pxrs_ray.store.deadline import Deadline
from pxrs_ray.store.etcd.connection import EtcdConnection
from pxrs_ray.store.etcd.keys import (
    GroupKeys,
    cell_text,
    member_text,
    padded,
    revision_of,
    value_of,
)
from pxrs_ray.store.etcd.member_leases import EtcdLeases
from pxrs_ray.store.texts import change_text, own_text, partition_row

NESTED_MAX = 120
"""Each nested transaction has up to 3 operations, and etcd allows 128 with those of all levels."""
ROWS_READ_MAX = 60


class EtcdWrites:
    """Applies the records of a wave, in which no two touch the same row."""

    def __init__(self, connection: EtcdConnection, leases: EtcdLeases) -> None:
        self._etcd = connection
        self._leases = leases

    def apply(
        self,
        deadline: Deadline,
        keys: GroupKeys,
        leads: Any,
        partitions: int,
        records: Mapping[int, Record],
        outcomes: list[Outcome],
    ) -> bool:
        """Note each record's outcome; False when `leads` does not hold."""
        writes: dict[int, Write] = {}
        for index, record in records.items():
            if isinstance(record, Write):
                if 0 <= record.partition < partitions:
                    writes[index] = record
                continue
            outcome = self._apply_member(deadline, keys, leads, record)
            if outcome is None:
                return False
            outcomes[index] = outcome
        left = iter(writes.items())
        while part := dict(islice(left, NESTED_MAX)):
            if not self._apply_writes(deadline, keys, leads, part, outcomes):
                return False
        return True

    def _apply_writes(
        self,
        deadline: Deadline,
        keys: GroupKeys,
        leads: Any,
        writes: Mapping[int, Write],
        outcomes: list[Outcome],
    ) -> bool:
        nested = [self._nested(keys, write) for write in writes.values()]
        newest = max(write.version for write in writes.values())
        if newest:
            nested.append(self._raise_version(keys, newest))
        holds, answers = self._etcd.txn(deadline, [leads], nested)
        if not holds:
            return False
        refused: dict[int, Write] = {}
        for (index, write), answer in zip(writes.items(), answers, strict=False):
            if answer.response_txn.succeeded:
                outcomes[index] = Outcome.APPLIED
            else:
                refused[index] = write
        self._word_refusals(deadline, keys, refused, outcomes)
        return True

    def _nested(self, keys: GroupKeys, write: Write) -> Any:
        """The transaction of one write: what it requires, and what it stores."""
        etcd = self._etcd
        own, cell = keys.own(write.partition), keys.cell(write.partition)
        held = own_text(write.epoch, write.incarnation, write.owner)
        if write.kind is WriteKind.COMMIT:
            progress = cell_text(write.checkpoint, write.attempts, write.detail)
            requires = [
                etcd.is_value(own, held),
                etcd.is_below(cell, padded(write.checkpoint + 1)),
            ]
            return etcd.nested(requires, [etcd.put(cell, progress)])
        change = etcd.put(keys.change(write.version), change_text(rules.change_of(write)))
        if write.kind is WriteKind.RELEASE:
            freed = etcd.put(own, own_text(write.epoch_after))
            return etcd.nested([etcd.is_value(own, held)], [freed, change])
        # A row of epoch 0 has no keys yet.
        free = (
            etcd.is_value(own, own_text(write.epoch)) if write.epoch else etcd.is_unchanged(own, 0)
        )
        if write.kind is WriteKind.CLAIM:
            after = own_text(write.epoch_after, write.incarnation, write.owner)
            start = [] if write.epoch else [etcd.put(cell, cell_text(0))]
        else:
            after = own_text(write.epoch_after)
            start = [etcd.put(cell, cell_text(write.checkpoint))]
        return etcd.nested([free], [etcd.put(own, after), change, *start])

    def _raise_version(self, keys: GroupKeys, version: int) -> Any:
        """Raise the last version, which a late repetition must not lower."""
        etcd, value = self._etcd, padded(version)
        return etcd.nested([etcd.is_below(keys.version, value)], [etcd.put(keys.version, value)])

    def _word_refusals(
        self,
        deadline: Deadline,
        keys: GroupKeys,
        refused: Mapping[int, Write],
        outcomes: list[Outcome],
    ) -> None:
        left = iter(refused.items())
        while part := dict(islice(left, ROWS_READ_MAX)):
            reads = []
            for write in part.values():
                reads.append(self._etcd.get(keys.own(write.partition)))
                reads.append(self._etcd.get(keys.cell(write.partition)))
            _, answers = self._etcd.txn(deadline, [], reads)
            values = [value_of(answer) for answer in answers]
            rows = zip(part.items(), values[::2], values[1::2], strict=True)
            for (index, write), own, cell in rows:
                row = partition_row(write.partition, own, cell)
                outcomes[index] = rules.refused_outcome(row, write)

    def _apply_member(
        self, deadline: Deadline, keys: GroupKeys, leads: Any, record: MemberWrite
    ) -> Outcome | None:
        """The outcome of a membership record; None when `leads` does not hold."""
        etcd, wanted = self._etcd, record.member
        key, lease_key = keys.member(wanted.member), keys.lease(wanted.member)
        change = etcd.put(keys.change(record.version), change_text(rules.change_of(record)))
        version = self._raise_version(keys, record.version)
        while True:
            holds, answers = etcd.txn(deadline, [leads], [etcd.get(key), etcd.get(lease_key)])
            if not holds:
                return None
            stored = value_of(answers[0])
            incarnation = int(stored.partition(";")[0]) if stored else None
            old_leases = [int(kv.lease) for kv in answers[1].response_range.kvs]
            unchanged = etcd.is_unchanged(key, revision_of(answers[0]))
            if record.kind == "left":
                if incarnation != wanted.incarnation:
                    return Outcome.APPLIED if incarnation is None else Outcome.FENCED
                lease = 0
                steps = [etcd.delete(key), etcd.delete(lease_key)]
            else:
                if incarnation is not None and incarnation > wanted.incarnation:
                    return Outcome.FENCED
                lease = self._leases.grant(deadline, record.lease_ms)
                steps = [
                    etcd.put(key, member_text(wanted)),
                    etcd.put(lease_key, str(wanted.incarnation), lease),
                ]
            done, _ = etcd.txn(deadline, [leads, unchanged], [*steps, change, version])
            for useless in old_leases if done else filter(None, [lease]):
                etcd.revoke(deadline, useless)
            if done:
                return Outcome.APPLIED
