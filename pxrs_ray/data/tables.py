"""Converts tables to batches: Arrow tables, record batches and pandas frames with columns of known
names."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from pxrs_ray.data.batch import Batch
from pxrs_ray.errors import UsageError

COLUMNS = ("key", "payload", "timestamp_ms", "headers", "id", "scope")


def batch_of_table(table: Any, now_ms: int) -> tuple[Batch, Any]:
    """A batch of a table's columns, and its column of tenants or labels; None when it has none.

    Raises UsageError naming the columns when there is no `payload`, or an unknown one.
    """
    if not isinstance(table, (pa.Table, pa.RecordBatch)):
        try:
            table = pa.Table.from_pandas(table, preserve_index=False)
        except (AttributeError, TypeError, ValueError, pa.ArrowException) as error:
            raise UsageError(
                f"send_batch takes keys and payloads, or a table, not {type(table).__name__}"
            ) from error
    names = table.schema.names
    unknown = [name for name in names if name not in COLUMNS or names.count(name) > 1]
    if unknown or "payload" not in table.schema.names:
        raise UsageError(f"a table needs 'payload' and may have {COLUMNS}, not {unknown}")
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    columns = {name: table.column(name).combine_chunks() for name in table.schema.names}
    headers: Any = columns.get("headers")
    if headers is not None and not pa.types.is_map(headers.type):
        # Rows of a data frame: what one of them has not, others have.
        rows = headers.to_pylist()
        named = [isinstance(row, dict) for row in rows]
        headers = [
            {name: value for name, value in row.items() if value is not None} if plain else row
            for row, plain in zip(rows, named, strict=True)
        ]
    batch = Batch.of(
        columns.get("key", pa.nulls(table.num_rows, pa.binary())),
        columns["payload"],
        timestamp_ms=now_ms,
        timestamps_ms=columns.get("timestamp_ms"),
        headers=headers,
        ids=columns.get("id"),
    )
    return batch, columns.get("scope")
