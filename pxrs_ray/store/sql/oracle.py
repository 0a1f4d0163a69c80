"""Oracle Database through python-oracledb in thin mode.

Rules of this file. Statements are what 12.1 and later take: MERGE for inserts that ignore, no
IF NOT EXISTS, '' never compared because it is NULL. A batch is array DML with a count a row; it
asks for batch errors too and has a text of its own, because the driver repeats an array
statement by a message that cannot ask for the counts. A call's timeout is half of what is left
of the deadline: against a server that hears no break the driver waits twice. The driver's pool
pings and replaces connections that the server has dropped.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import oracledb

from pxrs_ray.errors import ConfigError
from pxrs_ray.store.deadline import Deadline, Persistence
from pxrs_ray.store.registry import StoreInfo
from pxrs_ray.store.sql.dialect import Cursor, Dialect, RowUpdate, Values
from pxrs_ray.store.sql.schema import NAME_CHARS
from pxrs_ray.store.sql.sql_store import Database, Scope
from pxrs_ray.store.url import StoreUrl

CONNECTIONS_MAX = 4
_TRUE_OPTIONS = ("disable_oob", "ssl_server_dn_match")
_TEXT_OPTIONS = ("config_dir", "wallet_location", "wallet_password", "server_type", "cclass")
_NUMBER_OPTIONS = ("expire_time", "retry_count", "retry_delay")
_TABLE_MISSING = "ORA-00942"
_THERE_ALREADY = ("ORA-00955", "ORA-01430")
# What passes by itself beside what the driver calls recoverable: pool or call timeouts and dead
# connections, deadlock, lock and racing MERGE, a starting or stopping or full database.
_PASSING = frozenset(
    {
        *("DPY-1001", "DPY-4005", "DPY-4011", "DPY-4024"),
        *("ORA-00001", "ORA-00054", "ORA-00060", "ORA-08177"),
        *("ORA-00018", "ORA-00020", "ORA-00028", "ORA-02396", "ORA-03113", "ORA-03114"),
        *("ORA-01033", "ORA-01034", "ORA-01089", "ORA-01090"),
        *("ORA-01652", "ORA-01653", "ORA-01654", "ORA-30036"),
        *("ORA-12514", "ORA-12516", "ORA-12520", "ORA-12528", "ORA-12541"),
    }
)


class _AllInUse(oracledb.OperationalError):
    """Raised when no connection became free in time."""


class OracleDialect(Dialect):
    """Oracle's dialect."""

    name = "oracle"
    integer = "NUMBER(19)"
    timestamp = "TIMESTAMP(6) WITH TIME ZONE"
    now = "SYSTIMESTAMP"
    document_chars = 1_000
    """A VARCHAR2 has 4,000 bytes, and a character up to 4."""

    def later(self, seconds: str) -> str:
        """Add an interval."""
        return f"(SYSTIMESTAMP + CAST({seconds} AS NUMBER) * INTERVAL '1' SECOND)"

    def text(self, chars: int) -> str:
        """Characters, not bytes; twice as many, for some character sets count rare ones twice."""
        return f"VARCHAR2({2 * chars} CHAR)"

    def create_table(self, table: str, body: str) -> str:
        """IF NOT EXISTS came with 23ai."""
        return f"CREATE TABLE {table} ({body})"

    def insert_new(self, table: str, columns: Mapping[str, str], keys: Sequence[str]) -> str:
        """MERGE without an update."""
        types = {"version": self.integer}
        casts = (
            f"CAST({columns[key]} AS {types.get(key, self.text(NAME_CHARS))}) AS {key}"
            for key in keys
        )
        same = " AND ".join(f"old.{key} = new.{key}" for key in keys)
        values = (f"new.{name}" if name in keys else bind for name, bind in columns.items())
        return (
            f"MERGE INTO {table} old USING (SELECT {', '.join(casts)} FROM DUAL) new ON ({same}) "
            f"WHEN NOT MATCHED THEN INSERT ({', '.join(columns)}) VALUES ({', '.join(values)})"
        )

    def update_each(
        self, cursor: Any, update: RowUpdate, shared: Values, rows: Sequence[Values]
    ) -> list[bool]:
        """Array DML with a row count for each."""
        values = [{**shared, **row} for row in rows]
        if len(values) == 1:
            cursor.execute(update.sql, values[0])
            return [cursor.rowcount == 1]
        sql = f"{update.sql} /* batch */"
        cursor.executemany(sql, values, batcherrors=True, arraydmlrowcounts=True)
        for error in cursor.getbatcherrors():
            raise oracledb.DatabaseError(error)
        return [count == 1 for count in cursor.getarraydmlrowcounts()]


