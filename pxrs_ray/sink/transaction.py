"""`transaction`: the block that writes a message's results exactly once.

Rules of this file. Per (topology, queue, group, partition) one row keeps the highest epoch that has
written; further rows keep exactly which offsets are applied, and no offset counts as applied
because a later one is. Each row names the topology by the id that its registry made once, so
another topology on the same database, or one made anew, never relies on it. The block reads the
rows first (what is applied already is undone at the end, and its errors mean nothing) and again at
the end, locked, to compare and set in the same transaction. The lock is taken last, so an owner
that freezes in the middle of a block holds up others no longer than its own rows do. An owner that
is not sure to hold its partition any more neither begins nor commits. What is asked of the
database is written as steps: `with` makes them where it stands, `async with` awaits each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from pxrs_ray.errors import Fenced, NotHeld, SinkConflict, UsageError
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Epoch, Offset, PartitionId
from pxrs_ray.sink.applied import TEXT_CHARS_MAX, Applied, Run, page_of, page_text, runs_text
from pxrs_ray.sink.dialects import SinkDialect, dialect_of
from pxrs_ray.sink.driving import AsyncSinkCursor, SinkCursor, ask, drive, drive_async
from pxrs_ray.steps import Steps

OWNERS = "pxrs_sink_owner"
PAGES = "pxrs_sink_page"
# Oracle takes an empty text for no text at all.
_NOTHING = "-"

_KEY = "topology_id, queue_name, group_name, partition_id"
_KEY_BINDS = ":topology, :queue, :grp, :part"
_WHERE = (
    "WHERE topology_id = :topology AND queue_name = :queue AND group_name = :grp "
    "AND partition_id = :part"
)
_OWNER = f"SELECT epoch, full_pages FROM {OWNERS} {_WHERE}"
_OWNER_INSERT = (
    f"INSERT INTO {OWNERS} ({_KEY}, epoch, full_pages) VALUES ({_KEY_BINDS}, :epoch, :full_pages)"
)
_OWNER_UPDATE = f"UPDATE {OWNERS} SET epoch = :epoch, full_pages = :full_pages {_WHERE}"
_PAGES = f"SELECT page, done FROM {PAGES} {_WHERE} AND page >= :low AND page <= :high"
_PAGE_INSERT = f"INSERT INTO {PAGES} ({_KEY}, page, done) VALUES ({_KEY_BINDS}, :page, :done)"
_PAGE_UPDATE = f"UPDATE {PAGES} SET done = :done {_WHERE} AND page = :page"
_PAGE_DELETE = f"DELETE FROM {PAGES} {_WHERE} AND page = :page"


@dataclass(frozen=True, slots=True)
class SinkPlace:
    """Whose block it is. `topology_id` is the one that the topology's registry made once."""

    topology_id: str
    queue: str
    group: str
    partition: PartitionId
    epoch: Epoch

    def binds(self) -> dict[str, object]:
        """What finds the rows."""
        return {
            "topology": self.topology_id,
            "queue": self.queue,
            "grp": self.group,
            "part": self.partition,
        }


@dataclass(slots=True)
class _Known:
    epoch: Epoch
    applied: Applied
    is_new: bool


def create_table(connection: Any) -> None:
    """Make the sink's two tables unless they are there. Blocks do it themselves where they may."""
    drive(connection, _create(connection, dialect_of(connection)))


def _create(connection: Any, dialect: SinkDialect) -> Steps[None]:
    n, t = dialect.integer, dialect.text
    key = (
        f"topology_id {t}(64) NOT NULL, queue_name {t}(300) NOT NULL, "
        f"group_name {t}(200) NOT NULL, partition_id {n} NOT NULL"
    )
    text = f"{t}({TEXT_CHARS_MAX}) NOT NULL"
    for name, columns, more in (
        (OWNERS, f"epoch {n} NOT NULL, full_pages {text}", ""),
        (PAGES, f"page {n} NOT NULL, done {text}", ", page"),
    ):
        cursor = yield from ask(connection.cursor)
        statement = f"{dialect.create} {name} ({key}, {columns}, PRIMARY KEY ({_KEY}{more}))"
        try:
            yield from ask(cursor.execute, statement)
        except Exception as error:
            yield from ask(cursor.close)
            if not dialect.says_exists(error):
                raise
        else:
            yield from ask(cursor.close)
    if dialect.is_busy(connection):
        yield from ask(dialect.commit, connection)


