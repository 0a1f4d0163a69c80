"""What the fenced sink says differently to SQLite, PostgreSQL and Oracle.

Rules of this file. The connection is the user's. It must be between transactions when a block
begins, and is between transactions when it has ended; none of its settings is changed. What begins
and ends a transaction answers what the driver answers: of an async driver, something to await.
"""

from __future__ import annotations

from typing import Any

from pxrs_ray.errors import UsageError
from pxrs_ray.store.sql.dialect import pyformat


class SinkDialect:
    """What databases have in common."""

    integer = "BIGINT"
    text = "VARCHAR"
    create = "CREATE TABLE IF NOT EXISTS"
    locking = " FOR UPDATE"

    def is_busy(self, connection: Any) -> bool:
        """Whether a transaction is open already."""
        raise NotImplementedError

    def begin(self, connection: Any) -> Any:
        """Begin a transaction, where that is not done by the first statement."""

    def commit(self, connection: Any) -> Any:
        """Make everything since `begin` durable."""
        return connection.commit()

    def rollback(self, connection: Any) -> Any:
        """Undo everything since `begin`; harmless when there is nothing."""
        return connection.rollback()

    def sql(self, statement: str) -> str:
        """The statement as the driver reads it; binds are written `:name`."""
        return statement

    def says_exists(self, error: Exception) -> bool:
        """Whether `create` failed because the table is there."""
        return False


class SqliteSink(SinkDialect):
    """sqlite3, and aiosqlite. One writer at a time: the whole block holds the file's write lock."""

    locking = ""

    def is_busy(self, connection: Any) -> bool:
        """Also with `autocommit=False`, where the driver always has one open."""
        return bool(connection.in_transaction)

    def begin(self, connection: Any) -> Any:
        """Take the write lock now: a block that reads first could not take it later."""
        return connection.execute("BEGIN IMMEDIATE")

    def commit(self, connection: Any) -> Any:
        """By statement, which means the same in every mode of the driver."""
        return connection.execute("COMMIT")

    def rollback(self, connection: Any) -> Any:
        """By statement, where there is a transaction."""
        return connection.execute("ROLLBACK") if connection.in_transaction else None


class PostgresSink(SinkDialect):
    """psycopg. The guard's row is locked only at the end of the block, for as short as can be."""

    def is_busy(self, connection: Any) -> bool:
        """By the protocol's own account."""
        return int(connection.info.transaction_status) != 0

    def begin(self, connection: Any) -> Any:
        """Only in autocommit mode does the driver not do it."""
        return connection.execute("BEGIN") if connection.autocommit else None

    def sql(self, statement: str) -> str:
        """With `%(name)s` binds."""
        return pyformat(statement)


class OracleSink(SinkDialect):
    """oracledb. The guard's row is locked only at the end of the block."""

    integer = "NUMBER(19)"
    text = "VARCHAR2"
    create = "CREATE TABLE"

    def is_busy(self, connection: Any) -> bool:
        """By the driver's own account."""
        if connection.autocommit:
            raise UsageError("the sink needs a connection with autocommit off")
        return bool(getattr(connection, "transaction_in_progress", False))

    def says_exists(self, error: Exception) -> bool:
        """ORA-00955: a name is used by an existing object."""
        return "ORA-00955" in str(error)


_DIALECTS = {
    "sqlite3": SqliteSink,
    "aiosqlite": SqliteSink,
    "psycopg": PostgresSink,
    "oracledb": OracleSink,
}


def dialect_of(connection: Any) -> SinkDialect:
    """The dialect of a DB-API connection, by the module of its driver. Raises UsageError."""
    for kind in type(connection).__mro__:
        driver = kind.__module__.partition(".")[0]
        if driver in _DIALECTS:
            return _DIALECTS[driver]()
    raise UsageError(
        f"the sink works with connections of sqlite3, psycopg and oracledb, and {connection!r} is "
        "none of them (of a pool or an ORM, hand over the driver's own connection)"
    )
