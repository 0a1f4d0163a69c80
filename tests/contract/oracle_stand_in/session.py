"""One session of the stand-in: what a server process of the database does for one client.

What it imitates, in the order of a client's life: CONNECT and ACCEPT (protocol 316, so that the
driver sends breaks in band), or REFUSE with the listener's error; protocol, types and the two
phases of the logon; then calls, each with its answer. Piggybacks (cursors to close, module and
action, current schema) ride in front of a call. The faults of `faults.py` strike here.
"""

from __future__ import annotations

import itertools
import re
import socket
import struct
import time
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.contract.oracle_stand_in import replies, requests
from tests.contract.oracle_stand_in.authentication import Logon, read_request
from tests.contract.oracle_stand_in.channel import Broken, Channel
from tests.contract.oracle_stand_in.engines import SESSIONS, EngineSession, Outcome
from tests.contract.oracle_stand_in.errors import UNIMPLEMENTED, Cancelled, OracleError
from tests.contract.oracle_stand_in.faults import Fault, FaultPlan, Point, When
from tests.contract.oracle_stand_in.framing import (
    ACCEPT,
    CONNECT,
    REFUSE,
    Disconnected,
    MessageReader,
    PacketSocket,
)
from tests.contract.oracle_stand_in.jdbc_values import Column
from tests.contract.oracle_stand_in.oracle_rules import violations
from tests.contract.oracle_stand_in.values import TypeCode, Value

_PROTOCOL_VERSION = 316
_PACKET_BYTES_MAX = 8_192
_FUNCTION = 3
_PIGGYBACK = 17
_ONE_WAY = 26
_LOGOFF, _COMMIT, _ROLLBACK, _CLOSE_CURSORS = 9, 14, 15, 105
_AUTH_TWO, _AUTH_ONE, _END_TO_END, _PING, _SET_SCHEMA = 115, 118, 135, 147, 152
_SERVICE = re.compile(r"\(\s*(?:SERVICE_NAME|SID)\s*=\s*([^)\s]+)\s*\)", re.IGNORECASE)
_LOG_MAX = 10_000


@dataclass(slots=True)
class Host:
    """What all sessions of one stand-in share."""

    engine: str
    users: dict[str, str]
    services: set[str]
    repeat_row_counts: bool
    faults: FaultPlan = field(default_factory=FaultPlan)
    crashes: list[str] = field(default_factory=list)
    log: deque[str] = field(default_factory=lambda: deque(maxlen=_LOG_MAX))
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))


@dataclass(slots=True)
class _Unread:
    columns: list[Column]
    rows: deque[list[Value]]
    read: int = 0


