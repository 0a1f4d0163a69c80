"""Makes a DataFrame's columns those of a message: key, payload, timestamp and headers.

Rules of this file: everything that can be wrong with a column is found before a row is computed,
and reported with the column's name and the remedy. The result has the columns of `fields`, with key
and payload as bytes, so that all further code knows one shape.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as all Spark code has it
from pyspark.sql import types as T  # noqa: N812

from pxrs_ray.errors import UsageError
from pxrs_ray.feed.fields import HEADERS, KEY, PAYLOAD, SCOPE, TIMESTAMP
from pxrs_ray.supervision.restart_rules import first_line

Expression = str | Column


class WholeRow(StrEnum):
    """A payload that holds every column of its row.

    JSON is an object in UTF-8. ARROW is an Arrow IPC stream of one row, which keeps every type and
    which `decode_arrow_row` reads.
    """

    JSON = "json"
    ARROW = "arrow"


def message_columns(
    df: DataFrame,
    key: Expression | None,
    payload: Expression | WholeRow,
    timestamp: Expression | None = None,
    headers: Expression | None = None,
    scope: Expression | None = None,
) -> DataFrame:
    """The DataFrame of messages. Raises UsageError naming the column that does not fit."""
    columns = [
        _binary(df, KEY, key) if key is not None else F.lit(None).cast("binary").alias(KEY),
        _payload(df, payload),
    ]
    if timestamp is not None:
        columns.append(_timestamp(df, timestamp))
    if headers is not None:
        columns.append(_headers(df, headers))
    if scope is not None:
        kind, column = _resolved(df, SCOPE, scope)
        if not isinstance(kind, T.StringType):
            raise _wrong_type(SCOPE, scope, kind, "a string", "cast({} as string)")
        columns.append(column.alias(SCOPE))
    return df.select(*columns)


def decode_arrow_row(payload: bytes) -> dict[str, Any]:
    """The row in a payload of `WholeRow.ARROW`, by column name."""
    row: dict[str, Any] = pa.ipc.open_stream(payload).read_all().to_pylist()[0]
    return row


def _payload(df: DataFrame, payload: Expression | WholeRow) -> Column:
    if payload is WholeRow.JSON:
        return F.to_json(F.struct("*"), {"ignoreNullFields": "false"}).cast("binary").alias(PAYLOAD)
    if payload is WholeRow.ARROW:
        return F.struct("*").alias(PAYLOAD)
    return _binary(df, PAYLOAD, payload)


def _binary(df: DataFrame, name: str, wanted: Expression) -> Column:
    kind, column = _resolved(df, name, wanted)
    if not isinstance(kind, T.StringType | T.BinaryType):
        remedy = "cast({} as string)" if isinstance(kind, T.AtomicType) else "to_json({})"
        raise _wrong_type(name, wanted, kind, "a string or binary", remedy)
    return column.cast("binary").alias(name)


def _timestamp(df: DataFrame, wanted: Expression) -> Column:
    kind, column = _resolved(df, TIMESTAMP, wanted)
    if isinstance(kind, T.TimestampType):
        return F.unix_millis(column).alias(TIMESTAMP)
    if isinstance(kind, T.TimestampNTZType | T.DateType):
        return F.unix_millis(column.cast("timestamp")).alias(TIMESTAMP)
    if isinstance(kind, T.LongType):
        return column.alias(TIMESTAMP)
    raise _wrong_type(
        TIMESTAMP, wanted, kind, "a timestamp, or a bigint of milliseconds", "to_timestamp({})"
    )


def _headers(df: DataFrame, wanted: Expression) -> Column:
    kind, column = _resolved(df, HEADERS, wanted)
    fits = (
        isinstance(kind, T.MapType)
        and isinstance(kind.keyType, T.StringType)
        and isinstance(kind.valueType, T.StringType | T.BinaryType)
    )
    if not fits:
        raise _wrong_type(
            HEADERS, wanted, kind, "a map of strings to strings or binaries", "map('name', {})"
        )
    return column.cast("map<string,binary>").alias(HEADERS)


def _resolved(df: DataFrame, name: str, wanted: Expression) -> tuple[T.DataType, Column]:
    """The type and the column of what the user named. Raises UsageError when there is none."""
    if isinstance(wanted, Column):
        column = wanted
    elif wanted in df.columns:
        column = F.col(f"`{wanted}`")
    else:
        try:
            column = F.expr(str(wanted))
        except PySparkException as error:
            raise _unusable(df, name, wanted, error) from None
    try:
        return df.select(column).schema[0].dataType, column
    except PySparkException as error:
        raise _unusable(df, name, wanted, error) from None


def _unusable(df: DataFrame, name: str, wanted: Expression, error: PySparkException) -> UsageError:
    why = first_line(str(error.desc) if hasattr(error, "desc") else error)
    return UsageError(
        f"{name}={shown(wanted)} is neither a column of this DataFrame nor an expression over "
        f"them; it has {', '.join(df.columns)}. Spark says: {why}"
    )


def _wrong_type(
    name: str, wanted: Expression, kind: T.DataType, fits: str, remedy: str
) -> UsageError:
    called = shown(wanted)
    example = remedy.format(called.strip("'"))
    return UsageError(
        f"{name}={called} is {kind.simpleString()}; a {name} is {fits}. "
        f'Write for example {name}="{example}"'
    )


def shown(wanted: Expression) -> str:
    """What the user called a column or an expression."""
    return repr(wanted) if isinstance(wanted, str) else str(wanted).removeprefix("Column<")[:-1]
