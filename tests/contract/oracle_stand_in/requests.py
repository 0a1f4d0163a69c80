"""Messages that the client sends to run statements: execute, execute again, fetch.

What they imitate: the full EXECUTE (function 94) carries options, the text when it is new, the
binds' types and their values; REEXECUTE (4, and 78 for queries) only a cursor and values. Values
come row by row; within a row those of types wider than the server's longest text come last, as
LONGs do. The driver cannot ask for array row counts in a REEXECUTE.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.contract.oracle_stand_in.errors import UNIMPLEMENTED, OracleError
from tests.contract.oracle_stand_in.framing import MessageReader
from tests.contract.oracle_stand_in.jdbc_values import Column
from tests.contract.oracle_stand_in.values import TypeCode, Value, decode

FETCH = 5
REEXECUTE = 4
REEXECUTE_AND_FETCH = 78
EXECUTE = 94

_OPTION_PARSE = 0x01
_OPTION_DEFINE = 0x10
_OPTION_EXECUTE = 0x20
_OPTION_FETCH = 0x40
_OPTION_COMMIT = 0x100
_OPTION_BATCH_ERRORS = 0x80000
_FLAG_ROW_COUNTS = 0x4000
_REEXECUTE_COMMIT = 0x1
_ROW_OF_BINDS = 7
_TEXT_BYTES_MAX = 4_000


@dataclass(frozen=True, slots=True)
class BindType:
    """What the client said of one bind, or of one column that it defines."""

    code: int
    size: int
    form: int


@dataclass(slots=True)
class Cursor:
    """One open statement of a session: its text, its binds' types, and its columns as told."""

    number: int
    sql: str
    is_query: bool
    binds: list[BindType] = field(default_factory=list)
    columns: list[Column] = field(default_factory=list)
    wants_row_counts: bool = False


@dataclass(frozen=True, slots=True)
class Execution:
    """What one execute asks for.

    `fetch_rows` is how many rows are wanted in its answer. With `defines` nothing is executed: the
    rows of the execute before it are asked for in the types that the client wants.
    """

    cursor: Cursor
    rows: list[list[Value]]
    fetch_rows: int
    parse: bool
    run: bool
    defines: list[BindType]
    commit: bool
    batch_errors: bool


def read_execute(message: MessageReader, cursors: dict[int, Cursor], next_number: int) -> Execution:
    """A full EXECUTE; the cursor is a new one numbered `next_number` when it names none."""
    options, number = message.integer(), message.integer()
    iterations, bind_count, define_count = _read_execute_sizes(message)
    parse = number == 0 or bool(options & _OPTION_PARSE)
    if parse:
        sql = (message.octets() or b"").decode()
        message.integer()
    else:
        message.integer()
        sql = _known(cursors, number).sql
    executions = message.integer()
    message.skip_integers(5)
    is_query = bool(message.integer())
    message.integer()
    flags = message.integer()
    message.skip_integers(3)
    if parse:
        cursor = Cursor(number or next_number, sql, is_query)
    else:
        cursor = cursors[number]
    defines = _read_types(message, define_count) if options & _OPTION_DEFINE else []
    if not defines and bind_count:
        cursor.binds = _read_types(message, bind_count)
    cursor.wants_row_counts = bool(flags & _FLAG_ROW_COUNTS)
    repeats = 1 if is_query else executions
    return Execution(
        cursor=cursor,
        rows=_read_rows(message, cursor.binds if bind_count and not defines else [], repeats),
        fetch_rows=iterations if is_query and options & _OPTION_FETCH else 0,
        parse=parse,
        run=bool(options & _OPTION_EXECUTE),
        defines=defines,
        commit=bool(options & _OPTION_COMMIT),
        batch_errors=bool(options & _OPTION_BATCH_ERRORS),
    )


def _read_execute_sizes(message: MessageReader) -> tuple[int, int, int]:
    """Rows to fetch, number of binds, number of defines; the rest are pointers and zeros."""
    for _ in range(2):  # the text, the vector of integers: a pointer and a length each
        message.byte()
        message.integer()
    message.raw(2)
    message.integer()
    iterations = message.integer()
    message.integer()
    message.byte()
    bind_count = message.integer()
    message.raw(6)
    define_count = message.integer()
    message.integer()
    message.raw(3)
    message.integer()
    message.byte()
    message.skip_integers(2)
    message.byte()  # row counts: a pointer, a length, a pointer
    message.integer()
    message.raw(2)  # and the SQL signature's pointer
    message.integer()
    message.byte()  # the SQL id: a pointer, a length, a pointer
    message.integer()
    message.raw(2)  # and the chunk ids' pointer
    message.integer()
    return iterations, bind_count, define_count


def read_reexecute(
    message: MessageReader, function: int, cursors: dict[int, Cursor], *, repeat_row_counts: bool
) -> Execution:
    """A REEXECUTE. Whether a server then still sends row counts is not documented: an option."""
    number, iterations = message.integer(), message.integer()
    message.integer()
    options = message.integer()
    cursor = _known(cursors, number)
    if not repeat_row_counts:
        cursor.wants_row_counts = False
    repeats = iterations if function == REEXECUTE else 1
    return Execution(
        cursor=cursor,
        rows=_read_rows(message, cursor.binds, repeats),
        fetch_rows=iterations if cursor.is_query else 0,
        parse=False,
        run=True,
        defines=[],
        commit=bool(options & _REEXECUTE_COMMIT),
        batch_errors=False,
    )


def _known(cursors: dict[int, Cursor], number: int) -> Cursor:
    try:
        return cursors[number]
    except KeyError:
        raise OracleError(1001, "invalid cursor") from None


def _read_types(message: MessageReader, count: int) -> list[BindType]:
    types = []
    for _ in range(count):
        code = message.byte()
        message.raw(3)
        size = message.integer()
        message.skip_integers(2)
        if message.integer():
            message.octets()
        message.skip_integers(2)
        form = message.byte()
        message.skip_integers(2)
        types.append(BindType(code, size, form))
    return types


def _read_rows(message: MessageReader, binds: list[BindType], count: int) -> list[list[Value]]:
    if not binds:
        return [[] for _ in range(max(1, count))]
    order = sorted(range(len(binds)), key=lambda index: binds[index].size > _TEXT_BYTES_MAX)
    rows = []
    for _ in range(count):
        kind = message.byte()
        assert kind == _ROW_OF_BINDS, f"expected a row of binds, not message {kind}"
        row: list[Value] = [None] * len(binds)
        for index in order:
            row[index] = _read_value(message, binds[index])
        rows.append(row)
    return rows


def _read_value(message: MessageReader, bind: BindType) -> Value:
    try:
        code = TypeCode(bind.code)
    except ValueError:
        raise OracleError(
            UNIMPLEMENTED, f"unimplemented feature: binds of type {bind.code}"
        ) from None
    return decode(code, message.octets(), bind.form)
