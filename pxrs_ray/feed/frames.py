"""Makes frames of a Spark partition's rows: cut, checked, hashed and grouped, always alike.

Rules of this file. The same rows in the same order give the same frames, byte for byte, however
Spark cut them into batches: that is what makes a repeated append a repeat. So cuts depend on the
rows alone, keyless rows take turns from the Spark partition's number on, and nothing that goes into
a frame's body is taken from a clock.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pxrs_ray.data.batch import Batch
from pxrs_ray.data.frame import HAS_HEADERS, HAS_TIMESTAMPS, HEADERS_TYPE, SCHEMAS
from pxrs_ray.data.protocol import OutFrame
from pxrs_ray.errors import MessageTooLarge, UsageError
from pxrs_ray.feed.fields import HEADERS, KEY, PAYLOAD, SCOPE, TIMESTAMP
from pxrs_ray.feed.fingerprint import Fingerprint
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.partitioning import Partitioner, PartitioningSpec
from pxrs_ray.partitioning.key_columns import Ints
from pxrs_ray.producer.routing import route_columns

# Fixed, for they decide which frames a feed's rows become, also when it is run again later.
CHUNK_ROWS_MAX = 1 << 16
CHUNK_BYTES_MAX = 8 << 20


class FedQueue(Protocol):
    """What the frames of a feed depend on: the queue, and how its messages are spread."""

    @property
    def queue(self) -> str:
        """The queue's full name."""

    @property
    def spread(self) -> PartitioningSpec:
        """How messages find their partitions."""

    @property
    def message_bytes_max(self) -> int:
        """The largest message."""

    @property
    def partitions(self) -> int:
        """How many there are."""

    def partitioner(self, turn: int) -> Partitioner:
        """What finds the partitions of one Spark partition's rows, keyless ones from `turn` on."""


def chunks(
    batches: Iterable[pa.RecordBatch],
    rows_max: int = CHUNK_ROWS_MAX,
    bytes_max: int = CHUNK_BYTES_MAX,
) -> Iterator[pa.RecordBatch]:
    """Cut rows into pieces of at most `rows_max` rows and about `bytes_max` bytes.

    A piece ends with the row that reaches `bytes_max`. Where it ends depends on the rows only.
    """
    held: list[pa.RecordBatch] = []
    held_rows = held_bytes = 0
    for batch in batches:
        sizes = np.cumsum(_row_bytes(batch))
        start = 0
        while start < batch.num_rows:
            before = int(sizes[start - 1]) if start else 0
            reached = int(np.searchsorted(sizes, before + bytes_max - held_bytes)) + 1
            end = min(batch.num_rows, reached, start + rows_max - held_rows)
            held.append(batch.slice(start, end - start))
            held_rows += end - start
            held_bytes += int(sizes[end - 1]) - before
            start = end
            if held_rows >= rows_max or held_bytes >= bytes_max:
                yield _joined(held)
                held, held_rows, held_bytes = [], 0, 0
    if held:
        yield _joined(held)


