# ruff: noqa: D102 (the docstrings of RegistryStore are the contract of these methods)
"""`SqlStore`: the registry in six tables of an SQL database, with hand-written statements.

Rules of this file. Every partition row bears the generation that may write it, stamped by `lead`:
a commit is ONE conditional UPDATE, and an older coordinator's update that is under way makes the
new one wait, after which nothing of it can follow. (A sub-select for the generation leaks: it is
read before the row lock is had.) Everything else first locks the group's row. The database's
clock alone judges leases. What differs between databases is in their `Dialect` and `Database`.

`fenced_commit_sql` is the commit for use in a caller's own transaction, beside his own rows.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from enum import Enum
from typing import Any, Literal, TypeVar

from pxrs_ray import model
from pxrs_ray.clock import wall_ms
from pxrs_ray.errors import (
    AlreadyExists,
    RegistryNotHere,
    StoreError,
    StoreUnavailable,
    UsageError,
)
from pxrs_ray.model import PartitionRow, Write, WriteKind
from pxrs_ray.store import rules
from pxrs_ray.store.deadline import Deadline, Persistence
from pxrs_ray.store.registry import RegistryStore, StoreInfo
from pxrs_ray.store.sql import rows as sql_rows
from pxrs_ray.store.sql.dialect import Cursor, Dialect, pyformat
from pxrs_ray.store.sql.schema import (
    GROUP_TABLES,
    SCHEMA_VERSION,
    SETTINGS_TABLE,
    WRITES,
    renewal,
    tables,
    upgrade_steps,
    write_values,
)
from pxrs_ray.store.sql.session_writes import Session

APPLIED, FENCED = model.Outcome.APPLIED, model.Outcome.FENCED
T = TypeVar("T")


class Scope(Enum):
    """What a transaction is for; the smaller ones are spared round trips and locks."""

    QUERY = "one query"
    UPDATE = "one update, of many rows"
    WHOLE = "any statements"


class Database(ABC):
    """One backend's connections. Its errors are the driver's; `persistence` words them."""

    dialect: Dialect
    persistence: Persistence

    @abstractmethod
    def transaction(self, deadline: Deadline, scope: Scope) -> AbstractContextManager[Cursor]:
        """A cursor in a transaction: committed at the end, rolled back on an exception.

        It sees committed rows only, and what it updates stays locked until the end.
        """

    @abstractmethod
    def is_missing_table(self, error: Exception) -> bool:
        """Whether `error` says that a table is not there."""

    def worded(self, error: Exception, told: str) -> StoreError:
        """The error to be raised for one of the driver that does not pass by itself."""
        if self.is_missing_table(error):
            return RegistryNotHere(f"{told}; is that the place? `pxrs up FILE` makes a registry")
        return StoreError(told)

    @abstractmethod
    def make_schema(self, cursor: Cursor, statements: Sequence[str]) -> None:
        """Run DDL statements; what exists already is success."""

    def begin(self) -> None:  # noqa: B027 (a server is there, or is not)
        """From now on make what is not there: `create` was called, and nothing else makes it."""

    def inspect(self, cursor: Cursor) -> None:  # noqa: B027 (most have nothing to ask)
        """Learn, once a schema is there, what `info` shall tell."""

    @abstractmethod
    def info(self) -> StoreInfo:
        """What `describe` answers, at once: no call to the server."""

    @abstractmethod
    def close(self) -> None:
        """Give back every connection."""


class SqlStore(RegistryStore):
    """A registry in an SQL database. Made by `open_store`, which picks the database."""

    def __init__(self, database: Database, *, prefix: str = "/pxrs/") -> None:
        self._db = database
        self._dialect = database.dialect
        self._prefix = prefix
        self._renewal = renewal(database.dialect)
        self._registry_id: str | None = None
        self._closed = False

    def create(self) -> str:
        found = self._run("create", self._create)
        rules.check_registry_id(self._registry_id, found)
        self._registry_id = found
        return found

    def _create(self, deadline: Deadline) -> str:
        self._db.begin()
        if self._stored_version(deadline) != SCHEMA_VERSION:
            with self._session(deadline) as session:
                make = self._dialect.create_table
                bodies = tables(self._dialect)
                self._db.make_schema(
                    session.cursor, [make(name, body) for name, body in bodies.items()]
                )
                # Read again: another client may have made or upgraded it meanwhile.
                stored = int(session.setting_or("schema_version", str(SCHEMA_VERSION)))
                if steps := upgrade_steps(self._dialect, stored):
                    self._db.make_schema(session.cursor, steps)
                    session.execute(
                        f"UPDATE {SETTINGS_TABLE} SET setting_value = :v "
                        "WHERE setting_name = 'schema_version'",
                        {"v": str(SCHEMA_VERSION)},
                    )
        with self._session(deadline) as session:
            self._db.inspect(session.cursor)
            return session.setting_or("registry_id", secrets.token_hex(16))

    def _stored_version(self, deadline: Deadline) -> int | None:
        try:
            with self._session(deadline, scope=Scope.QUERY) as session:
                return int(session.setting("schema_version") or -1)
        except self._db.persistence.driver_errors as error:
            if self._db.is_missing_table(error):
                return None
            raise

    def lead(self, group: str, partitions: int, holder: str) -> model.Snapshot:
        rules.check_lead(group, partitions, holder)
        now_ms = wall_ms()

        def attempt(deadline: Deadline) -> model.Snapshot:
            with self._session(deadline, group) as session:
                is_new = session.add_group(0, 0, partitions)
                head = session.head()
                assert head is not None, "the group's row was made or was there"
                generation, version, count = head[0] + 1, head[1] + 1, head[2]
                if count != partitions:
                    raise UsageError(
                        f"group {group!r} has {count} partitions, asked for {partitions}; "
                        "the number of partitions of a group cannot change"
                    )
                values = {"g": session.name, "gen": generation}
                session.execute(
                    "UPDATE pxrs_group SET generation = :gen, last_version = :v, holder = :h "
                    "WHERE group_name = :g",
                    {**values, "v": version, "h": holder},
                )
                if is_new:
                    session.add_partitions(generation, list(map(PartitionRow, range(partitions))))
                else:
                    session.execute(
                        "UPDATE pxrs_partition SET generation = :gen "
                        "WHERE group_name = :g AND generation < :gen",
                        values,
                    )
                session.add_changes([rules.led_change(version, holder, generation, now_ms)])
                snapshot = session.snapshot()
                assert snapshot is not None
                return snapshot

        return self._run(f"lead {group!r}", attempt)

    def load(self, group: str) -> model.Snapshot | None:
        rows = self._read("load", group, sql_rows.SNAPSHOT)
        return sql_rows.snapshot_from(group, rows)

    def groups(self) -> tuple[str, ...]:
        def attempt(deadline: Deadline) -> Sequence[Any]:
            with self._session(deadline, scope=Scope.QUERY) as session:
                return session.query("SELECT group_name FROM pxrs_group", {})

        names = [str(row[0]) for row in self._run("groups", attempt)]
        cut = len(self._prefix)
        return tuple(sorted(name[cut:] for name in names if name.startswith(self._prefix)))

    def write(
        self, group: str, generation: model.Generation, records: Sequence[model.Record]
    ) -> list[model.Outcome]:
        rules.check_records(records)
        if not records:
            return []
        waves = rules.waves(records)
        only_commits = all(
            isinstance(record, Write) and record.kind is WriteKind.COMMIT for record in records
        )

        def attempt(deadline: Deadline) -> list[model.Outcome]:
            outcomes = [FENCED] * len(records)
            scope = Scope.UPDATE if only_commits and len(waves) == 1 else Scope.WHOLE
            refused: dict[int, Write] = {}
            with self._session(deadline, group, scope) as session:
                if not only_commits and not session.leads(generation):
                    return outcomes
                for wave in waves:
                    part = {index: records[index] for index in wave}
                    refused = session.apply(generation, part, outcomes)
                    if scope is Scope.WHOLE:
                        session.word_refusals(generation, refused, outcomes)
            if scope is Scope.UPDATE and refused:
                with self._session(deadline, group, Scope.QUERY) as session:
                    session.word_refusals(generation, refused, outcomes)
            return outcomes

        return self._run(f"write to {group!r}", attempt)

    def renew(
        self,
        group: str,
        generation: model.Generation,
        members: Sequence[tuple[model.MemberId, model.Incarnation]],
        lease_ms: int,
    ) -> list[model.Outcome]:
        asked = list(dict.fromkeys(members))
        rows = [{"m": member, "i": incarnation} for member, incarnation in asked]

        def attempt(deadline: Deadline) -> list[model.Outcome]:
            with self._session(deadline, group) as session:
                if not rows or not session.leads(generation):
                    return [FENCED] * len(members)
                shared = {"g": session.name, "s": lease_ms / 1_000}
                renewed = self._dialect.update_each(session.cursor, self._renewal, shared, rows)
                live = {one for one, done in zip(asked, renewed, strict=True) if done}
                return [APPLIED if one in live else FENCED for one in members]

        return self._run(f"renew in {group!r}", attempt)

    def expired(self, group: str) -> tuple[PartitionRow, ...]:
        rows = self._read("expired", group, sql_rows.expired_sql(self._dialect))
        return tuple(map(sql_rows.partition_row, rows))

    def changes(
        self, group: str, after_version: int, limit: int = 1_000
    ) -> tuple[model.Change, ...]:
        statement = sql_rows.CHANGES + self._dialect.page(0, limit)
        rows = self._read("changes", group, statement, {"v": after_version})
        return tuple(map(sql_rows.change_from, rows))

    def trim_changes(self, group: str, generation: model.Generation, keep: int) -> None:
        oldest_to_go = (
            "SELECT version FROM pxrs_change WHERE group_name = :g ORDER BY version DESC"
            + self._dialect.page(keep, 1)
        )

        def attempt(deadline: Deadline) -> None:
            with self._session(deadline, group) as session:
                if not session.leads(generation):
                    return
                if found := session.query(oldest_to_go, {"g": session.name}):
                    session.execute(
                        "DELETE FROM pxrs_change WHERE group_name = :g AND version <= :v",
                        {"g": session.name, "v": int(found[0][0])},
                    )

        self._run(f"trim {group!r}", attempt)

    def put_document(
        self, group: str, generation: model.Generation, name: str, text: str
    ) -> model.Outcome:
        rules.check_document(name, text)

        def attempt(deadline: Deadline) -> model.Outcome:
            with self._session(deadline, group) as session:
                if not session.leads(generation):
                    return FENCED
                session.put_document(name, text)
                return APPLIED

        return self._run(f"put a document of {group!r}", attempt)

    def documents(self, group: str) -> Mapping[str, str]:
        statement = (
            "SELECT document_name, content FROM pxrs_document WHERE group_name = :g "
            "ORDER BY document_name, part"
        )
        found: dict[str, list[str]] = {}
        for name, content in self._read("documents", group, statement):
            found.setdefault(name, []).append(content)
        return {name: "".join(parts) for name, parts in found.items()}

    def restore(
        self,
        snapshot: model.Snapshot,
        changes: Sequence[model.Change],
        documents: Mapping[str, str],
    ) -> None:
        rules.check_restore(snapshot, documents)
        tries = 0

        def attempt(deadline: Deadline) -> None:
            nonlocal tries
            tries += 1
            with self._session(deadline, snapshot.group) as session:
                generation, count = snapshot.generation, len(snapshot.partitions)
                if not session.add_group(generation, snapshot.last_version, count):
                    # After a lost answer it may be our own first try that is there.
                    if tries > 1 and session.snapshot() == snapshot:
                        return
                    raise AlreadyExists(f"group {snapshot.group!r} exists in this store already")
                session.add_partitions(generation, snapshot.partitions)
                for member in snapshot.members:
                    session.put_member(member, 0, new=True)
                session.add_changes(changes)
                for name, text in documents.items():
                    session.put_document(name, text)

        self._run(f"restore {snapshot.group!r}", attempt)

    def remove_group(self, group: str, generation: model.Generation | None = None) -> model.Outcome:
        def attempt(deadline: Deadline) -> model.Outcome:
            with self._session(deadline, group) as session:
                head = session.head()
                if generation is not None:
                    if head is None:
                        session.check_registry()
                    elif not rules.check_generation(head[0], generation, group):
                        return FENCED
                for table in GROUP_TABLES:
                    session.execute(
                        f"DELETE FROM {table} WHERE group_name = :g", {"g": session.name}
                    )
                return APPLIED

        return self._run(f"remove {group!r}", attempt)

    def describe(self) -> StoreInfo:
        return self._db.info()

    def close(self) -> None:
        self._closed = True
        self._db.close()

    def _run(self, what: str, attempt: Callable[[Deadline], T]) -> T:
        if self._closed:
            raise StoreUnavailable("this store was closed; open a new one")
        return self._db.persistence.run(what, attempt)

    @contextmanager
    def _session(
        self, deadline: Deadline, group: str = "", scope: Scope = Scope.WHOLE
    ) -> Iterator[Session]:
        with self._db.transaction(deadline, scope) as cursor:
            yield Session(cursor, self._dialect, group, self._prefix + group, self._registry_id)

    def _read(
        self, what: str, group: str, statement: str, values: Mapping[str, object] | None = None
    ) -> Sequence[Any]:
        def attempt(deadline: Deadline) -> Sequence[Any]:
            with self._session(deadline, group, Scope.QUERY) as session:
                return session.query(statement, {"g": session.name, **(values or {})})

        return self._run(f"{what} of {group!r}", attempt)


def fenced_commit_sql(paramstyle: Literal["named", "pyformat"] = "named") -> str:
    """The conditional UPDATE of a COMMIT, for a caller's own cursor and transaction.

    It changes exactly one row when the writer still owns the partition, and none when it was
    fenced: then the caller must roll back. Its binds are what `fenced_commit_values` gives.
    'named' is for sqlite3 and oracledb, 'pyformat' for psycopg.
    """
    commit = WRITES[WriteKind.COMMIT]
    # Ownership is what the epoch fences; a consumer does not know the coordinator's generation.
    sql = f"UPDATE {commit.table} SET {commit.sets} WHERE {commit.where}".replace(
        " AND generation = :gen", ""
    )
    return pyformat(sql) if paramstyle == "pyformat" else sql


def fenced_commit_values(group: str, write: Write, prefix: str = "/pxrs/") -> dict[str, object]:
    """The binds of `fenced_commit_sql` for a COMMIT to `group` of a store with this prefix."""
    if write.kind is not WriteKind.COMMIT:
        raise UsageError(f"only a COMMIT can be fenced by a caller, not a {write.kind.value}")
    return {"g": prefix + group, **write_values(write)}
