"""`Batch`: messages of one partition in columns. The unit of the data plane.

Rules of this file. A batch's offsets are consecutive from `base_offset` on. Columns are Arrow
arrays, most often views into the bytes that came off the wire: slicing copies nothing, and what
is kept keeps those bytes alive. `rows()` is the fast way for per-message Python; `Message`
objects are sugar. Payloads stay bytes: nothing of a message is evaluated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa
from xxhash import xxh3_64_intdigest

from pxrs_ray.data.frame import (
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
    plain_rows_in,
    unpack_header,
)
from pxrs_ray.data.message_form import binary_column, header_column, id_column, timestamp_column
from pxrs_ray.data.plain_rows import PlainRows, body_of, rows_of
from pxrs_ray.data.protocol import Fetched
from pxrs_ray.errors import UsageError
from pxrs_ray.model import Message, Offset, PartitionId

Headers = Mapping[str, bytes] | Sequence[tuple[str, bytes]] | None

# Offset, key, payload, timestamp in ms, headers, id.
Fields = tuple[Offset, bytes | None, bytes, int, tuple[tuple[str, bytes], ...], str | None]

# Timestamp in ms, headers, id: what a message may have beside its key and payload.
Beside = tuple[int, tuple[tuple[str, bytes], ...], str | None]
# Offset, key, payload, and what is beside them: None where the whole batch has the same.
Cell = tuple[Offset, bytes | None, bytes, Beside | None]


class Batch:
    """Columns `keys` (nullable), `payloads`, timestamps, and where given headers and ids."""

    __slots__ = (
        "_columns",
        "base_offset",
        "flags",
        "partition",
        "plain_rows",
        "timestamp_fixed_ms",
    )

    def __init__(
        self,
        partition: PartitionId,
        base_offset: Offset,
        flags: int,
        columns: pa.RecordBatch | PlainRows,
        timestamp_fixed_ms: int,
    ) -> None:
        self.partition = partition
        self.base_offset = base_offset
        self.flags = flags
        # A few messages come as rows; columns are made of them when somebody wants those.
        self.plain_rows = columns if isinstance(columns, PlainRows) else None
        self._columns = None if isinstance(columns, PlainRows) else columns
        self.timestamp_fixed_ms = timestamp_fixed_ms

    @property
    def columns(self) -> pa.RecordBatch:
        """The messages as Arrow has them."""
        if self._columns is None:
            assert self.plain_rows is not None, "it has one of them"
            self._columns = self.plain_rows.columns(SCHEMAS[self.flags])
        return self._columns

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
            arrays.append(timestamp_column(timestamps_ms).fill_null(timestamp_ms))
        if headers is not None:
            flags |= HAS_HEADERS
            arrays.append(header_column(headers))
        if ids is not None:
            flags |= HAS_IDS
            arrays.append(id_column(ids))
        try:
            columns = pa.RecordBatch.from_arrays(arrays, schema=SCHEMAS[flags])
        except ValueError as error:
            raise UsageError(f"the columns do not fit together: {error}") from error
        return cls(-1, 0, flags, columns, timestamp_ms)

    @classmethod
    def of_few(
        cls, keys: Sequence[bytes | str | None], payloads: Sequence[bytes], timestamp_ms: int
    ) -> Batch:
        """As `of`, for messages that are keys and payloads alone, as they were checked one by
        one; quicker where they are few."""
        rows = rows_of(keys, payloads)
        if rows is None:
            return cls.of(keys, payloads, timestamp_ms=timestamp_ms)
        return cls(-1, 0, 0, rows, timestamp_ms)

    @classmethod
    def from_frame(cls, partition: PartitionId, header: FrameHeader, body: Any) -> Batch:
        """Decode a frame whose body was checked; what is not small is not copied."""
        columns = plain_rows_in(header, body) or decode_body(header, body)
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
            times = self.columns.column(2).to_numpy()
            low, high = int(times.min()), int(times.max())
        if self.plain_rows is not None and options is None:
            body = pa.py_buffer(body_of(self.plain_rows))
        else:
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
        rows = self.plain_rows
        return int(self.columns.num_rows) if rows is None else len(rows.payloads)

    def __iter__(self) -> Iterator[Message]:
        partition = self.partition
        for fields in self.fields():
            yield Message(partition, *fields)

    def fields(self) -> Iterator[Fields]:
        """What the objects are filled from that users see; nothing is made of it here."""
        columns = (*self._rows_listed(), *self._beside_listed())
        return zip(self._offsets_listed(), *columns, strict=False)

    def cells(self) -> Iterator[Cell]:
        """As `fields`, for who takes what all messages of a batch have once."""
        beside = zip(*self._beside_listed(), strict=False) if self.flags else repeat(None)
        return zip(self._offsets_listed(), *self._rows_listed(), beside, strict=False)

    def _rows_listed(self) -> tuple[Sequence[bytes | None], Sequence[bytes]]:
        return self.plain_rows or (self.keys.to_pylist(), self.payloads.to_pylist())

    def _beside_listed(self) -> tuple[Iterable[int], Iterable[Any], Iterable[str | None]]:
        stamped, headers, ids = self.flags & HAS_TIMESTAMPS, self.headers, self.ids
        return (
            self.timestamps_ms.tolist() if stamped else repeat(self.timestamp_fixed_ms),
            repeat(()) if headers is None else headers,
            repeat(None) if ids is None else ids,
        )

    def _offsets_listed(self) -> Sequence[Offset]:
        return range(self.base_offset, self.end_offset)

    def __getitem__(self, index: int) -> Message:
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        return next(iter(self.slice(index % len(self), index % len(self) + 1)))

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
        column = self.columns.column("headers")
        try:
            return [tuple(pairs or ()) for pairs in column.to_pylist()]
        except UnicodeDecodeError:
            found = [row.values for row in column]  # None where a message has no headers
            return [
                tuple(zip(read_names(row.field(0)), row.field(1).to_pylist(), strict=True))
                if row is not None
                else ()
                for row in found
            ]

    @property
    def ids(self) -> list[str | None] | None:
        """Each message's id; None when no message of the batch has one."""
        if not self.flags & HAS_IDS:
            return None
        return read_names(self.columns.column("id"))

    def rows(self) -> Iterator[tuple[bytes | None, bytes]]:
        """Iterate (key, payload) pairs: the fastest per-message loop, about 30 ns a message."""
        return zip(*self._rows_listed(), strict=True)

    def slice(self, start: int, end: int | None = None) -> Batch:
        """The messages `start` up to, not including, `end` of this batch; copies nothing."""
        stop = len(self) if end is None else min(end, len(self))
        if not 0 <= start <= stop:
            raise UsageError(f"cannot slice {start}..{end} of a batch of {len(self)}")
        rows, columns = self.plain_rows, self._columns
        if rows is not None:
            columns = PlainRows(rows.keys[start:stop], rows.payloads[start:stop])
        else:
            columns = self.columns.slice(start, stop - start)
        return Batch(
            self.partition, self.base_offset + start, self.flags, columns, self.timestamp_fixed_ms
        )

    def pick(self, runs: Sequence[tuple[Offset, Offset]]) -> Batch:
        """The messages whose offsets are in `runs` (first and end of each) alone."""
        inside = np.zeros(len(self), bool)
        for first, end in runs:
            inside |= (self.offsets >= first) & (self.offsets < end)
        rows = np.flatnonzero(inside)
        return PickedBatch(self, self.columns.take(pa.array(rows)), self.offsets[rows])

    @property
    def offsets(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The offset of each message."""
        return np.arange(self.base_offset, self.end_offset, dtype=np.int64)

    def to_arrow(self) -> pa.RecordBatch:
        """All that is known, as columns partition, offset, key, timestamp_ms, payload, headers, id.

        Headers and ids are all null where the batch has none, so that batches concatenate.
        """
        count = len(self)
        return pa.RecordBatch.from_arrays(
            [
                pa.array(np.full(count, self.partition, np.int32)),
                pa.array(self.offsets),
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


class PickedBatch(Batch):
    """Some messages of a batch, each with its own offset; it ends where the batch ends."""

    __slots__ = ("_end", "_offsets")

    def __init__(
        self, whole: Batch, columns: pa.RecordBatch, offsets: np.ndarray[Any, np.dtype[np.int64]]
    ) -> None:
        super().__init__(
            whole.partition, whole.base_offset, whole.flags, columns, whole.timestamp_fixed_ms
        )
        self._offsets = offsets
        self._end = whole.end_offset

    @property
    def offsets(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The offset of each message."""
        return self._offsets

    @property
    def end_offset(self) -> Offset:
        """The checkpoint when all are processed: that of the batch that these are from."""
        return self._end

    def _offsets_listed(self) -> Sequence[Offset]:
        found: list[Offset] = self._offsets.tolist()
        return found

    def slice(self, start: int, end: int | None = None) -> Batch:
        """The messages `start` up to, not including, `end` of these."""
        plain = super().slice(start, end)
        return PickedBatch(self, plain.columns, self._offsets[start : start + len(plain)])


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


def read_names(column: pa.StringArray) -> list[Any]:
    """Texts that somebody else may have written: what is no UTF-8 is shown as its bytes.

    Arrow does not look, and a message that nobody can read could not be dealt with at all.
    """
    try:
        return column.to_pylist()  # type: ignore[no-any-return]
    except UnicodeDecodeError:
        raw = column.cast(pa.binary()).to_pylist()
        return [None if name is None else name.decode(errors="backslashreplace") for name in raw]


def _serialize(columns: pa.RecordBatch, options: pa.ipc.IpcWriteOptions | None) -> pa.Buffer:
    if options is None:
        return columns.serialize(memory_pool=pa.system_memory_pool())  # see `route_columns`
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
