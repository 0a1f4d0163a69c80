"""An empty database of the Oracle stand-in for one test, and helpers to look into it.

Rules of this file: every session that a test leaves open ends with the test, and a mistake of the
stand-in itself fails the test that met it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import oracledb
import pytest

from tests.contract.oracle_fixture import OracleServer, healed
from tests.contract.oracle_stand_in import OracleStandIn

LONG_ID = "ключ-鍵-é🦀" * 20
TABLE = (
    "CREATE TABLE part (id VARCHAR2(255 CHAR) NOT NULL, owner VARCHAR2(255 CHAR), "
    "epoch NUMBER(19) NOT NULL, CONSTRAINT part_pk PRIMARY KEY (id))"
)
INSERT = "INSERT INTO part (id, owner, epoch) VALUES (:id, :owner, :epoch)"
CLAIM = "UPDATE part SET owner = :owner, epoch = epoch + 1 WHERE id = :id AND epoch = :epoch"


@dataclass
class Database:
    """One empty database of the stand-in, and the connections that a test opened on it."""

    server: OracleStandIn
    url: str
    opened: list[Any] = field(default_factory=list)

    @property
    def dsn(self) -> str:
        return self.url.rpartition("@")[2]

    @property
    def login(self) -> dict[str, Any]:
        return {"user": self.server.user, "password": self.server.password, "dsn": self.dsn}

    def connect(self, **options: Any) -> Any:
        connection = oracledb.connect(**self.login, **options)
        self.opened.append(connection)
        return connection


@pytest.fixture
def stand_in(oracle_server: OracleServer) -> OracleStandIn:
    """The run's stand-in, healed."""
    return healed(oracle_server.faulty())


@pytest.fixture
def database(stand_in: OracleStandIn) -> Iterator[Database]:
    database = Database(stand_in, stand_in.new_database())
    stand_in.clear_log()
    yield database
    healed(stand_in)
    for connection in database.opened:
        with contextlib.suppress(oracledb.Error):
            connection.close()
    assert stand_in.crashes() == []
    eventually(lambda: stand_in.sessions() == 0, "every session ends with its connection")


@pytest.fixture
def table(database: Database) -> Database:
    with database.connect() as connection:
        connection.cursor().execute(TABLE)
        connection.cursor().execute(INSERT, id="a", owner=None, epoch=0)
        connection.commit()
    return database


def eventually(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline, f"in vain: {what}"
        time.sleep(0.01)


def full_code(info: pytest.ExceptionInfo[Any]) -> str:
    return str(info.value.args[0].full_code)


def rows(connection: Any, sql: str, **binds: Any) -> list[Any]:
    return list(connection.cursor().execute(sql, binds))


def epoch_of(database: Database) -> int:
    with database.connect() as connection:
        return int(rows(connection, "SELECT epoch FROM part WHERE id = 'a'")[0][0])