class SinkTransaction:
    """A block that applies the messages `first` up to, not including, `end` exactly once.

    As `with`, or with a connection of an async driver (also one of sqlite3 that any thread may
    use) as `async with`; then all of the cursor's calls are awaited. It is entered once.
    """

    def __init__(
        self,
        connection: Any,
        place: SinkPlace,
        first: Offset,
        end: Offset,
        narrow: Callable[[Sequence[Run]], None] | None = None,
        holds: Callable[[], bool] | None = None,
    ) -> None:
        self._connection, self._dialect = connection, dialect_of(connection)
        self._place, self._first, self._end = place, first, end
        self._narrow, self._holds = narrow, holds
        self._missing: list[Run] = []
        self._cursor: Any = None

    def __enter__(self) -> SinkCursor:
        drive(self._connection, self._begun())
        return SinkCursor(self._cursor, replayed=not self._missing)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        return drive(self._connection, self._ended(error))

    async def __aenter__(self) -> AsyncSinkCursor:
        await drive_async(self._connection, self._begun())
        return AsyncSinkCursor(self._connection, self._cursor, replayed=not self._missing)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        return await drive_async(self._connection, self._ended(error))

    def _begun(self) -> Steps[None]:
        """Read what is applied; the transaction is open behind this."""
        connection, dialect, place = self._connection, self._dialect, self._place
        _check_free(connection, dialect)
        _check_held(self._holds, place)
        known = yield from _begin(connection, dialect, place, self._first, self._end)
        try:
            if known.epoch > place.epoch:
                raise _stale(known, place)
            self._missing = known.applied.missing(self._first, self._end)
            if self._narrow is not None:
                self._narrow(self._missing)
            self._cursor = yield from ask(connection.cursor)
        except BaseException:
            yield from ask(dialect.rollback, connection)
            raise

    def _ended(self, error: BaseException | None) -> Steps[bool]:
        """Commit what was missing; answers whether the block's own error means nothing."""
        try:
            if error is None and self._missing:
                yield from self._applied()
        except BaseException:
            yield from self._undone()
            raise
        yield from self._undone()
        # What a block does in vain may also fail in vain: its rows are there already.
        return isinstance(error, Exception) and not self._missing

    def _applied(self) -> Steps[None]:
        dialect, place, missing = self._dialect, self._place, self._missing
        yield from _apply(self._cursor, dialect, place, self._first, self._end, missing)
        _check_held(self._holds, place)
        yield from ask(dialect.commit, self._connection)

    def _undone(self) -> Steps[None]:
        """Whatever was not committed."""
        try:
            yield from ask(self._cursor.close)
        except BaseException:
            yield from ask(self._dialect.rollback, self._connection)
            raise
        yield from ask(self._dialect.rollback, self._connection)


def transaction(
    connection: Any,
    place: SinkPlace,
    first: Offset,
    end: Offset,
    narrow: Callable[[Sequence[Run]], None] | None = None,
    holds: Callable[[], bool] | None = None,
) -> SinkTransaction:
    """Apply the messages `first` up to, not including, `end` exactly once.

    Where some of them are applied, `narrow` gets those that are not, before the block runs.
    `holds` says whether they are ours to apply: it is asked first, and right before the commit.
    Raises NotHeld when it says no, Fenced when a higher epoch has written, SinkConflict when
    somebody else applied them meanwhile, UsageError when the connection is in a transaction
    already; whatever the block raises passes through. In all of these cases nothing was written.
    """
    return SinkTransaction(connection, place, first, end, narrow, holds)


def is_applied(connection: Any, place: SinkPlace, first: Offset, end: Offset) -> bool:
    """Whether the messages `first` up to, not including, `end` are all applied in this database.

    Changes nothing. Raises Fenced when a higher epoch has written, UsageError when the connection
    is in a transaction already.
    """
    return drive(connection, _is_applied(connection, place, first, end))


async def is_applied_async(connection: Any, place: SinkPlace, first: Offset, end: Offset) -> bool:
    """As `is_applied`, with a connection that `async with` takes."""
    return await drive_async(connection, _is_applied(connection, place, first, end))


def _is_applied(connection: Any, place: SinkPlace, first: Offset, end: Offset) -> Steps[bool]:
    dialect = dialect_of(connection)
    _check_free(connection, dialect)
    known = yield from _begin(connection, dialect, place, first, end)
    yield from ask(dialect.rollback, connection)
    if known.epoch > place.epoch:
        raise _stale(known, place)
    return not known.applied.missing(first, end)


def _check_free(connection: Any, dialect: SinkDialect) -> None:
    if dialect.is_busy(connection):
        raise UsageError(
            "the connection has a transaction open: commit it before the block, or give the block "
            "a connection of its own (in sqlite3, not one with autocommit=False)"
        )


