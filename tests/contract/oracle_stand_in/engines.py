"""Where the SQL is executed: HSQLDB in its Oracle syntax, and H2 in its Oracle mode, over JDBC.

Rules of this file. One `EngineSession` is one database session with its transaction; only its own
thread calls it, except `cancel`. What comes out are the database's own error numbers
(`OracleError`) and values of `values.py`. Statements outside queries and DML that the two engines
lack, or word otherwise, are met here: ALTER SESSION is obeyed by doing nothing, SET TRANSACTION
becomes an isolation level until the transaction's end, DDL commits before and after itself.
"""

from __future__ import annotations

import re
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import jpype

from tests.contract.oracle_stand_in.errors import UNIMPLEMENTED, Cancelled, OracleError
from tests.contract.oracle_stand_in.errors import translate as translate_error
from tests.contract.oracle_stand_in.jars import JARS
from tests.contract.oracle_stand_in.jdbc_values import Column, bind, describe, fetch
from tests.contract.oracle_stand_in.values import Value

_PREPARED_MAX = 200
_CANCEL_SECONDS_MAX = 5.0
_CANCEL_SLICE_SECONDS = 0.02
_ISOLATION_SNAPSHOT = {"hsqldb": 8, "h2": 6}
_ISOLATION_READ_COMMITTED = 2
_H2_LOCK_SLICE_MS = 50
_H2_LOCK_TIMEOUT = 50_200

_BIND_OR_SKIPPED = re.compile(r"'(?:[^']|'')*'|--[^\n]*|/\*.*?\*/|(?<![:\w]):(\w+)", re.DOTALL)
_FOR_UPDATE = re.compile(r"\bFOR\s+UPDATE\s*$", re.IGNORECASE)
_QUERY = re.compile(r"\s*(SELECT|WITH)\b", re.IGNORECASE)
_LOCKING_QUERY = re.compile(
    r"\s*SELECT\s+(\w+)[\w\s,]*\sFROM\s+(\w+)\s+WHERE\s+((?:(?!\bSELECT\b).)+?)\s+FOR\s+UPDATE\s*",
    re.IGNORECASE | re.DOTALL,
)
_CHARS = re.compile(r"\bVARCHAR2\s*\(\s*(\d+)\s+CHAR\s*\)", re.IGNORECASE)
_DDL = re.compile(r"\s*(CREATE|DROP|ALTER|TRUNCATE|COMMENT|GRANT|REVOKE|RENAME)\b", re.IGNORECASE)


@dataclass(slots=True)
class RowError:
    """What befell one row of an array DML."""

    offset: int
    error: OracleError


@dataclass(slots=True)
class Outcome:
    """What one execute did: row counts, or columns and rows, and the rows that failed.

    `failure` is the error that ended an array DML; the counts are then those of the rows before
    it, which stay part of the transaction, as they do in the database.
    """

    counts: list[int] = field(default_factory=list)
    columns: list[Column] = field(default_factory=list)
    rows: list[list[Value]] = field(default_factory=list)
    row_errors: list[RowError] = field(default_factory=list)
    failure: OracleError | None = None


def start_java() -> None:
    """Start the Java machine, once in a process, with both engines in reach."""
    if not jpype.isJVMStarted():
        options = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        jars = [str(jar) for jar in JARS.values() if jar.exists()]
        jpype.startJVM(*options, "-Duser.timezone=UTC", classpath=jars, convertStrings=True)


def is_ddl(sql: str) -> bool:
    """Whether `sql` is DDL, which the database commits before and after."""
    return _DDL.match(sql) is not None


@lru_cache(maxsize=1_000)
def for_engine(sql: str) -> str:
    """`sql` as the engines read it.

    Every :name bind is a question mark, one each, as the driver sends the values. Texts get twice
    the room: Java counts a character beyond U+FFFF as two.
    """
    binds = _BIND_OR_SKIPPED.sub(lambda hit: hit.group(0) if hit.group(1) is None else "?", sql)
    return _CHARS.sub(lambda hit: f"VARCHAR2({2 * int(hit.group(1))} CHAR)", binds)