class Session:
    """One client, from its connect to its end. `run` is its thread; `kill` comes from others."""

    def __init__(self, host: Host, sock: socket.socket) -> None:
        self._host = host
        self._packets = PacketSocket(sock)
        self._channel: Channel | None = None
        self._engine: EngineSession | None = None
        self._logon: Logon | None = None
        self._service = ""
        self._cursors: dict[int, requests.Cursor] = {}
        self._unread: dict[int, _Unread] = {}
        self._cursor_numbers = itertools.count(1)
        self._ended = False

    def run(self) -> None:
        """Serve the client until it leaves, is cut off or killed; then roll back and close."""
        try:
            if self._accept():
                self._channel = Channel(self._packets, self._cancel)
                while not self._ended:
                    self._serve_one(self._channel)
        except Disconnected:
            pass
        finally:
            if self._engine is not None:
                self._engine.close()
            self._packets.end()

    def kill(self) -> None:
        """End the session from outside, with whatever it is doing."""
        self._cancel()
        self._packets.end()

    def _cancel(self) -> None:
        engine = self._engine
        if engine is not None:
            engine.cancel()

    def _accept(self) -> bool:
        kind, body = self._packets.read()
        assert kind == CONNECT, f"the first packet is of type {kind}, not CONNECT"
        length, offset = struct.unpack(">HH", body[16:20])
        text = body[offset - 8 :]
        if len(text) < length:  # a long connect string comes in a packet of its own
            text = self._packets.read()[1][2:]
        fault = self._host.faults.take("connect", "before")
        if fault is not None and fault.action == "cut":
            self._packets.cut()
            raise Disconnected
        found = _SERVICE.search(text.decode())
        self._service = found.group(1) if found else ""
        unknown = 12514 if self._service not in self._host.services else 0
        refusal = fault.code if fault is not None else unknown
        if refusal:
            reason = f"(DESCRIPTION=(ERR={refusal}))".encode()
            self._packets.send(REFUSE, struct.pack(">BBH", 0, 0, len(reason)) + reason)
            return False
        accept = struct.pack(">HH20xI", _PROTOCOL_VERSION, 1, _PACKET_BYTES_MAX)
        self._packets.send(ACCEPT, accept)
        self._packets.widen_lengths()
        return True

    def _serve_one(self, channel: Channel) -> None:
        try:
            message = MessageReader(channel.next_data(), channel.next_data)
            answer = self._answer(message)
        except Broken:
            answer = b""
        except OracleError as error:
            answer = self._failed(error)
            # What the stand-in cannot do leaves the rest of the message unread.
            self._ended = self._ended or error.code == UNIMPLEMENTED
        channel.deaf = False
        if channel.broken.is_set():
            channel.reset()
            if self._engine is not None:
                self._engine.resume()
            answer = self._failed(Cancelled())
        if answer:
            channel.send(answer)

    def _failed(self, error: OracleError, cursor: int = 0) -> bytes:
        return replies.completion(error, in_transaction=self._in_transaction(), cursor=cursor)

    def _in_transaction(self) -> bool:
        return self._engine is not None and self._engine.in_transaction

    def _answer(self, message: MessageReader) -> bytes:
        kind = message.byte()
        while kind == _PIGGYBACK:
            self._read_piggyback(message)
            kind = message.byte()
        if kind == replies.PROTOCOL:
            return replies.protocol_info()
        if kind == replies.DATA_TYPES:
            return replies.data_types()
        if kind == _ONE_WAY:  # a pooled session is given back: nothing is answered
            return b""
        assert kind == _FUNCTION, f"the client sent a message of kind {kind}"
        function = message.byte()
        message.byte()
        if function in (_AUTH_ONE, _AUTH_TWO):
            return self._authenticate(function, message)
        if self._engine is None:
            raise OracleError(1012, "not logged on")
        return self._call(function, message, self._engine)

    def _call(self, function: int, message: MessageReader, engine: EngineSession) -> bytes:
        if function == requests.EXECUTE:
            number = next(self._cursor_numbers)
            return self._execute(requests.read_execute(message, self._cursors, number), engine)
        if function in (requests.REEXECUTE, requests.REEXECUTE_AND_FETCH):
            execution = requests.read_reexecute(
                message, function, self._cursors, repeat_row_counts=self._host.repeat_row_counts
            )
            return self._execute(execution, engine)
        if function == requests.FETCH:
            number, count = message.integer(), message.integer()
            return self._guarded("fetch", lambda: self._next_rows(number, count))
        if function == _COMMIT:
            return self._guarded("commit", lambda: self._end_transaction(engine.commit))
        if function == _ROLLBACK:
            return self._guarded("rollback", lambda: self._end_transaction(engine.rollback))
        if function == _PING:
            return self._guarded(
                "ping", lambda: replies.status(in_transaction=engine.in_transaction)
            )
        if function == _LOGOFF:
            self._ended = True
            return replies.status(in_transaction=False)
        raise OracleError(UNIMPLEMENTED, f"unimplemented feature: call {function}")

    def _end_transaction(self, how: Callable[[], None]) -> bytes:
        how()
        return replies.status(in_transaction=False)

    def _guarded(self, at: Point, act: Callable[[], bytes]) -> bytes:
        """Do a call without a statement, with the faults before and after it."""
        self._host.log.append(at)
        self._strike(at, "before")
        answer = act()
        self._strike(at, "after")
        return answer

    def _strike(self, at: Point, when: When, sql: str = "") -> None:
        """Let the fault that is armed for this point, if any, happen."""
        fault = self._host.faults.take(at, when, sql)
        if fault is None:
            return
        if fault.action == "error":
            raise OracleError(fault.code, "injected by a test")
        assert self._channel is not None
        if fault.action == "cut":
            self._channel.cut()
            raise Disconnected
        self._delay(fault, self._channel)

    def _delay(self, fault: Fault, channel: Channel) -> None:
        if fault.deaf:
            channel.deaf = True
            time.sleep(fault.seconds)
        elif channel.broken.wait(fault.seconds):
            raise Cancelled

    def _read_piggyback(self, message: MessageReader) -> None:
        function = message.byte()
        message.byte()
        if function == _CLOSE_CURSORS:
            message.byte()
            for _ in range(message.integer()):
                number = message.integer()
                self._cursors.pop(number, None)
                self._unread.pop(number, None)
        elif function == _SET_SCHEMA:
            message.byte()
            message.integer()
            message.octets()
        elif function == _END_TO_END:
            _skip_end_to_end(message)
        else:
            raise OracleError(UNIMPLEMENTED, f"unimplemented feature: piggyback {function}")

    def _authenticate(self, function: int, message: MessageReader) -> bytes:
        user, pairs = read_request(message)
        if function == _AUTH_ONE:
            self._logon = Logon(self._host.users.get(user.upper()))
            return replies.key_values(self._logon.challenge())
        assert self._logon is not None, "phase two of the logon came before phase one"
        verdict = self._logon.verify(pairs, next(self._host.numbers))
        if verdict is None:
            self._ended = True
            raise OracleError(1017, "invalid credential or not authorized; logon denied")
        self._engine = SESSIONS[self._host.engine](self._service)
        self._host.log.append(f"logon {pairs.get('AUTH_KPPL_CONN_CLASS', '')}".strip())
        return replies.key_values(verdict)

    def _execute(self, execution: requests.Execution, engine: EngineSession) -> bytes:
        cursor = execution.cursor
        self._cursors[cursor.number] = cursor
        if execution.defines:
            if any(bind.code == TypeCode.CLOB for bind in execution.defines):
                raise OracleError(UNIMPLEMENTED, "unimplemented feature: fetch CLOBs as text")
            return self._next_rows(cursor.number, execution.fetch_rows)
        self._host.log.append(cursor.sql)
        try:
            return self._run(execution, engine)
        except OracleError as error:
            return self._failed(error, cursor.number)

    def _run(self, execution: requests.Execution, engine: EngineSession) -> bytes:
        cursor = execution.cursor
        if not execution.run:
            raise OracleError(UNIMPLEMENTED, "unimplemented feature: parsing without executing")
        for rule in violations(cursor.sql):
            raise OracleError(rule.code or 20000, f"[rule of the stand-in] {rule.meaning}")
        self._strike("execute", "before", cursor.sql)
        outcome = engine.execute(cursor.sql, execution.rows, keep_going=execution.batch_errors)
        self._strike("execute", "after", cursor.sql)
        if outcome.failure is None and execution.commit:
            self._strike("commit", "before", cursor.sql)
            engine.commit()
            self._strike("commit", "after", cursor.sql)
        if cursor.is_query and outcome.failure is None:
            return self._query_answer(execution, outcome)
        return self._dml_answer(cursor, outcome)

    def _query_answer(self, execution: requests.Execution, outcome: Outcome) -> bytes:
        number = execution.cursor.number
        self._unread[number] = _Unread(outcome.columns, deque(outcome.rows))
        known = not execution.parse and execution.cursor.columns == outcome.columns
        described = b"" if known else replies.description(outcome.columns)
        execution.cursor.columns = outcome.columns
        clobs = any(column.code == TypeCode.CLOB for column in outcome.columns)
        # The rows of a query with CLOBs wait until the client has said how it wants them.
        return described + self._next_rows(number, 0 if clobs else execution.fetch_rows)

    def _dml_answer(self, cursor: requests.Cursor, outcome: Outcome) -> bytes:
        counted = cursor.wants_row_counts and outcome.failure is None
        counts = replies.row_counts(outcome.counts) if counted else b""
        error = outcome.failure
        if error is None and outcome.row_errors:
            error = replies.ARRAY_DML_ERRORS
        return counts + replies.completion(
            error,
            in_transaction=self._in_transaction(),
            cursor=cursor.number,
            row_count=sum(outcome.counts),
            row_errors=outcome.row_errors,
        )

    def _next_rows(self, number: int, count: int) -> bytes:
        unread = self._unread.get(number)
        if unread is None:
            raise OracleError(1002, "fetch out of sequence")
        taken = [unread.rows.popleft() for _ in range(min(count, len(unread.rows)))]
        unread.read += len(taken)
        sent = replies.rows(unread.columns, taken) if count else b""
        return sent + replies.completion(
            replies.NO_DATA_FOUND if len(taken) < count else None,
            in_transaction=self._in_transaction(),
            cursor=number,
            row_count=unread.read,
        )


def _skip_end_to_end(message: MessageReader) -> None:
    """Pass over module, action, client id, client info and operation: texts for monitoring."""
    message.raw(2)
    message.integer()
    lengths = []
    for _ in range(3):
        message.byte()
        lengths.append(message.integer())
    message.byte()
    message.integer()
    message.byte()
    message.integer()
    message.byte()
    lengths.append(message.integer())
    for _ in range(2):
        message.byte()
        message.integer()
    message.byte()
    lengths.append(message.integer())
    for length in lengths:
        if length:
            message.octets()


def serve(host: Host, sock: socket.socket, alive: set[Session]) -> None:
    """Serve one client in the calling thread, listed in `alive` meanwhile."""
    session = Session(host, sock)
    alive.add(session)
    try:
        session.run()
    except Exception:  # a mistake of the stand-in itself, which close() shows to the test
        host.crashes.append(traceback.format_exc())
    finally:
        alive.discard(session)
