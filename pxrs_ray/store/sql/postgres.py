"""PostgreSQL through psycopg 3.

Rules of this file. Connections are in autocommit mode: a batch of commits is one UPDATE that
joins the unnested arrays and returns the rows that it changed, in one round trip. Nothing waits
longer than the call's deadline: the server gets one, and the client stops waiting by itself
when the server is frozen, after which that connection is thrown away. The store keeps a few idle
connections of its own, because a pool that reconnects in the background by growing pauses comes
back minutes after the server does.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

import psycopg
from psycopg import errors

from pxrs_ray.errors import ConfigError
from pxrs_ray.store.deadline import Deadline, Persistence
from pxrs_ray.store.registry import StoreInfo
from pxrs_ray.store.sql.dialect import Cursor, Dialect, RowUpdate, Values, pyformat
from pxrs_ray.store.sql.sql_store import Database, Scope
from pxrs_ray.store.url import StoreUrl

T = TypeVar("T")

CONNECTIONS_MAX = 4
CONNECT_SECONDS = 2
"""The least that libpq knows."""

_CREATE_LOCK = 0x70787273
_LIBPQ_OPTIONS = (
    "application_name",
    "channel_binding",
    "connect_timeout",
    "gssencmode",
    "host",
    "hostaddr",
    "keepalives",
    "keepalives_idle",
    "krbsrvname",
    "options",
    "passfile",
    "service",
    "sslcert",
    "sslcrl",
    "sslkey",
    "sslmode",
    "sslpassword",
    "sslrootcert",
    "target_session_attrs",
    "tcp_user_timeout",
)
_STAYING_WORDS = ("authentication failed", "does not exist", "certificate verify failed")
# Classes of SQLSTATE that pass by themselves: 08 connection, 40 deadlock and serialization,
# 53 resources (disk full, too many connections), 55P03 lock timeout, 57 shutdown, cancel, start.
_PASSING_STATES = ("08", "40", "53", "55P03", "57", "25006")


class PostgresDialect(Dialect):
    """PostgreSQL's dialect."""

    name = "postgresql"
    timestamp = "TIMESTAMPTZ"
    now = "clock_timestamp()"

    def later(self, seconds: str) -> str:
        """Add an interval; now() would be the start of the transaction."""
        return f"(clock_timestamp() + make_interval(secs => {seconds}))"

    def text(self, chars: int) -> str:
        """A length would only cost a check."""
        return "TEXT"

    def finish(self, sql: str) -> str:
        """psycopg's binds."""
        return pyformat(sql)

    def update_each(
        self, cursor: Any, update: RowUpdate, shared: Values, rows: Sequence[Values]
    ) -> list[bool]:
        """One statement for all rows: it joins arrays, and returns which of them it used."""
        values: dict[str, object] = {
            name: _array([row[name] for row in rows], kind) for name, kind in update.each
        } | dict(shared)
        cursor.execute(_arrays_sql(update), values)
        changed = {row[0] for row in cursor.fetchall()}
        return [number in changed for number in range(1, len(rows) + 1)]


def _array(values: Sequence[Any], kind: str) -> str:
    """An array as PostgreSQL writes it; the driver's own way takes as long as the update."""
    if kind == "bigint":
        return f"{{{','.join(map(str, values))}}}"
    quoted = (value.replace("\\", "\\\\").replace('"', '\\"') for value in values)
    return '{"' + '","'.join(quoted) + '"}'


@cache
def _arrays_sql(update: RowUpdate) -> str:
    """`update` for arrays of its `each`, returning the numbers of the rows that took effect."""
    names = [name for name, _ in update.each]
    arrays = ", ".join(f":{name}::{kind}[]" for name, kind in update.each)
    columns = ", ".join(f"in_{name}" for name in names)
    one_row = re.compile(rf":({'|'.join(names)})\b")
    sets, where = (one_row.sub(r"in_\1", part) for part in (update.sets, update.where))
    # The planner multiplies the odds of every `=`, comes to expect a single row, and joins all
    # with all. Comparisons that it has no odds for leave the key's, which is about right.
    for name in names[1:]:
        where = where.replace(f" = in_{name}", f" IS NOT DISTINCT FROM in_{name}")
    return pyformat(
        f"UPDATE {update.table} SET {sets} FROM unnest({arrays}) "
        f"WITH ORDINALITY AS input ({columns}, in_row) WHERE {where} RETURNING in_row"
    )


