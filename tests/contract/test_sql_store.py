"""What only SQL stores have: a schema that is upgraded, a commit in a caller's transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

import oracledb
import psycopg
import pytest

from pxrs_ray.errors import StoreSchemaError, UsageError
from pxrs_ray.model import Outcome, PartitionRow, Write, WriteKind
from pxrs_ray.store import open_store
from pxrs_ray.store.sql.schema import SCHEMA_VERSION, upgrade_steps
from pxrs_ray.store.sql.sql_store import fenced_commit_sql, fenced_commit_values
from pxrs_ray.store.sql.sqlite import SqliteDialect
from pxrs_ray.testing.store_checks.base import commit
from tests.contract.oracle_stand_in import OracleStandIn, missing
from tests.servers import PostgresServer, skip_or_fail

GROUP = "sql"
VERSION_0 = (
    "CREATE TABLE pxrs_registry (setting_name VARCHAR(40) PRIMARY KEY, setting_value VARCHAR(200))",
    "INSERT INTO pxrs_registry (setting_name, setting_value) VALUES ('schema_version', '0')",
    "INSERT INTO pxrs_registry (setting_name, setting_value) VALUES ('registry_id', 'old-id')",
    "CREATE TABLE pxrs_group (group_name VARCHAR(300) PRIMARY KEY, generation NUMERIC(19) NOT NULL,"
    " last_version NUMERIC(19) NOT NULL, partition_count NUMERIC(19) NOT NULL, holder VARCHAR(99))",
    "INSERT INTO pxrs_group VALUES ('/pxrs/sql', 4, 9, 2, 'old')",
    "CREATE TABLE pxrs_partition (group_name VARCHAR(300) NOT NULL, partition_id NUMERIC(19) NOT"
    " NULL, owner_id VARCHAR(200), incarnation NUMERIC(19) NOT NULL, epoch NUMERIC(19) NOT NULL,"
    " checkpoint_offset NUMERIC(19) NOT NULL, generation NUMERIC(19) NOT NULL,"
    " PRIMARY KEY (group_name, partition_id))",
    "INSERT INTO pxrs_partition VALUES ('/pxrs/sql', 0, 'A', 1, 3, 340, 4)",
    "INSERT INTO pxrs_partition VALUES ('/pxrs/sql', 1, NULL, 0, 2, 58, 4)",
)


class Backend:
    """One database: its store URL, a connection of the test's own, how its driver writes binds."""

    def __init__(self, url: str, connect: Callable[[], Any], style: Literal["named", "pyformat"]):
        self.url, self.connect, self.style = url, connect, style

    def run(self, *statements: str) -> None:
        with closing(self.connect()) as connection:
            for statement in statements:
                connection.cursor().execute(statement)
            connection.commit()


@pytest.fixture(params=["sqlite", "postgresql", "oracle"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    if request.param == "sqlite":
        path = tmp_path / "registry.db"
        yield Backend(f"sqlite:///{path}", lambda: sqlite3.connect(path), "named")
    elif request.param == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        with psycopg.connect(server.url, autocommit=True) as admin:
            admin.execute("DROP DATABASE IF EXISTS sql_store")
            admin.execute("CREATE DATABASE sql_store")
        url = server.url.rpartition("/")[0] + "/sql_store"
        yield Backend(url, lambda: psycopg.connect(url), "pyformat")
    else:
        if (wanted := missing()) is not None:
            skip_or_fail(f"the Oracle stand-in needs {wanted}")
        with OracleStandIn("h2") as stand_in:
            login = {"user": stand_in.user, "password": stand_in.password, "dsn": stand_in.dsn}
            yield Backend(stand_in.url, lambda: oracledb.connect(**login), "named")


def test_an_older_schema_is_upgraded_with_what_it_holds(backend: Backend) -> None:
    backend.run(*VERSION_0)
    with open_store(backend.url) as store:
        assert store.create() == "old-id"
        assert store.create() == "old-id"
        led = store.lead(GROUP, 2, "new")
        assert led.generation == 5
        assert led.partitions == (
            PartitionRow(0, "A", 1, 3, 340),
            PartitionRow(1, None, 0, 2, 58),
        )
        written = commit(0, 341, epoch=3, attempts=2, detail="d")
        assert store.write(GROUP, 5, [written]) == [Outcome.APPLIED]
        found = store.load(GROUP)
        assert found is not None
        assert found.partitions[0] == PartitionRow(0, "A", 1, 3, 341, 2, "d")


def test_a_newer_schema_is_refused_and_left_alone(backend: Backend) -> None:
    with open_store(backend.url) as store:
        store.create()
    backend.run("UPDATE pxrs_registry SET setting_value = '99' WHERE setting_name LIKE 'schema%'")
    with open_store(backend.url) as store, pytest.raises(StoreSchemaError, match="version 99"):
        store.create()
    with closing(backend.connect()) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT setting_value FROM pxrs_registry WHERE setting_name LIKE 'schema%'")
        assert cursor.fetchall() == [("99",)]


def test_a_schema_without_a_way_up_is_refused() -> None:
    with pytest.raises(StoreSchemaError, match="no way from -1 on"):
        upgrade_steps(SqliteDialect(), -1)
    assert upgrade_steps(SqliteDialect(), SCHEMA_VERSION) == []


def test_a_registry_without_its_schema_is_told(backend: Backend) -> None:
    with (
        open_store(backend.url) as store,
        pytest.raises(StoreSchemaError, match=r"makes (one|a registry)"),
    ):
        store.load(GROUP)


def test_a_commit_joins_a_callers_own_transaction(backend: Backend) -> None:
    """The caller's rows and the checkpoint are there together, or neither when fenced."""
    with open_store(backend.url) as store, closing(backend.connect()) as connection:
        store.create()
        generation = store.lead(GROUP, 1, "c").generation
        claim = Write(WriteKind.CLAIM, 0, "A", 1, 0, version=2)
        assert store.write(GROUP, generation, [claim]) == [Outcome.APPLIED]
        backend.run("CREATE TABLE results (id INTEGER)")
        cursor = connection.cursor()

        def process(offset: int, epoch: int) -> bool:
            cursor.execute(f"INSERT INTO results (id) VALUES ({offset})")
            values = fenced_commit_values(GROUP, commit(0, offset + 1, epoch=epoch))
            cursor.execute(fenced_commit_sql(backend.style), values)
            if cursor.rowcount != 1:
                connection.rollback()
                return False
            connection.commit()
            return True

        assert process(0, epoch=1)
        assert not process(1, epoch=0)
        release = Write(WriteKind.RELEASE, 0, "A", 1, 1, version=3)
        assert store.write(GROUP, generation, [release]) == [Outcome.APPLIED]
        assert not process(1, epoch=1)
        cursor.execute("SELECT id FROM results")
        assert [int(row[0]) for row in cursor.fetchall()] == [0]
        found = store.load(GROUP)
        assert found is not None and found.partitions[0].checkpoint == 1


def test_only_a_commit_can_be_fenced_by_a_caller() -> None:
    with pytest.raises(UsageError, match="not a claim"):
        fenced_commit_values(GROUP, Write(WriteKind.CLAIM, 0, "A", 1, 0, version=2))


def test_prefixes_keep_users_of_one_database_apart(backend: Backend) -> None:
    with (
        open_store(backend.url, prefix="/one/") as one,
        open_store(backend.url, prefix="/two/") as two,
    ):
        assert one.create() == two.create()
        one.lead(GROUP, 1, "c")
        assert one.groups() == (GROUP,)
        assert two.groups() == ()
        assert two.load(GROUP) is None
