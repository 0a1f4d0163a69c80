"""SQLite: the embedded, durable default. One file, one connection a store.

Rules of this file. WAL with synchronous FULL: an acknowledged write survives a power cut. Every
transaction begins with BEGIN IMMEDIATE, because a deferred one that reads first and then writes
fails at once when another process wrote meanwhile, whatever the busy timeout. The busy timeout
is short and the call is tried again until its deadline, so that a lock held by another process
delays and never hangs.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pxrs_ray.errors import ConfigError, RegistryNotHere
from pxrs_ray.store.deadline import Deadline, Persistence
from pxrs_ray.store.registry import StoreInfo
from pxrs_ray.store.sql.dialect import Cursor, Dialect, RowUpdate, Values
from pxrs_ray.store.sql.sql_store import Database, Scope
from pxrs_ray.store.url import StoreUrl

_BUSY_MS = 50
_PASSING = (
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PROTOCOL,
)
_NETWORK_FILE_SYSTEMS = ("nfs", "cifs", "smb", "efs", "fuse", "9p", "ceph", "lustre")


class SqliteDialect(Dialect):
    """SQLite's dialect. Time is whole milliseconds since 1970, which old versions can compute
    too."""

    name = "sqlite"
    integer = "INTEGER"
    timestamp = "INTEGER"
    locking = ""
    now = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"

    def later(self, seconds: str) -> str:
        """Add seconds in milliseconds."""
        return f"({self.now} + CAST({seconds} * 1000 AS INTEGER))"

    def text(self, chars: int) -> str:
        """Texts have no length."""
        return "TEXT"

    def page(self, skip: int, count: int) -> str:
        """SQLite has no FETCH."""
        return f" LIMIT {int(count)} OFFSET {int(skip)}"

    def update_each(
        self, cursor: Any, update: RowUpdate, shared: Values, rows: Sequence[Values]
    ) -> list[bool]:
        """All rows in one call when all take effect, else back and one by one."""
        sql, values = update.sql, [{**shared, **row} for row in rows]
        if len(rows) == 1:
            return [cursor.execute(sql, values[0]).rowcount == 1]
        cursor.execute("SAVEPOINT each_row")
        done = cursor.executemany(sql, values).rowcount == len(rows)
        if not done:
            cursor.execute("ROLLBACK TO each_row")
        cursor.execute("RELEASE each_row")
        if done:
            return [True] * len(rows)
        return [cursor.execute(sql, one).rowcount == 1 for one in values]


class SqliteDatabase(Database):
    """One connection to one file, used by one thread at a time."""

    dialect = SqliteDialect()

    def __init__(self, url: StoreUrl, deadline_ms: int) -> None:
        url.check_options(())
        self._path = _path_of(url)
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._makes = False
        self.persistence = Persistence(
            where=f"sqlite:///{self._path}",
            deadline_ms=deadline_ms,
            driver_errors=(sqlite3.Error,),
            is_passing=_is_passing,
            scrub=url.scrub,
            worded=self.worded,
        )

    @contextmanager
    def transaction(self, deadline: Deadline, scope: Scope) -> Iterator[Cursor]:
        """A query alone needs no transaction: it sees one moment, and waits for no writer."""
        if not self._lock.acquire(timeout=deadline.left_s):
            raise sqlite3.OperationalError("another thread of this process holds the store")
        try:
            connection = self._connected()
            cursor = connection.cursor()
            try:
                if scope is not Scope.QUERY:
                    cursor.execute("BEGIN IMMEDIATE")
                yield cursor
                if scope is not Scope.QUERY:
                    cursor.execute("COMMIT")
            except BaseException:
                self._roll_back(connection)
                raise
            finally:
                cursor.close()
        finally:
            self._lock.release()

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            if self._makes:
                self._make_private()
                self._makes = False
            elif not self._path.exists():
                where = self.persistence.where
                raise RegistryNotHere(
                    f"there is no registry at {where}: is that the place? `pxrs up FILE` makes one"
                )
            connection = sqlite3.connect(
                f"file:{quote(str(self._path))}?mode=rw",
                _BUSY_MS / 1_000,
                isolation_level=None,
                check_same_thread=False,
                uri=True,
            )
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = FULL")
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _make_private(self) -> None:
        """A file that is made here is its user's alone; SQLite's files beside it take its mode."""
        try:
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except OSError:
            pass  # it is there, or cannot be made, which SQLite tells better

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        """End the transaction; a connection on which even that fails is not used again."""
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            self._connection = None
            connection.close()

    def begin(self) -> None:
        """The next connection may make the file; a file that goes later is not made again."""
        self._makes = self._connection is None

    def is_missing_table(self, error: Exception) -> bool:
        """SQLite tells by text only."""
        return "no such table" in str(error)

    def make_schema(self, cursor: Cursor, statements: Sequence[str]) -> None:
        """DDL is part of the transaction here, and the whole file is locked."""
        for statement in statements:
            cursor.execute(statement)

    def info(self) -> StoreInfo:
        """Warn of places that vanish or where locks do not work."""
        return StoreInfo("sqlite", self.persistence.where, True, tuple(_warnings(self._path)))

    def close(self) -> None:
        """Close the connection, after the call that is using it."""
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()


def _path_of(url: StoreUrl) -> Path:
    # Three slashes lead to a relative path and four to an absolute one, as in SQLAlchemy.
    text = url.path.removeprefix("/")
    if not text or url.hosts:
        raise ConfigError(
            "store URL sqlite: needs a file: sqlite:///relative/registry.db or "
            "sqlite:////absolute/registry.db"
        )
    path = Path(text)
    if not path.parent.is_dir():
        hint = "" if path.is_absolute() else f"; for an absolute path write sqlite:////{path}"
        raise ConfigError(f"store URL sqlite: there is no folder {str(path.parent)!r}{hint}")
    return path.absolute()


def _is_passing(error: Exception) -> bool:
    """Locked, full or failing disks may be freed; a wrong statement stays wrong."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:  # raised above, not by SQLite
        return isinstance(error, sqlite3.OperationalError)
    return code & 0xFF in _PASSING


def _warnings(path: Path) -> Iterator[str]:
    if path.is_relative_to(tempfile.gettempdir()) or path.is_relative_to("/dev/shm"):
        yield f"{path} is in a folder that is emptied: the registry goes with it"
    kind = _file_system(path)
    if kind.startswith(_NETWORK_FILE_SYSTEMS):
        yield f"{path} is on {kind}: SQLite needs a local disk for its locks"


def _file_system(path: Path) -> str:
    """The type of the file system that holds `path`, '' where nothing says it."""
    try:
        lines = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    mounts = [(fields[1], fields[2]) for line in lines if len(fields := line.split()) > 2]
    holding = [(len(place), kind) for place, kind in mounts if path.is_relative_to(place)]
    return max(holding, default=(0, ""))[1]
