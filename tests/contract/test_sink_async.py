"""The sink of async handlers: the same promises, and the event loop goes on meanwhile."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from pxrs_ray.consumer.delivery import DeliveredBatch, Delivery, DeliveryContext
from pxrs_ray.data.batch import Batch
from pxrs_ray.errors import Fenced, NotHeld, UsageError
from pxrs_ray.group.member_lease import Title
from pxrs_ray.model import Message
from tests.servers import PostgresServer

ROW = "INSERT INTO account VALUES (:id, 1)"


class Cursor:
    """As aiosqlite has it: every call is awaited."""

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        self._cursor = cursor

    def __getattr__(self, name: str) -> Any:
        async def call(*arguments: Any) -> Any:
            await asyncio.sleep(0)
            return getattr(self._cursor, name)(*arguments)

        return call


class AsyncSqlite(sqlite3.Connection):
    """A connection of an async driver, on the loop's own thread."""

    async def cursor(self) -> Cursor:  # type: ignore[override]
        return Cursor(super().cursor())

    async def commit(self) -> None:  # type: ignore[override]
        super().commit()

    async def execute(self, sql: str, *binds: Any) -> Any:  # type: ignore[override]
        return super().execute(sql, *binds)


Connect = Callable[[], Awaitable[Any]]


@pytest.fixture(params=["threads", "async", pytest.param("postgres", marks=pytest.mark.service)])
def connect(request: pytest.FixtureRequest, tmp_path: Path) -> Connect:
    """How to connect to a database that has the table `account`."""
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        return lambda: _postgres(server)

    async def connect() -> Any:
        kind = AsyncSqlite if request.param == "async" else sqlite3.Connection
        return sqlite3.connect(tmp_path / "db", check_same_thread=False, factory=kind)

    with sqlite3.connect(tmp_path / "db") as plain:
        plain.execute("CREATE TABLE account (id VARCHAR(40) PRIMARY KEY, total INTEGER)")
    return connect


async def _postgres(server: PostgresServer) -> Any:
    import psycopg

    connection = await psycopg.AsyncConnection.connect(server.url)
    if not getattr(server, "has_account", False):
        await connection.execute(
            "DROP TABLE IF EXISTS account, applied, pxrs_sink_owner, pxrs_sink_page"
        )
        await connection.execute("CREATE TABLE account (id VARCHAR(40) PRIMARY KEY, total INT)")
        await connection.commit()
        server.has_account = True  # type: ignore[attr-defined]
    return connection


def shared(epoch: int = 1, group: str = "g", **more: Any) -> DeliveryContext:
    return DeliveryContext("q", group, "m", 1, 0, epoch, topology_id="t1", **more)


def message(offset: int, context: DeliveryContext) -> Delivery:
    return Delivery(Message(0, offset, b"k", b"p", 0), context)


def insert(connection: Any) -> str:
    return ROW if isinstance(connection, sqlite3.Connection) else ROW.replace(":id", "%(id)s")


async def rows(connection: Any) -> int:
    """How many there are; nothing is left open."""
    cursor = connection.cursor()
    cursor = await cursor if asyncio.iscoroutine(cursor) else cursor
    for call in (cursor.execute("SELECT COUNT(*) FROM account"),):
        await call if asyncio.iscoroutine(call) else None
    found = cursor.fetchone()
    (count,) = await found if asyncio.iscoroutine(found) else found
    if not isinstance(connection, sqlite3.Connection):
        await connection.rollback()
    return int(count)


