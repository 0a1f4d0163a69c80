"""Values on their way into and out of JDBC.

Rules of this file: a bind goes in as the Java type that both engines take for the database's, and
a column comes out as the Python type that `values.encode` knows for its type code. A TIMESTAMP
without fractions is what both engines make of DATE, and is told as DATE again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import jpype

from tests.contract.oracle_stand_in.errors import OracleError
from tests.contract.oracle_stand_in.values import TypeCode, Value

_JDBC_VARCHAR = 12

JDBC_TYPES = {
    -8: TypeCode.VARCHAR,
    -5: TypeCode.NUMBER,
    -6: TypeCode.NUMBER,
    -3: TypeCode.RAW,
    -2: TypeCode.RAW,
    0: TypeCode.VARCHAR,
    1: TypeCode.VARCHAR,
    2: TypeCode.NUMBER,
    3: TypeCode.NUMBER,
    4: TypeCode.NUMBER,
    5: TypeCode.NUMBER,
    6: TypeCode.BINARY_DOUBLE,
    7: TypeCode.BINARY_DOUBLE,
    8: TypeCode.BINARY_DOUBLE,
    12: TypeCode.VARCHAR,
    91: TypeCode.DATE,
    93: TypeCode.TIMESTAMP,
    2005: TypeCode.CLOB,
    2014: TypeCode.TIMESTAMP_TZ,
}


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a query's answer."""

    name: str
    code: TypeCode
    size: int


def bind(statement: Any, index: int, value: Value) -> None:
    """Set one bind of a prepared statement."""
    if value is None or value == "":
        statement.setNull(index, _JDBC_VARCHAR)
    elif isinstance(value, str):
        statement.setString(index, value)
    elif isinstance(value, int):
        statement.setLong(index, value)
    elif isinstance(value, Decimal):
        if value == value.to_integral_value() and abs(value) < 1 << 63:
            statement.setLong(index, int(value))
        else:
            statement.setBigDecimal(index, jpype.JClass("java.math.BigDecimal")(format(value, "f")))
    elif isinstance(value, float):
        statement.setDouble(index, value)
    elif isinstance(value, bytes):
        statement.setBytes(index, jpype.JArray(jpype.JByte)(value))
    elif isinstance(value, datetime):
        name = "LocalDateTime" if value.tzinfo is None else "OffsetDateTime"
        statement.setObject(index, jpype.JClass(f"java.time.{name}").parse(value.isoformat()))
    else:
        nanos = value // timedelta(microseconds=1) * 1_000
        statement.setObject(index, jpype.JClass("java.time.Duration").ofNanos(nanos))


def describe(metadata: Any) -> list[Column]:
    """The columns of an answer, in the database's types."""
    columns = []
    for index in range(1, metadata.getColumnCount() + 1):
        type_name = str(metadata.getColumnTypeName(index)).upper()
        code = JDBC_TYPES.get(metadata.getColumnType(index))
        if type_name.startswith("INTERVAL"):
            code = TypeCode.INTERVAL_DS
        elif code == TypeCode.TIMESTAMP and metadata.getScale(index) == 0:
            code = TypeCode.DATE
        if code is None:
            raise OracleError(932, f"inconsistent datatypes: {type_name} cannot be fetched")
        label = str(metadata.getColumnLabel(index)).upper()
        columns.append(Column(label, code, max(1, metadata.getPrecision(index))))
    return columns


def fetch(results: Any, columns: list[Column]) -> list[list[Value]]:
    """Every row of an answer: the stand-in reads it all at once, at the execute."""
    getters = [_GETTERS[column.code] for column in columns]
    rows = []
    while results.next():
        rows.append([getter(results, index) for index, getter in enumerate(getters, start=1)])
    return rows


def _get_text(results: Any, index: int) -> Value:
    text = results.getString(index)
    return None if text is None else str(text)


def _get_number(results: Any, index: int) -> Value:
    number = results.getBigDecimal(index)
    return None if number is None else Decimal(str(number.toPlainString()))


def _get_double(results: Any, index: int) -> Value:
    number = results.getDouble(index)
    return None if results.wasNull() else float(number)


def _get_bytes(results: Any, index: int) -> Value:
    data = results.getBytes(index)
    return None if data is None else bytes(data)


def _get_local_time(results: Any, index: int) -> Value:
    moment = results.getObject(index, jpype.JClass("java.time.LocalDateTime"))
    return None if moment is None else datetime.fromisoformat(str(moment.toString()))


def _get_zoned_time(results: Any, index: int) -> Value:
    moment = results.getObject(index, jpype.JClass("java.time.OffsetDateTime"))
    return None if moment is None else datetime.fromisoformat(str(moment.toString()))


def _get_interval(results: Any, index: int) -> Value:
    size = results.getObject(index, jpype.JClass("java.time.Duration"))
    return None if size is None else timedelta(microseconds=int(size.toNanos()) // 1_000)


_GETTERS: dict[TypeCode, Callable[[Any, int], Value]] = {
    TypeCode.VARCHAR: _get_text,
    TypeCode.CLOB: _get_text,
    TypeCode.NUMBER: _get_number,
    TypeCode.BINARY_DOUBLE: _get_double,
    TypeCode.RAW: _get_bytes,
    TypeCode.DATE: _get_local_time,
    TypeCode.TIMESTAMP: _get_local_time,
    TypeCode.TIMESTAMP_TZ: _get_zoned_time,
    TypeCode.INTERVAL_DS: _get_interval,
}
