"""Makes the steps of a sink on a thread, or awaits them; and the cursors that a block is given.

Rules of this file. A step is one call to the driver. With a connection of an async driver it is
awaited. With another one an `async with` makes it on a thread of its own, so that the event loop
goes on while the database waits for a lock.
"""

from __future__ import annotations

import inspect
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, TypeVar

from pxrs_ray.errors import UsageError
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.steps import Do, Steps, carry, carry_now, do
from pxrs_ray.supervision.supervisor import off_loop

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CallDriver(Do[Any]):
    """Call the driver."""

    call: Callable[..., Any]
    arguments: tuple[Any, ...]


def ask(call: Callable[..., Any], *arguments: Any) -> Steps[Any]:
    """Have the driver called; what it answers."""
    return do(CallDriver(call, arguments))


def is_async(connection: Any) -> bool:
    """Whether it is one of an async driver."""
    return inspect.iscoroutinefunction(connection.commit)


def drive(connection: Any, steps: Steps[T]) -> T:
    """Make the steps here. Raises UsageError for a connection whose calls are awaited."""
    if is_async(connection):
        steps.close()
        raise UsageError(
            f"{connection!r:.80} is of an async driver: write `async with message.transaction(...)`"
            ", and `await message.replayed_async(...)`"
        )
    return carry_now(steps, lambda what: what.call(*what.arguments))  # type: ignore[attr-defined]


async def drive_async(connection: Any, steps: Steps[T]) -> T:
    """Await each of the steps."""

    async def make(what: Do[Any]) -> Any:
        assert isinstance(what, CallDriver)
        return await _called(connection, what.call, *what.arguments)

    return await carry(steps, make)


async def _called(connection: Any, call: Callable[..., Any], *arguments: Any) -> Any:
    if is_async(connection):
        answer = call(*arguments)
        return await answer if inspect.isawaitable(answer) else answer
    try:
        return await off_loop(call, *arguments)
    except sqlite3.ProgrammingError as error:
        if "same thread" not in str(error):
            raise
        raise UsageError(
            "the connection is used from several threads by `async with`: make it with "
            "sqlite3.connect(..., check_same_thread=False)"
        ) from error


class SinkCursor:
    """The driver's own cursor, inside the block.

    `replayed` says that everything in the block is applied already: whatever it does is undone, so
    it may as well leave at once.
    """

    def __init__(self, cursor: Any, *, replayed: bool) -> None:
        self._cursor = cursor
        self.replayed = replayed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._cursor)


class AsyncSinkCursor:
    """As `SinkCursor`, in an `async with`: its calls are awaited, whatever the driver is."""

    def __init__(self, connection: Any, cursor: Any, *, replayed: bool) -> None:
        self._connection, self._cursor = connection, cursor
        self.replayed = replayed

    async def execute(self, statement: str, *binds: Any) -> None:
        """Execute one statement, with its binds."""
        await _called(self._connection, self._cursor.execute, statement, *binds)

    async def executemany(self, statement: str, binds: Any) -> None:
        """Execute it with each of the binds."""
        await _called(self._connection, self._cursor.executemany, statement, binds)

    async def fetchone(self) -> Any:
        """The next row; None: there is none."""
        return await _called(self._connection, self._cursor.fetchone)

    async def fetchall(self) -> list[Any]:
        """All rows that are left."""
        return list(await _called(self._connection, self._cursor.fetchall))

    async def __aiter__(self) -> AsyncIterator[Any]:
        for row in await self.fetchall():
            yield row

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)
