"""The stand-in in disorder: sessions that meet on a row, lost connections, timeouts, outages."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import oracledb
import pytest

from tests.contract.oracle_database import (
    CLAIM,
    INSERT,
    Database,
    epoch_of,
    eventually,
    full_code,
    rows,
)
from tests.contract.oracle_stand_in import Fault, OracleStandIn, missing
from tests.servers import skip_or_fail

# Sessions and transactions.


def test_nothing_is_seen_before_the_commit(table: Database) -> None:
    one, other = table.connect(), table.connect()
    one.cursor().execute(CLAIM, owner="o", id="a", epoch=0)
    assert rows(other, "SELECT owner FROM part") == [(None,)]
    one.commit()
    assert rows(other, "SELECT owner FROM part") == [("o",)]


def test_what_is_not_committed_goes_with_the_connection(table: Database) -> None:
    connection = table.connect()
    connection.cursor().execute(CLAIM, owner="o", id="a", epoch=0)
    connection.close()
    assert epoch_of(table) == 0


def test_autocommit_rides_on_the_execute(table: Database) -> None:
    connection = table.connect()
    connection.autocommit = True
    table.server.clear_log()
    connection.cursor().execute(CLAIM, owner="o", id="a", epoch=0)
    assert table.server.log() == [CLAIM]
    assert epoch_of(table) == 1


def test_a_read_only_transaction_sees_one_moment(table: Database) -> None:
    reader, writer = table.connect(), table.connect()
    reader.cursor().execute("SET TRANSACTION READ ONLY")
    assert rows(reader, "SELECT epoch FROM part") == [(0,)]
    writer.cursor().execute(CLAIM, owner="o", id="a", epoch=0)
    writer.commit()
    assert rows(reader, "SELECT epoch FROM part") == [(0,)]
    reader.commit()
    assert rows(reader, "SELECT epoch FROM part") == [(1,)]


def test_racing_sessions_have_one_winner(table: Database) -> None:
    racers = [table.connect() for _ in range(6)]

    def claim(connection: Any, epoch: int) -> int:
        cursor = connection.cursor()
        cursor.execute(CLAIM, owner="o", id="a", epoch=epoch)
        connection.commit()
        return int(cursor.rowcount)

    with ThreadPoolExecutor(len(racers)) as pool:
        for epoch in range(20):
            won = list(pool.map(claim, racers, [epoch] * len(racers)))
            assert sorted(won) == [0, 0, 0, 0, 0, 1]


@pytest.mark.parametrize(
    "lock",
    [
        "SELECT epoch, owner FROM part WHERE id = :id FOR UPDATE",
        "UPDATE part SET epoch = 9 WHERE id = :id",
    ],
)
def test_a_locked_row_makes_others_wait_until_the_commit(table: Database, lock: str) -> None:
    holder, waiter = table.connect(), table.connect()
    holder.cursor().execute(lock, id="a")
    waiter.call_timeout = 200
    with pytest.raises(oracledb.DatabaseError) as timed_out:
        waiter.cursor().execute("SELECT epoch FROM part WHERE id = :id FOR UPDATE", id="a")
    assert full_code(timed_out) == "DPY-4024"
    waiter.rollback()
    assert rows(waiter, "SELECT id FROM part") == [("a",)]
    holder.rollback()
    waiter.call_timeout = 20_000
    assert rows(waiter, "SELECT epoch FROM part WHERE id = :id FOR UPDATE", id="a") == [(0,)]


def test_a_deadlock_is_found(table: Database) -> None:
    one, other = table.connect(), table.connect()
    one.cursor().execute(INSERT, id="b", owner=None, epoch=0)
    one.commit()
    one.cursor().execute("UPDATE part SET epoch = 1 WHERE id = 'a'")
    other.cursor().execute("UPDATE part SET epoch = 1 WHERE id = 'b'")
    with ThreadPoolExecutor(1) as pool:
        crossing = pool.submit(one.cursor().execute, "UPDATE part SET epoch = 2 WHERE id = 'b'")
        failures = []
        try:
            other.cursor().execute("UPDATE part SET epoch = 2 WHERE id = 'a'")
        except oracledb.DatabaseError as error:
            failures.append(error)
        other.rollback()
        try:
            crossing.result(20)
        except oracledb.DatabaseError as error:
            failures.append(error)
    assert [error.args[0].full_code for error in failures] == ["ORA-00060"]


# Faults.


@pytest.mark.parametrize(("when", "applied"), [("before", 0), ("after", 1)])
@pytest.mark.parametrize("autocommit", [True, False])
def test_a_commit_cut_off_looks_the_same_either_way(
    table: Database, when: Any, applied: int, autocommit: bool
) -> None:
    connection = table.connect()
    connection.autocommit = autocommit
    table.server.arm(Fault("cut", at="commit", when=when))
    with pytest.raises(oracledb.DatabaseError) as lost:
        connection.cursor().execute(CLAIM, owner="o", id="a", epoch=0)
        connection.commit()
    assert full_code(lost) == "DPY-4011"
    assert lost.value.args[0].isrecoverable
    assert not connection.is_healthy()
    assert epoch_of(table) == applied


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_execute_cut_off_leaves_nothing(table: Database, when: Any) -> None:
    connection = table.connect()
    before = table.server.fired()
    table.server.arm(Fault("cut", at="execute", when=when, matching="update PART"))
    assert rows(connection, "SELECT epoch FROM part") == [(0,)]
    with pytest.raises(oracledb.DatabaseError) as lost:
        connection.cursor().execute(CLAIM, owner="o", id="a", epoch=0)
    assert full_code(lost) == "DPY-4011"
    assert table.server.fired() == before + 1
    assert epoch_of(table) == 0


def test_an_injected_error_comes_as_often_as_told(table: Database) -> None:
    connection = table.connect()
    table.server.arm(Fault("error", code=60, skip=1, times=2))
    answers = []
    for _ in range(4):
        try:
            connection.cursor().execute(CLAIM, owner="o", id="a", epoch=9)
            answers.append("")
        except oracledb.DatabaseError as error:
            answers.append(error.args[0].full_code)
    assert answers == ["", "ORA-00060", "ORA-00060", ""]


def test_an_error_after_a_commit_has_its_effect(table: Database) -> None:
    connection = table.connect()
    table.server.arm(Fault("error", at="commit", when="after", code=603))
    connection.cursor().execute(CLAIM, owner="o", id="a", epoch=0)
    with pytest.raises(oracledb.DatabaseError):
        connection.commit()
    assert epoch_of(table) == 1


def test_the_listener_can_refuse(database: Database) -> None:
    database.server.arm(Fault("error", at="connect", code=12528))
    with pytest.raises(oracledb.DatabaseError, match="12528"):
        oracledb.connect(**database.login)
    database.server.arm(Fault("cut", at="connect"))
    with pytest.raises(oracledb.DatabaseError):
        oracledb.connect(**database.login)
    assert database.connect().is_healthy()


@pytest.mark.parametrize(("when", "seen"), [("before", 0), ("after", 1)])
def test_a_late_server_that_hears_the_break_gives_up(table: Database, when: Any, seen: int) -> None:
    connection = table.connect()
    connection.call_timeout = 200
    table.server.arm(Fault("late", when=when, seconds=20))
    with pytest.raises(oracledb.DatabaseError) as timed_out:
        connection.cursor().execute(CLAIM, owner="o", id="a", epoch=0)
    assert full_code(timed_out) == "DPY-4024"
    # The connection is as good as new, and what was done before the break is still uncommitted.
    assert rows(connection, "SELECT epoch FROM part") == [(seen,)]
    connection.rollback()
    assert rows(connection, "SELECT epoch FROM part") == [(0,)]


def test_a_late_server_that_is_deaf_applies_it_all_the_same(table: Database) -> None:
    connection = table.connect()
    connection.autocommit = True
    connection.call_timeout = 200
    table.server.arm(Fault("late", seconds=1.0, deaf=True))
    with pytest.raises(oracledb.DatabaseError) as timed_out:
        connection.cursor().execute(CLAIM, owner="o", id="a", epoch=0)
    assert full_code(timed_out) == "DPY-4011"
    assert epoch_of(table) == 0
    eventually(lambda: epoch_of(table) == 1, "the write lands after the client has given up")


def test_a_late_answer_within_the_timeout_is_only_late(table: Database) -> None:
    connection = table.connect()
    connection.call_timeout = 20_000
    table.server.arm(Fault("late", at="commit", seconds=0.3))
    connection.cursor().execute(CLAIM, owner="o", id="a", epoch=0)
    started = time.monotonic()
    connection.commit()
    assert time.monotonic() - started >= 0.3
    assert epoch_of(table) == 1


def test_dropped_sessions_roll_back_and_a_pool_replaces_them(table: Database) -> None:
    pool = oracledb.create_pool(min=2, max=2, ping_interval=0, **table.login)
    eventually(lambda: table.server.sessions() == 2, "the pool fills")
    with pool.acquire() as connection:
        connection.cursor().execute(CLAIM, owner="o", id="a", epoch=0)
        assert table.server.drop_sessions() == 2
        with pytest.raises(oracledb.DatabaseError) as lost:
            connection.commit()
        assert full_code(lost) == "DPY-4011"
    with pool.acquire() as connection:
        assert rows(connection, "SELECT epoch FROM part") == [(0,)]
    pool.close(force=True)


def test_a_server_that_is_down_comes_back_with_its_data(table: Database) -> None:
    table.server.go_down()
    with pytest.raises(oracledb.OperationalError):
        oracledb.connect(**table.login)
    table.server.come_up()
    assert epoch_of(table) == 0


def test_a_frozen_server_answers_when_it_thaws(table: Database) -> None:
    connection = table.connect()
    connection.call_timeout = 200
    table.server.freeze()
    try:
        with pytest.raises(oracledb.DatabaseError) as timed_out:
            rows(connection, "SELECT epoch FROM part")
        assert full_code(timed_out) == "DPY-4011"
    finally:
        table.server.thaw()
    assert epoch_of(table) == 0


def test_a_fault_without_sense_is_refused() -> None:
    for wrong in (
        {"action": "error"},
        {"action": "cut", "code": 1},
        {"action": "late"},
        {"action": "late", "at": "connect", "seconds": 1.0},
    ):
        with pytest.raises(ValueError):
            Fault(**wrong)


def test_the_process_ends_with_the_stand_in() -> None:
    if (wanted := missing()) is not None:
        skip_or_fail(wanted)
    with OracleStandIn("h2") as server:
        process = server._process
        assert process.poll() is None
    assert process.poll() is not None