class EngineSession(ABC):
    """One session of one in-memory database. See the rules at the head of this file."""

    def __init__(self, engine: str, url: str) -> None:
        """Connect; the database is made by its first session and lives as long as the process."""
        self._engine = engine
        manager = jpype.JClass("java.sql.DriverManager")
        self._jdbc = manager.getConnection(url, "SA", "")
        self._jdbc.setAutoCommit(False)
        self._prepared: dict[str, Any] = {}
        self._lifted = False
        self._cancelled = threading.Event()
        self._idle = threading.Event()
        self._idle.set()
        self.in_transaction = False

    def cancel(self) -> None:
        """End the statement under way, from another thread, and any until `resume`."""
        self._cancelled.set()
        deadline = time.monotonic() + _CANCEL_SECONDS_MAX
        while not self._idle.wait(_CANCEL_SLICE_SECONDS) and time.monotonic() < deadline:
            self._interrupt()

    def resume(self) -> None:
        """Take statements again."""
        self._cancelled.clear()

    def _run(self, statement: Any) -> bool:
        """Execute a prepared statement, so that `cancel` can end it; True for a query."""
        self._idle.clear()
        try:
            if self._cancelled.is_set():
                raise Cancelled
            return self._execute_prepared(statement)
        finally:
            self._idle.set()

    @abstractmethod
    def _execute_prepared(self, statement: Any) -> bool:
        """Execute; True for a query."""

    @abstractmethod
    def _interrupt(self) -> None:
        """End the statement under way; called again until it has ended."""

    def execute(
        self, sql: str, rows: Sequence[Sequence[Value]], *, keep_going: bool = False
    ) -> Outcome:
        """Execute `sql` once for each row of binds; `keep_going` notes errors and goes on."""
        if self._is_session_statement(sql):
            return Outcome(counts=[0])
        ddl = is_ddl(sql)
        if ddl:
            self.commit()
        outcome = Outcome()
        try:
            text = for_engine(sql)
            for offset, row in enumerate(rows):
                try:
                    self._execute_row(text, row, outcome)
                except jpype.JException as error:
                    if not keep_going:
                        raise
                    outcome.row_errors.append(RowError(offset, self._translated(error)))
                    outcome.counts.append(0)
        except jpype.JException as error:
            outcome.failure = self._translated(error)
        if ddl:
            self.commit()
        elif not outcome.columns and outcome.counts:
            self.in_transaction = True
        return outcome

    def _execute_row(self, sql: str, row: Sequence[Value], outcome: Outcome) -> None:
        statement = self._prepare(sql)
        for index, value in enumerate(row, start=1):
            bind(statement, index, value)
        if self._run(statement):
            results = statement.getResultSet()
            outcome.columns = describe(results.getMetaData())
            outcome.rows = fetch(results, outcome.columns)
            results.close()
        else:
            outcome.counts.append(statement.getUpdateCount())

    def _prepare(self, sql: str) -> Any:
        if sql not in self._prepared:
            if len(self._prepared) >= _PREPARED_MAX:
                for statement in self._prepared.values():
                    statement.close()
                self._prepared.clear()
            self._prepared[sql] = self._jdbc.prepareStatement(sql)
        return self._prepared[sql]

    def _is_session_statement(self, sql: str) -> bool:
        words = sql.upper().split()
        if words[:2] == ["ALTER", "SESSION"]:
            return True
        if words[:2] != ["SET", "TRANSACTION"]:
            return False
        if words[2:] in (["READ", "ONLY"], ["ISOLATION", "LEVEL", "SERIALIZABLE"]):
            if self.in_transaction:
                raise OracleError(1453, "SET TRANSACTION must be first statement of transaction")
            self._lift()
        return True

    def _lift(self) -> None:
        """See one moment from now until the transaction's end."""
        self._jdbc.rollback()
        self._jdbc.setTransactionIsolation(_ISOLATION_SNAPSHOT[self._engine])
        self._lifted = True

    def commit(self) -> None:
        """Commit the transaction."""
        self._end(self._jdbc.commit)

    def rollback(self) -> None:
        """Roll the transaction back."""
        self._end(self._jdbc.rollback)

    def _end(self, how: Callable[[], None]) -> None:
        try:
            how()
            if self._lifted:
                self._jdbc.setTransactionIsolation(_ISOLATION_READ_COMMITTED)
                self._lifted = False
        except jpype.JException as error:
            raise self._translated(error) from None
        self.in_transaction = False

    def close(self) -> None:
        """Roll back and end the session."""
        try:
            self._jdbc.rollback()
            self._jdbc.close()
        except jpype.JException:
            pass  # it is gone already, which is what was wanted

    def _translated(self, error: Any) -> OracleError:
        translated = translate_error(
            str(error.getSQLState() or ""), error.getErrorCode(), str(error.getMessage())
        )
        if translated.ends_transaction:
            self.in_transaction = False
        return translated


