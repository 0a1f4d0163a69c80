"""The fenced sink: a handler's rows and its progress in one transaction of the user's database.

    def handle(message):
        with message.transaction(connection) as cursor:
            cursor.execute("UPDATE account SET balance = balance + ? WHERE id = ?", ...)

    async def handle(message):
        async with message.transaction(connection) as cursor:
            await cursor.execute("UPDATE account SET balance = balance + ? WHERE id = ?", ...)

Beside the user's rows the transaction changes rows of `pxrs_sink_owner` and `pxrs_sink_page`:
which messages of the partition are applied in this database, exactly, and under which epoch. A
message that is delivered again finds itself there, and its block is undone; an owner whose epoch
is over finds a higher one there, and gets Fenced. So results are there exactly once, whatever dies
when.
"""

from __future__ import annotations

from pxrs_ray.sink.dialects import SinkDialect, dialect_of
from pxrs_ray.sink.driving import AsyncSinkCursor, SinkCursor
from pxrs_ray.sink.transaction import (
    SinkPlace,
    SinkTransaction,
    create_table,
    is_applied,
    is_applied_async,
    transaction,
)

__all__ = [
    "AsyncSinkCursor",
    "SinkCursor",
    "SinkDialect",
    "SinkPlace",
    "SinkTransaction",
    "create_table",
    "dialect_of",
    "is_applied",
    "is_applied_async",
    "transaction",
]