def _check_held(holds: Callable[[], bool] | None, place: SinkPlace) -> None:
    if holds is not None and not holds():
        raise NotHeld(
            f"partition {place.partition} of {place.queue} for group {place.group}: epoch "
            f"{place.epoch} is not surely ours any more, for our lease is over: nothing was written"
        )


def _begin(
    connection: Any, dialect: SinkDialect, place: SinkPlace, first: Offset, end: Offset
) -> Steps[_Known]:
    """Begin, and read the rows; the first time in a database, make the tables.

    What ends this leaves no transaction open.
    """
    try:
        return (yield from _begin_once(connection, dialect, place, first, end))
    except BaseException as missing:
        yield from ask(dialect.rollback, connection)
        if not isinstance(missing, Exception):
            raise
        try:
            yield from _create(connection, dialect)
        except Exception:  # noqa: BLE001 - somebody else made it, or the first error tells more
            yield from ask(dialect.rollback, connection)
        try:
            return (yield from _begin_once(connection, dialect, place, first, end))
        except BaseException as again:
            yield from ask(dialect.rollback, connection)
            if not isinstance(again, Exception):
                raise
            raise missing from None


def _begin_once(
    connection: Any, dialect: SinkDialect, place: SinkPlace, first: Offset, end: Offset
) -> Steps[_Known]:
    yield from ask(dialect.begin, connection)
    cursor = yield from ask(connection.cursor)
    try:
        known = yield from _read(cursor, dialect, place, first, end, "")
    except BaseException:
        yield from ask(cursor.close)
        raise
    yield from ask(cursor.close)
    return known


def _read(
    cursor: Any, dialect: SinkDialect, place: SinkPlace, first: Offset, end: Offset, locking: str
) -> Steps[_Known]:
    """The owner's row first: who holds its lock is alone with the pages that are read next."""
    yield from ask(cursor.execute, dialect.sql(_OWNER + locking), place.binds())
    found = yield from ask(cursor.fetchone)
    epoch, full_pages = found if found is not None else (0, _NOTHING)
    pages = {"low": page_of(first), "high": page_of(max(first, end - 1))}
    yield from ask(cursor.execute, dialect.sql(_PAGES), {**place.binds(), **pages})
    rows = yield from ask(cursor.fetchall)
    full = "" if full_pages == _NOTHING else str(full_pages)
    applied = Applied.read(((int(page), str(text)) for page, text in rows), full)
    return _Known(int(epoch), applied, found is None)


def _stale(known: _Known, place: SinkPlace) -> Fenced:
    return Fenced(
        f"partition {place.partition} of {place.queue} for group {place.group}: epoch "
        f"{known.epoch} has written to this database, ours is {place.epoch}: drop the partition"
    )


def _apply(
    cursor: Any,
    dialect: SinkDialect,
    place: SinkPlace,
    first: Offset,
    end: Offset,
    missing: Sequence[Run],
) -> Steps[None]:
    """Compare and set, with the owner's row locked from here to the commit."""
    known = yield from _read(cursor, dialect, place, first, end, dialect.locking)
    applied = known.applied
    if known.epoch > place.epoch:
        raise _stale(known, place)
    if applied.missing(first, end) != missing:
        raise SinkConflict(
            f"partition {place.partition} of {place.queue}: of the offsets {first} to {end - 1} "
            "some were applied by somebody else in this moment"
        )
    changed = {page for start, stop in missing for page in applied.add(start, stop)}
    folded = applied.fold()
    try:
        if known.is_new or folded or known.epoch != place.epoch:
            full_pages = runs_text(applied.full_pages) or _NOTHING
            binds = {**place.binds(), "epoch": place.epoch, "full_pages": full_pages}
            statement = _OWNER_INSERT if known.is_new else _OWNER_UPDATE
            yield from ask(cursor.execute, dialect.sql(statement), binds)
        for page in sorted(changed):
            yield from _write_page(cursor, dialect, place, applied, page)
    except Exception as error:
        if not known.is_new:
            raise
        raise SinkConflict(
            f"the first row of {place.queue} was not ours to make: {error}"
        ) from error


def _write_page(
    cursor: Any, dialect: SinkDialect, place: SinkPlace, applied: Applied, page: int
) -> Steps[None]:
    binds = {**place.binds(), "page": page}
    if page in applied.pages:
        statement = _PAGE_UPDATE if page in applied.stored else _PAGE_INSERT
        binds["done"] = page_text(applied.pages[page])
    elif page in applied.stored:
        statement = _PAGE_DELETE
    else:
        return
    yield from ask(cursor.execute, dialect.sql(statement), binds)