@dataclass(slots=True)
class Framer:
    """Makes the frames of one Spark partition of a feed, chunk after chunk.

    `producer_id` and `epoch` are the identity under which the logs recognise repeats. `called` says
    what the user called each column.
    """

    target: FedQueue
    number: int
    producer_id: bytes
    epoch: int
    timestamp_ms: int
    called: Mapping[str, str] = field(default_factory=dict)
    rows: int = 0
    payload_bytes: int = 0
    counts: Ints = field(init=False)
    _sequences: list[int] = field(init=False)
    _partitioner: Partitioner = field(init=False)
    _fingerprint: Fingerprint = field(init=False)

    def __post_init__(self) -> None:
        self.counts = np.zeros(self.target.partitions, np.int64)
        self._sequences = [0] * self.target.partitions
        self._partitioner = self.target.partitioner(self.number)
        self._fingerprint = Fingerprint(f"{self.target.spread} {self.number}")

    @property
    def digest(self) -> str:
        """A fingerprint of all rows so far; the same one means the same frames."""
        return self._fingerprint.hexdigest()

    def look(self, chunk: pa.RecordBatch) -> tuple[pa.RecordBatch, int]:
        """Check the chunk, and count it; answers its columns as messages have them, and flags.

        Raises UsageError, MessageTooLarge.
        """
        arrays, flags = self._columns(chunk)
        self._fingerprint.update(arrays)
        if SCOPE in chunk.schema.names:
            self._fingerprint.update([chunk.column(SCOPE)])
        self.rows += chunk.num_rows
        self.payload_bytes += _data_bytes(arrays[1])
        return pa.RecordBatch.from_arrays(arrays, schema=SCHEMAS[flags]), flags

    def frames(self, chunk: pa.RecordBatch) -> list[OutFrame]:
        """Look at the chunk, and make its frames, at most one a partition."""
        columns, flags = self.look(chunk)
        scopes = chunk.column(SCOPE) if SCOPE in chunk.schema.names else None
        batch = Batch(-1, 0, flags, columns, self.timestamp_ms)
        found = []
        for partition, part in route_columns(batch, self._partitioner, scopes).parts:
            sequence = self._sequences[partition]
            header, body = part.to_wire(self.producer_id, self.epoch, sequence)
            self._sequences[partition] += 1
            self.counts[partition] += len(part)
            found.append((partition, header, body))
        return found

    def _columns(self, chunk: pa.RecordBatch) -> tuple[list[pa.Array], int]:
        key, payload = chunk.column(KEY), chunk.column(PAYLOAD)
        if pa.types.is_struct(payload.type):
            payload = _rows_as_arrow(payload)
        self._refuse_nulls(PAYLOAD, payload, "coalesce({}, '')")
        arrays, flags = [key, payload], 0
        if TIMESTAMP in chunk.schema.names:
            stamps = chunk.column(TIMESTAMP)
            self._refuse_nulls(TIMESTAMP, stamps, "coalesce({}, current_timestamp())")
            arrays.append(stamps)
            flags |= HAS_TIMESTAMPS
        if HEADERS in chunk.schema.names:
            arrays.append(chunk.column(HEADERS).cast(HEADERS_TYPE))
            flags |= HAS_HEADERS
        self._refuse_large(chunk)
        return arrays, flags

    def _refuse_nulls(self, name: str, column: pa.Array, remedy: str) -> None:
        if column.null_count:
            first = int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
            called = self.called.get(name, name)
            example = remedy.format(called.strip("'"))
            raise UsageError(
                f"{name} {called} is null in {column.null_count} of {len(column)} rows (the first "
                f"is row {self.rows + first} of Spark partition {self.number}): leave those rows "
                f"out, or give {name} as {example}"
            )

    def _refuse_large(self, chunk: pa.RecordBatch) -> None:
        sizes = _row_bytes(chunk)
        limit = self.target.message_bytes_max
        if len(sizes) and sizes.max() > limit:
            large, first = int((sizes > limit).sum()), int(np.argmax(sizes > limit))
            raise MessageTooLarge(
                f"{large} of {len(sizes)} rows are above message_bytes_max = {limit} bytes (the "
                f"first is row {self.rows + first} of Spark partition {self.number}, with "
                f"{int(sizes[first])} bytes; payload is {self.called.get(PAYLOAD, PAYLOAD)}): "
                "leave them out, keep large objects elsewhere, or raise message_bytes_max of the "
                "queue"
            )


def _row_bytes(batch: pa.RecordBatch) -> Ints:
    """The bytes of each row's key, payload and headers."""
    sizes = np.zeros(batch.num_rows, np.int64)
    for column in batch.columns:
        sizes += _sizes(column)
    return sizes


def _sizes(column: pa.Array) -> Ints:
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_string(kind):
        lengths = pc.fill_null(pc.binary_length(column), 0)
        numbers: Ints = lengths.to_numpy(zero_copy_only=False).astype(np.int64)
        return numbers
    if pa.types.is_map(kind):
        offsets = column.offsets.to_numpy().astype(np.int64)
        inner = np.concatenate(([0], np.cumsum(_sizes(column.keys) + _sizes(column.items))))
        sizes: Ints = inner[offsets[1:]] - inner[offsets[:-1]]
        return sizes
    if pa.types.is_struct(kind):
        total = np.zeros(len(column), np.int64)
        for part in column.flatten():
            total += _sizes(part)
        return total
    return np.full(len(column), 8, np.int64)


def _data_bytes(column: pa.Array) -> int:
    return int(_sizes(column).sum())


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _rows_as_arrow(rows: pa.StructArray) -> pa.Array:
    """Each row as an Arrow stream of its own."""
    batch = pa.RecordBatch.from_struct_array(rows)
    encoded = []
    for at in range(len(rows)):
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch.slice(at, 1))
        encoded.append(sink.getvalue())
    return pa.array(encoded, pa.binary())