class _Connection(psycopg.Connection[tuple[Any, ...]]):
    """A connection on which no wait outlasts `deadline`."""

    deadline: Deadline | None = None

    def wait(self, gen: Generator[Any, Any, T], *args: Any, **options: Any) -> T:
        """Wait as psycopg does, which looks in every tenth of a second, until the deadline."""
        return super().wait(self._until_deadline(gen), *args, **options)

    def _until_deadline(self, gen: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if not ready and self.deadline is not None and self.deadline.is_over:
                    raise psycopg.OperationalError("the server did not answer in time")
                wanted = gen.send(ready)
        except StopIteration as end:
            result: T = end.value
            return result


class PostgresDatabase(Database):
    """A few connections to one server."""

    dialect = PostgresDialect()

    def __init__(self, url: StoreUrl, deadline_ms: int) -> None:
        self._conninfo = _conninfo(url, deadline_ms)
        self._idle: list[_Connection] = []
        self._lock = threading.Lock()
        self._permits = threading.BoundedSemaphore(CONNECTIONS_MAX)
        self._url = url
        self._warnings: tuple[str, ...] = ()
        self._closed = False
        self.persistence = Persistence(
            where=url.shown,
            deadline_ms=deadline_ms,
            driver_errors=(psycopg.Error,),
            is_passing=_is_passing,
            scrub=url.scrub,
            worded=self.worded,
        )

    @contextmanager
    def transaction(self, deadline: Deadline, scope: Scope) -> Iterator[Cursor]:
        """A single statement is its own transaction."""
        if not self._permits.acquire(timeout=deadline.left_s):
            raise psycopg.OperationalError(f"all {CONNECTIONS_MAX} connections are in use")
        try:
            connection = self._taken(deadline)
            try:
                with connection.cursor() as cursor:
                    if scope is Scope.WHOLE:
                        with connection.transaction():
                            yield cursor
                    else:
                        yield cursor
            finally:
                self._give_back(connection)
        finally:
            self._permits.release()

    def _taken(self, deadline: Deadline) -> _Connection:
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        if connection is None:
            connection = _Connection.connect(**self._conninfo, autocommit=True)
        connection.deadline = deadline
        return connection

    def _give_back(self, connection: _Connection) -> None:
        """Keep a connection that is idle again; whatever else it is, nobody can rely on it."""
        idle = psycopg.pq.TransactionStatus.IDLE
        with self._lock:
            keep = not self._closed and connection.info.transaction_status == idle
            if keep:
                self._idle.append(connection)
        if not keep:
            connection.close()
            # A server that was restarted has closed the other idle connections too.
            self._close_idle()

    def _close_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def is_missing_table(self, error: Exception) -> bool:
        """SQLSTATE 42P01."""
        return isinstance(error, errors.UndefinedTable)

    def make_schema(self, cursor: Cursor, statements: Sequence[str]) -> None:
        """One at a time on the whole server: IF NOT EXISTS alone is not safe to race."""
        cursor.execute(f"SELECT pg_advisory_xact_lock({_CREATE_LOCK})")
        for statement in statements:
            cursor.execute(statement)

    def inspect(self, cursor: Cursor) -> None:
        """Ask whether the server waits for its disk."""
        cursor.execute(
            "SELECT name FROM pg_settings WHERE setting = 'off' "
            "AND name IN ('fsync', 'synchronous_commit', 'full_page_writes') ORDER BY name"
        )
        self._warnings = tuple(
            f"{row[0]} is off: a crash may lose accepted writes" for row in cursor.fetchall()
        )

    def info(self) -> StoreInfo:
        """Durable unless the server said that it does not wait."""
        return StoreInfo("postgresql", self._url.shown, not self._warnings, self._warnings)

    def close(self) -> None:
        """Close the idle connections; those in use are closed when they are given back."""
        self._closed = True
        self._close_idle()


def _conninfo(url: StoreUrl, deadline_ms: int) -> dict[str, Any]:
    """Parameters for libpq. The rest it reads from its environment (PGHOST, PGPASSWORD, ...)."""
    url.check_options(_LIBPQ_OPTIONS)
    found: dict[str, Any] = {
        "application_name": "pxrs",
        "connect_timeout": CONNECT_SECONDS,
        "keepalives_idle": 30,
        "tcp_user_timeout": deadline_ms,
        "client_encoding": "UTF8",
        # The server gives up when the client has: no update lands long after its call.
        "options": f"-c statement_timeout={deadline_ms} -c lock_timeout={deadline_ms} "
        f"-c idle_in_transaction_session_timeout={2 * deadline_ms} "
        + url.options.get("options", ""),
        "user": url.user,
        "password": url.password,
        "dbname": url.path.strip("/"),
        "sslrootcert": url.ca_file,
        "sslcert": url.cert_file,
        "sslkey": url.key_file,
        "sslmode": ("verify-full" if url.ca_file else "require") if url.tls else None,
    }
    if url.hosts:
        found["host"] = ",".join(host for host, _ in url.hosts)
        found["port"] = ",".join(str(port or 5432) for _, port in url.hosts)
    found.update({name: value for name, value in url.options.items() if name != "options"})
    if "/" in found["dbname"]:
        raise ConfigError(f"store URL {url.shown}: give the name of one database")
    return {name: value for name, value in found.items() if value}


def _is_passing(error: Exception) -> bool:
    """A broken connection has no SQLSTATE; a refused login or statement has, and stays refused."""
    if isinstance(error, psycopg.Error) and error.sqlstate:
        return error.sqlstate.startswith(_PASSING_STATES)
    if not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return False
    return not any(words in str(error) for words in _STAYING_WORDS)