class OracleDatabase(Database):
    """The driver's pool of a few connections."""

    dialect = OracleDialect()

    def __init__(self, url: StoreUrl, deadline_ms: int) -> None:
        self._url = url
        self._options = _connect_options(url, deadline_ms)
        self._lock = threading.Lock()
        self._pool: Any = None
        # The pool's own waiting knows one limit for all calls, and not what is left of each.
        self._permits = threading.BoundedSemaphore(CONNECTIONS_MAX)
        wallet_password = url.options.get("wallet_password")
        self.persistence = Persistence(
            where=url.shown,
            deadline_ms=deadline_ms,
            driver_errors=(oracledb.Error,),
            is_passing=_is_passing,
            scrub=lambda text: url.scrub(
                text.replace(wallet_password, "***") if wallet_password else text
            ),
            worded=self.worded,
        )

    @contextmanager
    def transaction(self, deadline: Deadline, scope: Scope) -> Iterator[Cursor]:
        """A single statement carries its commit, which saves a round trip."""
        if not self._permits.acquire(timeout=deadline.left_s):
            raise _AllInUse(f"all {CONNECTIONS_MAX} connections are in use")
        try:
            with self._connection(deadline, scope) as cursor:
                yield cursor
        finally:
            self._permits.release()

    @contextmanager
    def _connection(self, deadline: Deadline, scope: Scope) -> Iterator[Cursor]:
        pool = self._opened_pool()
        connection = pool.acquire()
        try:
            connection.call_timeout = max(1, deadline.left_ms // 2)
            connection.autocommit = scope is not Scope.WHOLE
            with connection.cursor() as cursor:
                yield cursor
            if scope is Scope.WHOLE:
                connection.commit()
        except BaseException:
            self._roll_back(pool, connection)
            raise
        pool.release(connection)

    def _opened_pool(self) -> Any:
        with self._lock:
            if self._pool is None:
                self._pool = oracledb.create_pool(**self._options)
            return self._pool

    def _roll_back(self, pool: Any, connection: Any) -> None:
        """End the transaction; a connection on which even that fails is not used again."""
        try:
            connection.rollback()
        except oracledb.Error:
            pool.drop(connection)
        else:
            pool.release(connection)

    def is_missing_table(self, error: Exception) -> bool:
        """ORA-00942."""
        return _code(error) == _TABLE_MISSING

    def make_schema(self, cursor: Cursor, statements: Sequence[str]) -> None:
        """DDL commits by itself, so each statement must be repeatable."""
        for statement in statements:
            try:
                cursor.execute(statement)
            except oracledb.DatabaseError as error:
                if _code(error) not in _THERE_ALREADY:
                    raise

    def info(self) -> StoreInfo:
        """Nothing to warn of that could be asked without rights."""
        return StoreInfo("oracle", self._url.shown, True)

    def close(self) -> None:
        """Close the pool with all its connections."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close(force=True)


def _connect_options(url: StoreUrl, deadline_ms: int) -> dict[str, Any]:
    url.check_options((*_TRUE_OPTIONS, *_TEXT_OPTIONS, *_NUMBER_OPTIONS))
    service = url.path.strip("/")
    if not service:
        raise ConfigError(
            f"store URL {url.shown}: names no service: oracle://user@host:1521/service"
        )
    protocol = "tcps://" if url.tls else ""
    host, port = url.address("", 1521)
    options: dict[str, Any] = {
        "user": url.user,
        "password": url.password,
        # Without a host the path is an alias of tnsnames.ora in `config_dir`.
        "dsn": f"{protocol}{host}:{port}/{service}" if host else service,
        "min": 0,
        "max": CONNECTIONS_MAX,
        "getmode": oracledb.POOL_GETMODE_TIMEDWAIT,
        # Only for a connection to be made or pinged, as long as making one may take.
        "wait_timeout": deadline_ms // 3,
        "tcp_connect_timeout": deadline_ms / 3_000,
        "retry_count": 0,
        # Out-of-band breaks hang where a container's network does not carry them.
        "disable_oob": True,
    }
    for name, value in url.options.items():
        if name in _TRUE_OPTIONS:
            options[name] = value.lower() in ("1", "true", "yes", "on")
        elif name in _NUMBER_OPTIONS:
            options[name] = int(value)
        else:
            options[name] = value
    return options


def _code(error: Exception) -> str:
    return str(getattr(error.args[0], "full_code", "")) if error.args else ""


def _is_passing(error: Exception) -> bool:
    """Also what the driver says of connecting (DPY-6nnn), which it never calls recoverable."""
    code = _code(error)
    recoverable = bool(error.args) and bool(getattr(error.args[0], "isrecoverable", False))
    return (
        recoverable or code in _PASSING or code.startswith("DPY-6") or isinstance(error, _AllInUse)
    )