class HsqldbSession(EngineSession):
    """A session of HSQLDB: multi-version, so that readers never wait, as in the database.

    Its FOR UPDATE locks nothing, so the rows are locked by an update that changes nothing.
    """

    def __init__(self, service: str) -> None:
        jpype.JClass("org.hsqldb.jdbc.JDBCDriver")
        self._url = f"jdbc:hsqldb:mem:{service};sql.syntax_ora=true;hsqldb.tx=mvcc"
        super().__init__("hsqldb", self._url)
        results = self._jdbc.prepareStatement("CALL SESSION_ID()").executeQuery()
        results.next()
        self._id = int(results.getLong(1))
        self._jdbc.rollback()

    def _execute_prepared(self, statement: Any) -> bool:
        return bool(statement.execute())

    def _execute_row(self, sql: str, row: Sequence[Value], outcome: Outcome) -> None:
        if _FOR_UPDATE.search(sql):
            found = _LOCKING_QUERY.fullmatch(sql)
            if found is None:
                raise OracleError(
                    UNIMPLEMENTED, "unimplemented feature: FOR UPDATE of such a query"
                )
            column, table, condition = found.groups()
            update = f"UPDATE {table} SET {column} = {column} WHERE {condition}"
            super()._execute_row(update, row, Outcome())
            self.in_transaction = True
        super()._execute_row(sql, row, outcome)

    def _interrupt(self) -> None:
        """HSQLDB lets another session end a statement, also one that waits for a lock."""
        helper = jpype.JClass("java.sql.DriverManager").getConnection(self._url, "SA", "")
        try:
            helper.createStatement().execute(f"ALTER SESSION {self._id} END STATEMENT")
        except jpype.JException:
            pass  # the statement has ended by itself
        finally:
            helper.close()


class H2Session(EngineSession):
    """A session of H2. It can only wait for a lock in slices, between which it can be ended.

    A query of its READ COMMITTED may see half of a commit, which the database's never does: so a
    query outside a transaction is made in a snapshot.
    """

    def __init__(self, service: str) -> None:
        jpype.JClass("org.h2.Driver")
        super().__init__(
            "h2",
            f"jdbc:h2:mem:{service};MODE=Oracle;DB_CLOSE_DELAY=-1;LOCK_TIMEOUT={_H2_LOCK_SLICE_MS}",
        )

    def _execute_row(self, sql: str, row: Sequence[Value], outcome: Outcome) -> None:
        if self.in_transaction or self._lifted or _FOR_UPDATE.search(sql) or not _QUERY.match(sql):
            super()._execute_row(sql, row, outcome)
            return
        self._lift()
        try:
            super()._execute_row(sql, row, outcome)
        finally:
            self.rollback()

    def _execute_prepared(self, statement: Any) -> bool:
        while True:
            try:
                return bool(statement.execute())
            except jpype.JException as error:
                if error.getErrorCode() != _H2_LOCK_TIMEOUT:
                    raise
                if self._cancelled.is_set():
                    raise Cancelled from None

    def _interrupt(self) -> None:
        """Nothing to do: the end of the slice is near."""


SESSIONS: dict[str, Callable[[str], EngineSession]] = {"hsqldb": HsqldbSession, "h2": H2Session}
