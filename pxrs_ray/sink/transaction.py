"""`transaction`: the block that writes a message's results exactly once.

Rules of this file. Per (queue, group, partition) one row keeps the highest epoch that has written,
and which offsets are applied: all below `next_offset`, and those in `done`. The block reads it
first (what is applied already is undone at the end, and its errors mean nothing) and again at the
end, locked, to compare and set in the same transaction. The lock is taken last, so that an owner
that freezes in the middle of a block holds up nobody longer than its own rows do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pxrs_ray.errors import Fenced, SinkConflict, UsageError
from pxrs_ray.model import Epoch, Offset, PartitionId
from pxrs_ray.processing.gaps import GapMap
from pxrs_ray.sink.dialects import SinkDialect, dialect_of

TABLE = "pxrs_sink"
DONE_CHARS_MAX = 4_000
# Oracle takes an empty text for no text at all.
_NOTHING = "-"

_WHERE = "WHERE queue_name = :queue AND group_name = :grp AND partition_id = :part"
_SELECT = f"SELECT epoch, next_offset, done FROM {TABLE} {_WHERE}"
_UPDATE = f"UPDATE {TABLE} SET epoch = :epoch, next_offset = :low, done = :done {_WHERE}"
_INSERT = (
    f"INSERT INTO {TABLE} (queue_name, group_name, partition_id, epoch, next_offset, done) "
    "VALUES (:queue, :grp, :part, :epoch, :low, :done)"
)


@dataclass(frozen=True, slots=True)
class SinkPlace:
    """Whose block it is. Everything below `floor` is over: it never comes again."""

    queue: str
    group: str
    partition: PartitionId
    epoch: Epoch
    floor: Offset

    def binds(self) -> dict[str, object]:
        """What finds the row."""
        return {"queue": self.queue, "grp": self.group, "part": self.partition}


class SinkCursor:
    """The driver's own cursor, inside the block.

    `replayed` says that everything the block is about is applied already: whatever it does is
    undone, so it may as well leave at once.
    """

    def __init__(self, cursor: Any, *, replayed: bool) -> None:
        self._cursor = cursor
        self.replayed = replayed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._cursor)


@dataclass(slots=True)
class _Row:
    epoch: Epoch
    gaps: GapMap
    is_new: bool


def create_table(connection: Any) -> None:
    """Make the sink's table unless it is there. Blocks do it themselves where they may."""
    dialect = dialect_of(connection)
    n, t = dialect.integer, dialect.text
    cursor = connection.cursor()
    cursor.execute(
        f"{dialect.create} {TABLE} (queue_name {t}(300) NOT NULL, group_name {t}(200) NOT NULL, "
        f"partition_id {n} NOT NULL, epoch {n} NOT NULL, next_offset {n} NOT NULL, "
        f"done {t}({DONE_CHARS_MAX}) NOT NULL, PRIMARY KEY (queue_name, group_name, partition_id))"
    )
    cursor.close()
    if dialect.is_busy(connection):
        dialect.commit(connection)


@contextmanager
def transaction(
    connection: Any,
    place: SinkPlace,
    first: Offset,
    end: Offset,
    narrow: Callable[[Offset], None] | None = None,
) -> Iterator[SinkCursor]:
    """Apply the messages `first` up to, not including, `end` exactly once.

    Where only the first of them are applied, `narrow` is told where the rest begins, before the
    block runs. Raises Fenced when a higher epoch has written, SinkConflict when somebody else
    applied them meanwhile, UsageError when the connection is in a transaction already; whatever
    the block raises passes through. In all of these cases nothing was written.
    """
    dialect = dialect_of(connection)
    if dialect.is_busy(connection):
        raise UsageError(
            "the connection has a transaction open: commit it before the block, or give the block "
            "a connection of its own (in sqlite3, not one with autocommit=False)"
        )
    row = _begin(connection, dialect, place)
    if row.epoch > place.epoch:
        dialect.rollback(connection)
        raise _stale(row, place)
    start = first
    while start < end and start in row.gaps:
        start += 1
    replayed = start == end
    if narrow is not None:
        narrow(start)
    cursor = connection.cursor()
    try:
        yield SinkCursor(cursor, replayed=replayed)
        if not replayed:
            _apply(cursor, dialect, place, start, end)
            dialect.commit(connection)
    except Exception:
        # What a block does in vain may also fail in vain: its rows are there already.
        if not replayed:
            raise
    finally:
        cursor.close()
        dialect.rollback(connection)


def _begin(connection: Any, dialect: SinkDialect, place: SinkPlace) -> _Row:
    """Begin, and read the row; the first time in a database, make the table."""
    try:
        return _begin_once(connection, dialect, place)
    except Exception as missing:  # noqa: BLE001 - each driver has errors of its own
        dialect.rollback(connection)
        try:
            create_table(connection)
        except Exception:  # noqa: BLE001 - somebody else made it, or the first error tells more
            dialect.rollback(connection)
        try:
            return _begin_once(connection, dialect, place)
        except Exception:  # noqa: BLE001
            dialect.rollback(connection)
            raise missing from None


def _begin_once(connection: Any, dialect: SinkDialect, place: SinkPlace) -> _Row:
    dialect.begin(connection)
    cursor = connection.cursor()
    try:
        return _read(cursor, dialect, place, "")
    finally:
        cursor.close()


def _read(cursor: Any, dialect: SinkDialect, place: SinkPlace, locking: str) -> _Row:
    cursor.execute(dialect.sql(_SELECT + locking), place.binds())
    found = cursor.fetchone()
    if found is None:
        return _Row(0, GapMap(place.floor), True)
    epoch, low, done = found
    gaps, _ = GapMap.decode(int(low), "" if done == _NOTHING else str(done))
    gaps.raise_to(place.floor)
    return _Row(int(epoch), gaps, False)


def _stale(row: _Row, place: SinkPlace) -> Fenced:
    return Fenced(
        f"partition {place.partition} of {place.queue} for group {place.group}: epoch {row.epoch} "
        f"has written to this database, ours is {place.epoch}: drop the partition"
    )


def _apply(cursor: Any, dialect: SinkDialect, place: SinkPlace, first: Offset, end: Offset) -> None:
    """Compare and set, with the row locked from here to the commit."""
    row = _read(cursor, dialect, place, dialect.locking)
    if row.epoch > place.epoch:
        raise _stale(row, place)
    if any(offset in row.gaps for offset in range(first, end)):
        raise SinkConflict(
            f"partition {place.partition} of {place.queue}: offsets {first} to {end - 1} were "
            "applied by somebody else in this moment"
        )
    row.gaps.add(first, end)
    done = row.gaps.encode() or _NOTHING
    if len(done) > DONE_CHARS_MAX:
        raise SinkConflict(
            f"partition {place.partition} of {place.queue}: what is applied is in too many pieces; "
            "it fits again when lower offsets are done"
        )
    binds = {**place.binds(), "epoch": place.epoch, "low": row.gaps.low, "done": done}
    try:
        cursor.execute(dialect.sql(_INSERT if row.is_new else _UPDATE), binds)
    except Exception as error:
        if not row.is_new:
            raise
        raise SinkConflict(
            f"the first row of {place.queue} was not ours to make: {error}"
        ) from error
