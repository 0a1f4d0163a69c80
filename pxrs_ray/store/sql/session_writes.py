"""`Session`: what the SQL stores do inside one transaction, on one cursor.

Rules of this file. Nothing here begins, commits, retries or words a driver's error. The group's row
is the lock of everything but commits: a change of ownership, members or documents holds it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import (
    Change,
    Generation,
    Member,
    MemberWrite,
    Outcome,
    PartitionRow,
    Record,
    Snapshot,
    Write,
    WriteKind,
)
from pxrs_ray.store import rules
from pxrs_ray.store.sql import rows as sql_rows
from pxrs_ray.store.sql.dialect import Cursor, Dialect
from pxrs_ray.store.sql.schema import SETTINGS_TABLE, WRITES, write_values

APPLIED, FENCED = Outcome.APPLIED, Outcome.FENCED
_MEMBER = "WHERE group_name = :g AND member_id = :m"


@dataclass(frozen=True, slots=True)
class Session:
    """One transaction on `group`, whose stored name is `name`."""

    cursor: Cursor
    dialect: Dialect
    group: str
    name: str
    registry_id: str | None

    def execute(self, sql: str, values: Mapping[str, object]) -> int:
        """Run one statement; the number of rows that it changed."""
        self.cursor.execute(self.dialect.finish(sql), values)
        return self.cursor.rowcount

    def query(self, sql: str, values: Mapping[str, object]) -> Sequence[Any]:
        """Every row of a query."""
        self.cursor.execute(self.dialect.finish(sql), values)
        return self.cursor.fetchall()

    def insert(
        self, table: str, columns: Mapping[str, str], rows: Sequence[Mapping[str, object]]
    ) -> None:
        """Insert many rows."""
        sql = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join(columns.values())})"
        if rows:
            self.cursor.executemany(self.dialect.finish(sql), rows)

    def setting(self, name: str) -> str | None:
        """One of the registry's own settings."""
        sql = f"SELECT setting_value FROM {SETTINGS_TABLE} WHERE setting_name = :n"
        found = self.query(sql, {"n": name})
        return str(found[0][0]) if found else None

    def setting_or(self, name: str, default: str) -> str:
        """A setting that is `default` from now on unless it is there already."""
        columns = {"setting_name": ":n", "setting_value": ":v"}
        sql = self.dialect.insert_new(SETTINGS_TABLE, columns, ["setting_name"])
        self.execute(sql, {"n": name, "v": default})
        return self.setting(name) or default

    def head(self) -> tuple[Generation, int, int] | None:
        """Lock the group's row, and read generation, last version and number of partitions."""
        found = self.query(
            "SELECT generation, last_version, partition_count FROM pxrs_group "
            f"WHERE group_name = :g{self.dialect.locking}",
            {"g": self.name},
        )
        return (int(found[0][0]), int(found[0][1]), int(found[0][2])) if found else None

    def leads(self, generation: Generation) -> bool:
        """Lock the group's row; whether `generation` is the newest."""
        head = self.head()
        if head is None:
            self.check_registry()
            return False
        return rules.check_generation(head[0], generation, self.group)

    def check_registry(self) -> None:
        """Raise StoreCorrupted when this is not the registry that it was at `create`."""
        rules.check_registry_id(self.registry_id, self.setting("registry_id"))

    def snapshot(self) -> Snapshot | None:
        """The group as it is now."""
        rows = self.query(sql_rows.SNAPSHOT, {"g": self.name})
        return sql_rows.snapshot_from(self.group, rows)

    def add_group(self, generation: Generation, version: int, partitions: int) -> bool:
        """Make the group's row unless it is there; whether it was made."""
        columns = {
            "group_name": ":g",
            "generation": ":gen",
            "last_version": ":v",
            "partition_count": ":n",
        }
        sql = self.dialect.insert_new("pxrs_group", columns, ["group_name"])
        values = {"g": self.name, "gen": generation, "v": version, "n": partitions}
        return self.execute(sql, values) == 1

    def add_partitions(self, generation: Generation, rows: Sequence[PartitionRow]) -> None:
        """Make the rows of a new group."""
        columns = {
            "group_name": ":g",
            "generation": ":gen",
            "partition_id": ":p",
            "owner_id": ":o",
            "incarnation": ":i",
            "epoch": ":e",
            "checkpoint_offset": ":c",
            "attempts": ":a",
            "detail": ":d",
        }
        values = [
            {
                "g": self.name,
                "gen": generation,
                "p": row.partition,
                "o": row.owner,
                "i": row.incarnation,
                "e": row.epoch,
                "c": row.checkpoint,
                "a": row.attempts,
                "d": row.detail,
            }
            for row in rows
        ]
        self.insert("pxrs_partition", columns, values)

    def add_changes(self, changes: Sequence[Change]) -> None:
        """Append history entries; one whose version is there already stays as it is."""
        sql = self.dialect.insert_new(
            "pxrs_change", sql_rows.CHANGE_COLUMNS, ["group_name", "version"]
        )
        values = [sql_rows.change_values(self.name, change) for change in changes]
        if values:
            self.cursor.executemany(self.dialect.finish(sql), values)

    def put_document(self, name: str, text: str) -> None:
        """Replace a document's rows; '' leaves none."""
        key = {"g": self.name, "n": name}
        self.execute("DELETE FROM pxrs_document WHERE group_name = :g AND document_name = :n", key)
        columns = {"group_name": ":g", "document_name": ":n", "part": ":p", "content": ":w"}
        chars = self.dialect.document_chars
        parts = [text[start : start + chars] for start in range(0, len(text), chars)]
        values = [{**key, "p": number, "w": part} for number, part in enumerate(parts)]
        self.insert("pxrs_document", columns, values)

    def put_member(self, member: Member, lease_ms: int, *, new: bool) -> None:
        """Store a member with a lease from the database's now."""
        until = self.dialect.later(":s")
        if new:
            sql = (
                "INSERT INTO pxrs_member (group_name, member_id, incarnation, attributes, "
                f"lease_until) VALUES (:g, :m, :i, :w, {until})"
            )
        else:
            sql = (
                "UPDATE pxrs_member SET incarnation = :i, attributes = :w, "
                f"lease_until = {until} {_MEMBER}"
            )
        values = {
            "g": self.name,
            "m": member.member,
            "i": member.incarnation,
            "w": rules.member_attributes(member),
            "s": lease_ms / 1_000,
        }
        self.execute(sql, values)

    def apply_member(self, record: MemberWrite) -> tuple[Outcome, bool]:
        """The outcome of a membership record, and whether it changed anything."""
        wanted = record.member
        key = {"g": self.name, "m": wanted.member}
        found = self.query(f"SELECT incarnation FROM pxrs_member {_MEMBER}", key)
        stored = int(found[0][0]) if found else None
        if record.kind == "left":
            if stored == wanted.incarnation:
                self.execute(f"DELETE FROM pxrs_member {_MEMBER}", key)
                return APPLIED, True
            return (APPLIED if stored is None else FENCED), False
        if stored is not None and stored > wanted.incarnation:
            return FENCED, False
        self.put_member(wanted, record.lease_ms, new=stored is None)
        return APPLIED, True

    def apply(
        self, generation: Generation, records: Mapping[int, Record], outcomes: list[Outcome]
    ) -> dict[int, Write]:
        """Apply records of which no two touch the same row, by their place in `outcomes`.

        Notes who took effect, and returns the writes that did not.
        """
        changed: list[Record] = []
        by_kind: dict[WriteKind, dict[int, Write]] = {}
        for index, record in records.items():
            if isinstance(record, Write):
                by_kind.setdefault(record.kind, {})[index] = record
            else:
                outcomes[index], is_change = self.apply_member(record)
                if is_change:
                    changed.append(record)
        refused: dict[int, Write] = {}
        shared = {"g": self.name, "gen": generation}
        for kind, writes in by_kind.items():
            rows = [write_values(write) for write in writes.values()]
            took_effect = self.dialect.update_each(self.cursor, WRITES[kind], shared, rows)
            for (index, write), applied in zip(writes.items(), took_effect, strict=True):
                if not applied:
                    refused[index] = write
                    continue
                outcomes[index] = APPLIED
                if kind is not WriteKind.COMMIT:
                    changed.append(write)
        if changed:
            self.add_changes([rules.change_of(record) for record in changed])
            self.execute(
                "UPDATE pxrs_group SET last_version = :v "
                "WHERE group_name = :g AND last_version < :v",
                {"g": self.name, "v": max(record.version for record in changed)},
            )
        return refused

    def word_refusals(
        self, generation: Generation, refused: Mapping[int, Write], outcomes: list[Outcome]
    ) -> None:
        """Find out why writes took no effect, and note it."""
        if not refused:
            return
        touched = [write.partition for write in refused.values()]
        span = {"g": self.name, "low": min(touched), "high": max(touched)}
        rows = self.query(sql_rows.ROWS_BETWEEN, span)
        if not rows:
            self.check_registry()
        found = {int(row[0]): row for row in rows}
        for index, write in refused.items():
            row = found.get(write.partition)
            if row is not None and rules.check_generation(int(row[7]), generation, self.group):
                outcomes[index] = rules.refused_outcome(sql_rows.partition_row(row), write)
