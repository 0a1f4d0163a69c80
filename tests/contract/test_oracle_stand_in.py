"""The stand-in itself: the unmodified driver against it, on both engines, when all goes well.

What is shown here is what the suite of the Oracle store rests on: that the driver's every way of
talking works. Sessions that meet, and faults, are in test_oracle_stand_in_faults.py.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import oracledb
import pytest

from tests.contract.oracle_database import (
    CLAIM,
    INSERT,
    LONG_ID,
    TABLE,
    Database,
    full_code,
    rows,
)

# Connecting.


def test_the_driver_connects_and_sees_19c(database: Database) -> None:
    connection = database.connect()
    assert connection.version.startswith("19.")
    assert connection.thin
    connection.ping()
    assert connection.is_healthy()


def test_a_wrong_password_and_an_unknown_user_are_refused_alike(database: Database) -> None:
    for login in ({"password": "wrong"}, {"user": "nobody"}):
        with pytest.raises(oracledb.DatabaseError) as refused:
            oracledb.connect(**{**database.login, **login})
        assert full_code(refused) == "ORA-01017"


def test_an_unknown_service_is_refused_by_the_listener(database: Database) -> None:
    nowhere = f"127.0.0.1:{database.server.port}/nowhere"
    with pytest.raises(oracledb.DatabaseError) as refused:
        oracledb.connect(**{**database.login, "dsn": nowhere})
    assert full_code(refused) in ("DPY-6001", "DPY-6005")


def test_a_long_connect_string_comes_in_a_packet_of_its_own(database: Database) -> None:
    place, _, service = database.dsn.partition("/")
    port = place.partition(":")[2]
    address = f"(ADDRESS=(PROTOCOL=tcp)(HOST=127.0.0.1)(PORT={port}))"
    dsn = f"(DESCRIPTION=(ADDRESS_LIST={address * 5})(CONNECT_DATA=(SERVICE_NAME={service})))"
    connection = oracledb.connect(**{**database.login, "dsn": dsn})
    database.opened.append(connection)
    assert rows(connection, "SELECT 1 AS one FROM DUAL") == [(1,)]


def test_a_pool_lends_limits_and_pings(table: Database) -> None:
    pool = oracledb.create_pool(
        min=1,
        max=2,
        ping_interval=0,
        getmode=oracledb.POOL_GETMODE_TIMEDWAIT,
        wait_timeout=200,
        **table.login,
    )
    first, second = pool.acquire(), pool.acquire()
    with pytest.raises(oracledb.DatabaseError) as full:
        pool.acquire()
    assert full_code(full) == "DPY-4005"
    first.close()
    second.close()
    with pool.acquire() as again:
        again.module = "pxrs"
        assert rows(again, "SELECT epoch FROM part") == [(0,)]
    assert "ping" in table.server.log()
    pool.close()


def test_pooled_server_sessions_carry_their_class(table: Database) -> None:
    pool = oracledb.create_pool(
        min=0,
        max=2,
        server_type="pooled",
        cclass="PXRS",
        purity=oracledb.PURITY_SELF,
        **table.login,
    )
    with pool.acquire() as connection:
        assert rows(connection, "SELECT epoch FROM part") == [(0,)]
    pool.close(force=True)
    assert "logon PXRS" in table.server.log()


def test_the_async_driver_works_too(table: Database) -> None:
    async def talk() -> tuple[Any, list[int]]:
        connection = await oracledb.connect_async(**table.login)
        with connection.cursor() as cursor:
            await cursor.executemany(
                CLAIM, [{"owner": "o", "id": "a", "epoch": 0}] * 2, arraydmlrowcounts=True
            )
            counts = cursor.getarraydmlrowcounts()
        await connection.commit()
        found = await connection.fetchone("SELECT owner FROM part")
        await connection.close()
        return found, counts

    assert asyncio.run(talk()) == (("o",), [1, 0])


# Values.


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("VARCHAR2(1000 CHAR)", "plain"),
        ("VARCHAR2(1000 CHAR)", LONG_ID),
        ("VARCHAR2(1000 CHAR)", "it's; -- :no /* bind */"),
        ("NUMBER(19)", 0),
        ("NUMBER(19)", -1),
        ("NUMBER(19)", 2**53 + 1),
        ("NUMBER(19)", 2**63 - 1),
        ("NUMBER(38)", 10**37 + 1),
        ("NUMBER(9, 3)", Decimal("-123456.789")),
        ("NUMBER(1)", True),
        ("BINARY_DOUBLE", 1.5),
        ("BINARY_DOUBLE", -2.25e-30),
        ("RAW(16)", b"\x00\x01\xff"),
        ("DATE", datetime(2026, 2, 28, 23, 59, 58)),  # noqa: DTZ001
        ("TIMESTAMP(6)", datetime(1999, 12, 31, 1, 2, 3, 456_789)),  # noqa: DTZ001
        ("INTERVAL DAY(4) TO SECOND(6)", timedelta(days=-3, microseconds=5)),
        ("CLOB", "é" * 1_000_000),
        ("NUMBER(19)", None),
        ("CLOB", None),
    ],
    ids=lambda value: repr(value)[:24],
)
def test_a_value_of_each_type_comes_back_as_it_was(
    database: Database, kind: str, value: object
) -> None:
    connection = database.connect()
    cursor = connection.cursor()
    cursor.execute(f"CREATE TABLE kept (id NUMBER(9), v {kind})")
    wire = {
        "TIMESTAMP(6)": oracledb.DB_TYPE_TIMESTAMP,
        "BINARY_DOUBLE": oracledb.DB_TYPE_BINARY_DOUBLE,
    }
    if kind in wire:  # told nothing, the driver sends a DATE, and a NUMBER
        cursor.setinputsizes(v=wire[kind])
    cursor.execute("INSERT INTO kept (id, v) VALUES (:id, :v)", id=1, v=value)
    connection.commit()
    for _ in range(2):  # the second time the statement is known to both sides
        cursor.execute("SELECT v FROM kept WHERE id = :id", id=1, fetch_lobs=False)
        (found,) = cursor.fetchone()
        assert found == (float(value) if isinstance(value, Decimal) else value)


def test_an_empty_text_is_null(table: Database) -> None:
    connection = table.connect()
    connection.cursor().execute(INSERT, id="empty", owner="", epoch=1)
    assert rows(connection, "SELECT id FROM part WHERE owner IS NULL AND epoch = 1") == [("empty",)]


def test_null_first_and_text_later_in_one_statement(table: Database) -> None:
    connection = table.connect()
    for number, owner in enumerate([None, "x", None, "y" * 200]):
        connection.cursor().execute(INSERT, id=f"n{number}", owner=owner, epoch=1)
    found = rows(connection, "SELECT owner FROM part WHERE epoch = 1 ORDER BY id")
    assert found == [(None,), ("x",), (None,), ("y" * 200,)]


def test_wide_binds_come_last_and_land_where_they_belong(database: Database) -> None:
    connection = database.connect()
    connection.cursor().execute("CREATE TABLE doc (w CLOB, id NUMBER(9), v VARCHAR2(9))")
    insert = "INSERT INTO doc (w, id, v) VALUES (:w, :id, :v)"
    documents = [{"w": "w" * (5_000 * size), "id": size, "v": f"v{size}"} for size in (1, 2, 3)]
    connection.cursor().executemany(insert, documents)
    cursor = connection.cursor()
    cursor.execute("SELECT w, id, v FROM doc ORDER BY id", fetch_lobs=False)
    assert cursor.fetchall() == [tuple(document.values()) for document in documents]


def test_the_clock_is_the_databases(database: Database) -> None:
    (found,) = rows(
        database.connect(),
        "SELECT SYSTIMESTAMP AS now,"
        " SYSTIMESTAMP - CAST(:s AS NUMBER) * INTERVAL '1' SECOND AS ago,"
        " CASE WHEN SYSTIMESTAMP > SYSTIMESTAMP - INTERVAL '5' SECOND THEN 1 ELSE 0 END AS later"
        " FROM DUAL",
        s=90.5,
    )
    assert abs(found[0] - datetime.now(UTC).replace(tzinfo=None)) < timedelta(seconds=60)
    assert abs(found[0] - found[1] - timedelta(seconds=90.5)) < timedelta(seconds=1)
    assert found[2] == 1


# Many rows.


def test_two_thousand_rows_go_in_and_out(table: Database) -> None:
    connection = table.connect()
    many = [{"id": f"{LONG_ID[:200]}{n}", "owner": None, "epoch": 2**53 + n} for n in range(2_000)]
    cursor = connection.cursor()
    cursor.executemany(INSERT, many)
    assert cursor.rowcount == 2_000
    connection.commit()
    found = rows(connection, "SELECT id, epoch FROM part WHERE epoch > 0 ORDER BY epoch")
    assert found == [(row["id"], row["epoch"]) for row in many]


def test_row_counts_and_errors_of_an_array(table: Database) -> None:
    connection = table.connect()
    batch = f"{INSERT} /* batch */"
    for attempt in range(3):  # from the second on, the statement is known to both sides
        cursor = connection.cursor()
        names = [f"n{attempt}", "a", f"m{attempt}", "a"]
        cursor.executemany(
            batch,
            [{"id": name, "owner": "o", "epoch": 1} for name in names],
            batcherrors=True,
            arraydmlrowcounts=True,
        )
        assert cursor.getarraydmlrowcounts() == [1, 0, 1, 0]
        failed = [(error.offset, error.full_code) for error in cursor.getbatcherrors()]
        assert failed == [(1, "ORA-00001"), (3, "ORA-00001")]
    connection.commit()
    assert rows(connection, "SELECT COUNT(*) AS n FROM part WHERE owner = 'o'") == [(6,)]


def test_repeated_row_counts_are_as_the_server_has_it(table: Database) -> None:
    """The trap: whether a REEXECUTE goes on telling row counts is nowhere documented."""
    connection = table.connect()
    claims = [{"owner": "o", "id": "a", "epoch": epoch} for epoch in (0, 5)]

    def batch() -> list[int]:
        with connection.cursor() as cursor:  # closed, so that the next one takes its statement
            cursor.executemany(CLAIM, claims, arraydmlrowcounts=True)
            return list(cursor.getarraydmlrowcounts())

    assert batch() == [1, 0]
    if table.server.engine == "hsqldb":  # this one repeats them
        assert batch() == [0, 0]
        with pytest.raises(oracledb.Error, match="DPY-5000"):
            connection.cursor().executemany(CLAIM, claims)
    else:
        with pytest.raises(oracledb.Error, match="DPY-4006"):
            batch()


def test_an_array_that_fails_keeps_the_rows_before(table: Database) -> None:
    connection = table.connect()
    with pytest.raises(oracledb.IntegrityError):
        connection.cursor().executemany(
            INSERT, [{"id": name, "owner": None, "epoch": 7} for name in ("x", "a", "y")]
        )
    assert rows(connection, "SELECT id FROM part WHERE epoch = 7") == [("x",)]
    connection.rollback()
    assert rows(connection, "SELECT id FROM part WHERE epoch = 7") == []


def test_merge_inserts_and_then_updates(table: Database) -> None:
    connection = table.connect()
    merge = (
        "MERGE INTO part t USING (SELECT CAST(:id AS VARCHAR2(255 CHAR)) AS id FROM DUAL) s "
        "ON (t.id = s.id) WHEN MATCHED THEN UPDATE SET t.epoch = t.epoch + 1 "
        "WHEN NOT MATCHED THEN INSERT (id, epoch) VALUES (s.id, 0)"
    )
    for _ in range(3):
        cursor = connection.cursor()
        cursor.execute(merge, id="m")
        assert cursor.rowcount == 1
    assert rows(connection, "SELECT epoch FROM part WHERE id = 'm'") == [(2,)]


# Mistakes.


@pytest.mark.parametrize(
    ("code", "sql"),
    [
        ("ORA-00001", "INSERT INTO part (id, epoch) VALUES ('a', 1)"),
        ("ORA-01400", "INSERT INTO part (id, epoch) VALUES (NULL, 1)"),
        ("ORA-12899", f"INSERT INTO part (id, epoch) VALUES ('{'x' * 511}', 1)"),
        ("ORA-00942", "SELECT n FROM nowhere"),
        ("ORA-00955", TABLE),
        ("ORA-00933", "SELECT id FROM part;"),
        ("ORA-00923", "SELECT 1"),
        ("ORA-01476", "SELECT 1 / 0 AS n FROM DUAL"),
    ],
)
def test_mistakes_are_told_as_the_database_does(table: Database, code: str, sql: str) -> None:
    connection = table.connect()
    with pytest.raises(oracledb.DatabaseError) as told:
        rows(connection, sql)
    assert full_code(told) == code
    assert rows(connection, "SELECT id FROM part") == [("a",)]


def test_what_the_stand_in_cannot_do_says_so_and_ends_the_session(table: Database) -> None:
    connection = table.connect()
    with pytest.raises(oracledb.DatabaseError) as told:
        connection.cursor().parse("SELECT id FROM part")
    assert full_code(told) == "ORA-03001"
