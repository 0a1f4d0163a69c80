"""Messages that the server sends: keys and values, status, errors, descriptions and rows.

What they imitate: a 19c server (field version 12). An error message also ends every execute and
fetch, with number 0 when all went well; it carries the cursor, the row count and the errors of an
array DML. A status message ends the small calls. Both tell whether a transaction is open, by
which the driver decides whether to roll back when a connection is given back.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.contract.oracle_stand_in.authentication import Pairs
from tests.contract.oracle_stand_in.engines import RowError
from tests.contract.oracle_stand_in.errors import OracleError
from tests.contract.oracle_stand_in.framing import MessageWriter
from tests.contract.oracle_stand_in.jdbc_values import Column
from tests.contract.oracle_stand_in.values import (
    CHARSET_UTF8,
    CHARSET_UTF16,
    TEXTS,
    TypeCode,
    Value,
    encode,
)

FIELD_VERSION_19C = 12
PROTOCOL = 1
DATA_TYPES = 2
ERROR = 4
ROW_HEADER = 6
ROW = 7
PARAMETER = 8
STATUS = 9
DESCRIBE = 16
NO_DATA_FOUND = OracleError(1403, "no data found")
ARRAY_DML_ERRORS = OracleError(24381, "error(s) in array DML")

_TRANSACTION_OPEN = 2
_SCALE_ANY = 0x81
_TEXT_BYTES_MAX = 4_000
_FIXED_BYTES = {
    TypeCode.NUMBER: 22,
    TypeCode.BINARY_DOUBLE: 8,
    TypeCode.DATE: 7,
    TypeCode.TIMESTAMP: 11,
    TypeCode.TIMESTAMP_TZ: 13,
    TypeCode.INTERVAL_DS: 11,
    TypeCode.CLOB: 4_000,
}


def protocol_info() -> bytes:
    """The server's capabilities: character sets, field version, texts of 4,000 bytes at most."""
    field_layout = bytearray(11)
    field_layout[9:11] = CHARSET_UTF16.to_bytes(2, "big")
    compile_caps = bytearray(46)
    compile_caps[7] = FIELD_VERSION_19C
    writer = MessageWriter().byte(PROTOCOL, 6, 0).raw(b"Oracle stand-in, as 19c\0")
    writer.raw(CHARSET_UTF8.to_bytes(2, "little")).byte(1).raw(bytes(2))
    writer.raw(len(field_layout).to_bytes(2, "big")).raw(bytes(field_layout))
    return bytes(writer.octets(bytes(compile_caps)).octets(bytes(11)).data)


def data_types() -> bytes:
    """The empty list of conversions: every type is sent as the client asked."""
    return bytes([DATA_TYPES, 0, 0])


def key_values(pairs: Pairs) -> bytes:
    """What a phase of the logon answers."""
    writer = MessageWriter().byte(PARAMETER).integer(len(pairs))
    for key, value, flags in pairs:
        writer.counted_octets(key.encode()).counted_octets(value.encode()).integer(flags)
    return bytes(writer.data) + status(in_transaction=False)


def status(*, in_transaction: bool) -> bytes:
    """The end of a call that returns nothing."""
    flags = _TRANSACTION_OPEN if in_transaction else 0
    return bytes(MessageWriter().byte(STATUS).integer(flags, 0).data)


def completion(
    error: OracleError | None = None,
    *,
    in_transaction: bool,
    cursor: int = 0,
    row_count: int = 0,
    row_errors: Sequence[RowError] = (),
) -> bytes:
    """The end of an execute or a fetch, well or ill."""
    writer = MessageWriter().byte(ERROR).integer(_TRANSACTION_OPEN if in_transaction else 0)
    writer.integer(0, 0, 0, 0, 0).integer(cursor, 0).byte(0, 0, 0, 0, 0, 0)
    writer.integer(0, 0).byte(0).integer(0, 0)  # the last row's id: none
    writer.integer(0).byte(0, 0).integer(0, 0, 0)
    writer.integer(len(row_errors))
    if row_errors:
        writer.byte(1).integer(*(failed.error.code for failed in row_errors))
    writer.integer(len(row_errors))
    if row_errors:
        writer.byte(1).integer(*(failed.offset for failed in row_errors))
    writer.integer(len(row_errors))
    if row_errors:
        writer.byte(1)
        for failed in row_errors:
            text = failed.error.text.encode()
            writer.integer(len(text)).octets(text).byte(0, 0)
    writer.integer(error.code if error else 0, row_count)
    if error:
        writer.octets(f"{error.text}\n".encode())
    return bytes(writer.data)


def row_counts(counts: Sequence[int]) -> bytes:
    """The row count of each row of an array DML, where the client asked for them."""
    writer = MessageWriter().byte(PARAMETER).integer(0, 0, 0, 0, len(counts))
    return bytes(writer.integer(*counts).data)


def description(columns: Sequence[Column]) -> bytes:
    """What the columns of a query are."""
    writer = MessageWriter().byte(DESCRIBE, 0).integer(0, len(columns)).byte(0)
    for position, column in enumerate(columns, start=1):
        text = column.code in TEXTS or column.code == TypeCode.CLOB
        wide = min(_TEXT_BYTES_MAX, column.size * (4 if text else 1))
        scale = _SCALE_ANY if column.code == TypeCode.NUMBER else 0
        writer.byte(column.code, 0, 0, scale).integer(_FIXED_BYTES.get(column.code, wide))
        writer.integer(0, 0, 0, 0, CHARSET_UTF8 if text else 0).byte(1 if text else 0)
        writer.integer(wide // 4 if text else 0, 0).byte(1, 0)
        writer.counted_octets(column.name.encode()).integer(0, 0, position, 0)
    return bytes(writer.integer(0, 0, 0, 0, 0, 0).data)


def rows(columns: Sequence[Column], values: Sequence[Sequence[Value]]) -> bytes:
    """A row header and rows. A CLOB goes as a LONG: text, indicator, return code."""
    writer = MessageWriter().byte(ROW_HEADER, 0).integer(0, 0, 0, 0, 0, 0)
    for row in values:
        writer.byte(ROW)
        for column, value in zip(columns, row, strict=True):
            writer.octets(encode(column.code, value))
            if column.code == TypeCode.CLOB:
                writer.integer(0, 0)
    return bytes(writer.data)
