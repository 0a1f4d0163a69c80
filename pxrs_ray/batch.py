"""`Batch`: messages of one partition in columns. The unit of the data plane.

Rules of this file. A batch's offsets are consecutive from `base_offset` on. Columns are Arrow
arrays, most often views into the bytes that came off the wire: slicing copies nothing, and what
is kept keeps those bytes alive. `rows()` is the fast way for per-message Python; `Message`
objects are sugar. Payloads stay bytes: nothing of a message is evaluated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh3_64_intdigest

from pxrs_ray.errors import UsageError
from pxrs_ray.log.frame import (
    HAS_HEADERS,
    HAS_IDS,
    HAS_TIMESTAMPS,
    HEADERS_TYPE,
    SCHEMAS,
    FrameHeader,
    check_body,
    decode_body,
    frames_in,
    pack_header,
    unpack_header,
)
from pxrs_ray.log.wire import Fetched
from pxrs_ray.model import Message, Offset, PartitionId

Headers = Mapping[str, bytes] | Sequence[tuple[str, bytes]] | None


def binary_column(column: Any, name: str) -> pa.Array:
    """Make an Arrow binary array of a list, Arrow, numpy or pandas column of bytes or str.

    Raises UsageError naming the column when its values are neither.
    """
    try:
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        if not isinstance(column, pa.Array):
            return pa.array(column, pa.binary())
        return column if column.type == pa.binary() else column.cast(pa.binary())
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise UsageError(f"column {name!r} must hold bytes or str: {error}") from error


class Batch:
    """Columns `keys` (nullable), `payloads`, timestamps, and where given headers and ids."""

    __slots__ = ("base_offset", "columns", "flags", "partition", "timestamp_fixed_ms")

    def __init__(
        self,
        partition: PartitionId,
        base_offset: Offset,
        flags: int,
        columns: pa.RecordBatch,
        timestamp_fixed_ms: int,
    ) -> None:
        self.partition = partition
        self.base_offset = base_offset
        self.flags = flags
        self.columns = columns
        self.timestamp_fixed_ms = timestamp_fixed_ms

    @classmethod
    def of(
        cls,
        keys: Any,
        payloads: Any,
        *,
        timestamp_ms: int,
        timestamps_ms: Any = None,
        headers: Sequence[Headers] | None = None,
        ids: Any = None,
    ) -> Batch:
        """Make a batch of columns, not yet on any partition.

        `timestamps_ms` (a column; nulls become `timestamp_ms`), `headers` and `ids` may be left
        out. Raises UsageError when lengths differ or a payload is null.
        """
        key_column, payload_column = binary_column(keys, "key"), binary_column(payloads, "payload")
        if payload_column.null_count:
            row = int(np.argmax(payload_column.is_null().to_numpy(zero_copy_only=False)))
            raise UsageError(f"the payload of row {row} is null: use b'' for an empty one")
        flags, arrays = 0, [key_column, payload_column]
        if timestamps_ms is not None:
            flags |= HAS_TIMESTAMPS
            stamps = timestamps_ms
            if not isinstance(stamps, pa.Array):
                stamps = pa.array(stamps, pa.int64())
            arrays.append(pc.fill_null(stamps.cast(pa.int64()), timestamp_ms))
        if headers is not None:
            flags |= HAS_HEADERS
            pairs = [list(h.items()) if isinstance(h, Mapping) else h for h in headers]
            arrays.append(pa.array(pairs, HEADERS_TYPE))
        if ids is not None:
            flags |= HAS_IDS
            arrays.append(pa.array(ids, pa.utf8()) if not isinstance(ids, pa.Array) else ids)
        try:
            columns = pa.RecordBatch.from_arrays(arrays, schema=SCHEMAS[flags])
        except ValueError as error:
            raise UsageError(f"the columns do not fit together: {error}") from error
        return cls(-1, 0, flags, columns, timestamp_ms)

    @classmethod
    def from_frame(cls, partition: PartitionId, header: FrameHeader, body: Any) -> Batch:
        """Decode a frame whose body was checked, without copying."""
        columns = decode_body(header, body)
        return cls(partition, header.base_offset, header.flags, columns, header.timestamp_min_ms)

    @classmethod
    def from_wire(cls, partition: PartitionId, packed_header: bytes, body: Any) -> Batch:
        """Check and decode a frame as it travels. Raises LogCorrupted."""
        header = unpack_header(packed_header)
        check_body(header, body)
        return cls.from_frame(partition, header, body)

    def to_wire(
        self,
        producer_id: bytes,
        producer_epoch: int,
        sequence: int,
        options: pa.ipc.IpcWriteOptions | None = None,
    ) -> tuple[bytes, pa.Buffer]:
        """Encode as a frame without a base offset: its packed header, and its body."""
        low = high = self.timestamp_fixed_ms
        if self.flags & HAS_TIMESTAMPS and len(self):
            bounds = pc.min_max(self.columns.column(2))
            low, high = bounds["min"].as_py(), bounds["max"].as_py()
        body = _serialize(self.columns, options)
        header = FrameHeader(
            len(self),
            self.flags,
            0,
            producer_id,
            producer_epoch,
            sequence,
            low,
            high,
            body.size,
            xxh3_64_intdigest(body),
        )
        return pack_header(header), body

    def __len__(self) -> int:
        return int(self.columns.num_rows)

    def __iter__(self) -> Iterator[Message]:
        offset, partition = self.base_offset, self.partition
        stamps: list[int] = self.timestamps_ms.tolist()
        headers = self.headers or [()] * len(self)
        ids = self.ids or [None] * len(self)
        for (key, payload), stamp, pairs, message_id in zip(
            self.rows(), stamps, headers, ids, strict=True
        ):
            yield Message(partition, offset, key, payload, stamp, pairs, message_id)
            offset += 1

    def __getitem__(self, index: int) -> Message:
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        start = index % len(self)
        return next(iter(self.slice(start, start + 1)))

    def __repr__(self) -> str:
        return (
            f"Batch(partition={self.partition}, offsets={self.base_offset}..{self.end_offset - 1})"
        )

    @property
    def end_offset(self) -> Offset:
        """The offset after the last message: the checkpoint when all are processed."""
        return self.base_offset + len(self)

    @property
    def keys(self) -> pa.BinaryArray:
        """The keys; null where a message has none."""
        return self.columns.column(0)

    @property
    def payloads(self) -> pa.BinaryArray:
        """The payloads; never null."""
        return self.columns.column(1)

    @property
    def timestamps_ms(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """A timestamp a message."""
        if self.flags & HAS_TIMESTAMPS:
            stamps: np.ndarray[Any, np.dtype[np.int64]] = self.columns.column(2).to_numpy()
            return stamps
        return np.full(len(self), self.timestamp_fixed_ms, np.int64)

    @property
    def headers(self) -> list[tuple[tuple[str, bytes], ...]] | None:
        """Each message's headers; None when no message of the batch has any."""
        if not self.flags & HAS_HEADERS:
            return None
        return [tuple(pairs or ()) for pairs in self.columns.column("headers").to_pylist()]

    @property
    def ids(self) -> list[str | None] | None:
        """Each message's id; None when no message of the batch has one."""
        if not self.flags & HAS_IDS:
            return None
        found: list[str | None] = self.columns.column("id").to_pylist()
        return found

    def rows(self) -> Iterator[tuple[bytes | None, bytes]]:
        """Iterate (key, payload) pairs: the fastest per-message loop, about 30 ns a message."""
        return zip(self.keys.to_pylist(), self.payloads.to_pylist(), strict=True)

    def slice(self, start: int, end: int | None = None) -> Batch:
        """The messages `start` up to, not including, `end` of this batch; copies nothing."""
        stop = len(self) if end is None else min(end, len(self))
        if not 0 <= start <= stop:
            raise UsageError(f"cannot slice {start}..{end} of a batch of {len(self)}")
        columns = self.columns.slice(start, stop - start)
        return Batch(
            self.partition, self.base_offset + start, self.flags, columns, self.timestamp_fixed_ms
        )

    def to_arrow(self) -> pa.RecordBatch:
        """All that is known, as columns partition, offset, key, timestamp_ms, payload, headers, id.

        Headers and ids are all null where the batch has none, so that batches concatenate.
        """
        count = len(self)
        offsets = np.arange(self.base_offset, self.end_offset, dtype=np.int64)
        return pa.RecordBatch.from_arrays(
            [
                pa.array(np.full(count, self.partition, np.int32)),
                pa.array(offsets),
                self.keys,
                pa.array(self.timestamps_ms),
                self.payloads,
                self._column_or_nulls("headers", HAS_HEADERS, HEADERS_TYPE),
                self._column_or_nulls("id", HAS_IDS, pa.utf8()),
            ],
            schema=ARROW_SCHEMA,
        )

    def _column_or_nulls(self, name: str, flag: int, kind: pa.DataType) -> pa.Array:
        return self.columns.column(name) if self.flags & flag else pa.nulls(len(self), kind)


ARROW_SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("key", pa.binary()),
        ("timestamp_ms", pa.int64()),
        ("payload", pa.binary()),
        ("headers", HEADERS_TYPE),
        ("id", pa.utf8()),
    ]
)


def _serialize(columns: pa.RecordBatch, options: pa.ipc.IpcWriteOptions | None) -> pa.Buffer:
    if options is None:
        return columns.serialize()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, columns.schema, options=options) as stream:
        stream.write_batch(columns)
    reader = pa.ipc.MessageReader.open_stream(sink.getvalue())
    reader.read_next_message()
    return reader.read_next_message().serialize()


def batches(fetched: Fetched, offset: Offset) -> list[Batch]:
    """Decode what a fetch brought, from `offset` on. Raises LogCorrupted."""
    found = []
    for chunk in fetched.chunks:
        for header, body in frames_in(chunk):
            if header.end_offset <= offset:
                continue
            batch = Batch.from_frame(fetched.partition, header, body)
            found.append(batch.slice(max(0, offset - header.base_offset)))
    return found
