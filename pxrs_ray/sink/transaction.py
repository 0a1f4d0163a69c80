"""`transaction`: the block that writes a message's results exactly once.

Rules of this file. Per (topology, queue, group, partition) one row keeps the highest epoch that has
written; further rows keep exactly which offsets are applied, and no offset counts as applied
because a later one is. Each row names the topology by the id that its registry made once, so
another topology on the same database, or one made anew, never relies on it. The block reads the
rows first (what is applied already is undone at the end, and its errors mean nothing) and again at
the end, locked, to compare and set in the same transaction. The lock is taken last, so an owner
that freezes in the middle of a block holds up others no longer than its own rows do. An owner that
is not sure to hold its partition any more neither begins nor commits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pxrs_ray.errors import Fenced, NotHeld, SinkConflict, UsageError
from pxrs_ray.model import Epoch, Offset, PartitionId
from pxrs_ray.sink.applied import TEXT_CHARS_MAX, Applied, Run, page_of, page_text, runs_text
from pxrs_ray.sink.dialects import SinkDialect, dialect_of

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


@dataclass(slots=True)
class _Known:
    epoch: Epoch
    applied: Applied
    is_new: bool


def create_table(connection: Any) -> None:
    """Make the sink's two tables unless they are there. Blocks do it themselves where they may."""
    dialect = dialect_of(connection)
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
        cursor = connection.cursor()
        try:
            cursor.execute(
                f"{dialect.create} {name} ({key}, {columns}, PRIMARY KEY ({_KEY}{more}))"
            )
        except Exception as error:
            if not dialect.says_exists(error):
                raise
        finally:
            cursor.close()
    if dialect.is_busy(connection):
        dialect.commit(connection)


@contextmanager
def transaction(
    connection: Any,
    place: SinkPlace,
    first: Offset,
    end: Offset,
    narrow: Callable[[Sequence[Run]], None] | None = None,
    holds: Callable[[], bool] | None = None,
) -> Iterator[SinkCursor]:
    """Apply the messages `first` up to, not including, `end` exactly once.

    Where some of them are applied, `narrow` gets those that are not, before the block runs.
    `holds` says whether they are ours to apply: it is asked first, and right before the commit.
    Raises NotHeld when it says no, Fenced when a higher epoch has written, SinkConflict when
    somebody else applied them meanwhile, UsageError when the connection is in a transaction
    already; whatever the block raises passes through. In all of these cases nothing was written.
    """
    dialect = dialect_of(connection)
    _check_free(connection, dialect)
    _check_held(holds, place)
    known = _begin(connection, dialect, place, first, end)
    if known.epoch > place.epoch:
        dialect.rollback(connection)
        raise _stale(known, place)
    missing = known.applied.missing(first, end)
    if narrow is not None:
        narrow(missing)
    cursor = connection.cursor()
    try:
        yield SinkCursor(cursor, replayed=not missing)
        if missing:
            _apply(cursor, dialect, place, first, end, missing)
            _check_held(holds, place)
            dialect.commit(connection)
    except Exception:
        # What a block does in vain may also fail in vain: its rows are there already.
        if missing:
            raise
    finally:
        cursor.close()
        dialect.rollback(connection)


def is_applied(connection: Any, place: SinkPlace, first: Offset, end: Offset) -> bool:
    """Whether the messages `first` up to, not including, `end` are all applied in this database.

    Changes nothing. Raises Fenced when a higher epoch has written, UsageError when the connection
    is in a transaction already.
    """
    dialect = dialect_of(connection)
    _check_free(connection, dialect)
    try:
        known = _begin(connection, dialect, place, first, end)
        if known.epoch > place.epoch:
            raise _stale(known, place)
        return not known.applied.missing(first, end)
    finally:
        dialect.rollback(connection)


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
) -> _Known:
    """Begin, and read the rows; the first time in a database, make the tables."""
    try:
        return _begin_once(connection, dialect, place, first, end)
    except Exception as missing:  # noqa: BLE001 - each driver has errors of its own
        dialect.rollback(connection)
        try:
            create_table(connection)
        except Exception:  # noqa: BLE001 - somebody else made it, or the first error tells more
            dialect.rollback(connection)
        try:
            return _begin_once(connection, dialect, place, first, end)
        except Exception:  # noqa: BLE001
            dialect.rollback(connection)
            raise missing from None


def _begin_once(
    connection: Any, dialect: SinkDialect, place: SinkPlace, first: Offset, end: Offset
) -> _Known:
    dialect.begin(connection)
    cursor = connection.cursor()
    try:
        return _read(cursor, dialect, place, first, end, "")
    finally:
        cursor.close()


def _read(
    cursor: Any, dialect: SinkDialect, place: SinkPlace, first: Offset, end: Offset, locking: str
) -> _Known:
    """The owner's row first: who holds its lock is alone with the pages that are read next."""
    cursor.execute(dialect.sql(_OWNER + locking), place.binds())
    found = cursor.fetchone()
    epoch, full_pages = found if found is not None else (0, _NOTHING)
    pages = {"low": page_of(first), "high": page_of(max(first, end - 1))}
    cursor.execute(dialect.sql(_PAGES), {**place.binds(), **pages})
    full = "" if full_pages == _NOTHING else str(full_pages)
    applied = Applied.read(((int(page), str(text)) for page, text in cursor.fetchall()), full)
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
) -> None:
    """Compare and set, with the owner's row locked from here to the commit."""
    known = _read(cursor, dialect, place, first, end, dialect.locking)
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
            cursor.execute(dialect.sql(_OWNER_INSERT if known.is_new else _OWNER_UPDATE), binds)
        for page in sorted(changed):
            _write_page(cursor, dialect, place, applied, page)
    except Exception as error:
        if not known.is_new:
            raise
        raise SinkConflict(
            f"the first row of {place.queue} was not ours to make: {error}"
        ) from error


def _write_page(
    cursor: Any, dialect: SinkDialect, place: SinkPlace, applied: Applied, page: int
) -> None:
    binds = {**place.binds(), "page": page}
    if page in applied.pages:
        statement = _PAGE_UPDATE if page in applied.stored else _PAGE_INSERT
        binds["done"] = page_text(applied.pages[page])
    elif page in applied.stored:
        statement = _PAGE_DELETE
    else:
        return
    cursor.execute(dialect.sql(statement), binds)