def test_results_are_there_once_and_a_stale_owner_changes_nothing(connect: Connect) -> None:
    async def run() -> None:
        connection = await connect()
        group = type(connection).__module__ + type(connection).__name__
        base, first = await rows(connection), message(0, shared(group=group))
        assert not await first.replayed_async(connection)
        for replayed in (False, True):
            async with first.transaction(connection) as cursor:
                assert cursor.replayed is replayed
                if not replayed:
                    await cursor.execute(insert(connection), {"id": f"{group}-0"})
                await cursor.execute("SELECT total FROM account ORDER BY id")
                assert [total async for (total,) in cursor][:1] == [1]
        assert await first.replayed_async(connection)
        with pytest.raises(ZeroDivisionError):
            async with message(1, shared(group=group)).transaction(connection) as cursor:
                await cursor.execute(insert(connection), {"id": f"{group}-1"})
                raise ZeroDivisionError
        assert await rows(connection) == base + 1, "a block that fails wrote nothing"
        async with message(1, shared(epoch=3, group=group)).transaction(connection) as cursor:
            await cursor.executemany(insert(connection), [{"id": f"{group}-1"}])
        with pytest.raises(Fenced):
            async with message(2, shared(epoch=2, group=group)).transaction(connection):
                raise AssertionError("it does not begin")
        with pytest.raises(Fenced):
            await message(2, shared(epoch=2, group=group)).replayed_async(connection)
        assert await rows(connection) == base + 2
        batch = Batch.of([b"k"] * 3, [b"p"] * 3, timestamp_ms=0)
        batch.partition = 0
        those = DeliveredBatch(batch, shared(epoch=3, group=group))
        async with those.transaction(connection) as cursor:
            assert [m.offset for m in those] == [2], "it holds what was not applied"
        assert await those.replayed_async(connection)
        closing = connection.close()
        await closing if asyncio.iscoroutine(closing) else None

    asyncio.run(run())


def test_a_block_that_is_called_off_or_whose_lease_ends_leaves_nothing(connect: Connect) -> None:
    async def run() -> None:
        connection = await connect()
        group = "off" + type(connection).__name__
        base = await rows(connection)

        async def hangs() -> None:
            async with message(0, shared(group=group)).transaction(connection) as cursor:
                await cursor.execute(insert(connection), {"id": group})
                await asyncio.sleep(30)

        task = asyncio.create_task(hangs())
        await asyncio.sleep(0.3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        ours = [True]
        held = shared(group=group, title=Title(lambda: ours[0]))
        with pytest.raises(NotHeld):
            async with message(0, held).transaction(connection) as cursor:
                await cursor.execute(insert(connection), {"id": group})
                ours[0] = False
        assert await rows(connection) == base
        closing = connection.close()
        await closing if asyncio.iscoroutine(closing) else None

    asyncio.run(run())


def test_the_loop_goes_on_while_another_has_the_lock(tmp_path: Path) -> None:
    async def run() -> int:
        path = tmp_path / "db"
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("CREATE TABLE account (id VARCHAR(40) PRIMARY KEY, total INTEGER)")
        mine = sqlite3.connect(path, check_same_thread=False, timeout=10)
        other.execute("BEGIN IMMEDIATE")
        turns = 0

        async def apply() -> None:
            async with message(0, shared()).transaction(mine) as cursor:
                await cursor.execute(ROW, {"id": "a"})

        task = asyncio.create_task(apply())
        for _ in range(20):
            await asyncio.sleep(0.01)
            turns += not task.done()
        other.execute("COMMIT")
        await task
        assert other.execute("SELECT COUNT(*) FROM account").fetchone() == (1,)
        mine.close()
        other.close()
        return turns

    assert asyncio.run(run()) == 20


def test_the_wrong_with_and_a_connection_of_one_thread_are_told(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "db", factory=AsyncSqlite)
    with (
        pytest.raises(UsageError, match="async with"),
        message(0, shared()).transaction(connection),
    ):
        raise AssertionError("it does not begin")
    with pytest.raises(UsageError, match="replayed_async"):
        message(0, shared()).replayed(connection)
    connection.close()

    async def run() -> None:
        mine = sqlite3.connect(tmp_path / "db")
        with pytest.raises(UsageError, match="check_same_thread=False"):
            async with message(0, shared()).transaction(mine):
                raise AssertionError("it does not begin")
        mine.close()

    asyncio.run(run())
