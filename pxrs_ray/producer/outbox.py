"""`Outbox`: messages that are routed, on their way into frames. Pure.

Rules of this file. While a buffer is at work on a call, what comes for it is held, by partition and
in its order; when the buffer has answered, each partition's messages become one frame. A frame for
each of them would cost the producer, the buffer and the readers as much as a frame of all. What is
not small any more waits for nothing. Nothing is numbered before it is in a frame.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from pxrs_ray.data.batch import Batch
from pxrs_ray.data.frame import HAS_TIMESTAMPS
from pxrs_ray.data.message_form import batch_bytes
from pxrs_ray.data.plain_rows import PlainRows, rows_of
from pxrs_ray.data.protocol import Appended
from pxrs_ray.errors import PxrsError
from pxrs_ray.model import PartitionId
from pxrs_ray.producer.in_flight import Ticket
from pxrs_ray.producer.sender import Sender

OUT_OF_BAND_BYTES = 4 << 10
# Messages of one frame share its date, where they have none of their own: those that were given
# within so long of each other.
DATED_TOGETHER_MS = 10


class HeldPart(NamedTuple):
    """Messages of one partition, and who is told what becomes of them: `place` is theirs in the
    ticket."""

    batch: Batch
    size_bytes: int
    ticket: Ticket
    place: int
    due_ms: int


class _Held:
    """What waits for the answer of one buffer."""

    __slots__ = ("partitions", "size_bytes")

    def __init__(self) -> None:
        self.partitions: dict[PartitionId, list[HeldPart]] = {}
        self.size_bytes = 0


class Outbox:
    """See the rules at the head of this file. Not thread-safe."""

    def __init__(
        self,
        sender: Sender,
        producer_id: bytes,
        frame_bytes_max: int,
        options: Any,
    ) -> None:
        """`frame_bytes_max` is what the messages of a frame may be together; `options` are those
        with which Arrow writes a frame."""
        self._sender = sender
        self._producer_id = producer_id
        self._frame_bytes_max = frame_bytes_max
        self._options = options
        self._held: dict[int, _Held] = {}
        self.pending_bytes = 0
        self.pending_parts = 0

    def put(
        self, partition: PartitionId, batch: Batch, ticket: Ticket, index: int, due_ms: int
    ) -> None:
        """Take messages of one partition; `ticket` hears of them as its part `index`."""
        buffer = self._sender.buffer_of(partition)
        held = self._held.get(buffer)
        if held is None:
            if not self._sender.gathers(buffer):
                self._pack(partition, batch, ticket, index, due_ms)
                return
            held = self._held[buffer] = _Held()
        part = HeldPart(batch, batch_bytes(batch), ticket, index, due_ms)
        held.partitions.setdefault(partition, []).append(part)
        held.size_bytes += part.size_bytes
        self.pending_bytes += part.size_bytes
        self.pending_parts += 1

    def release(self) -> None:
        """Make frames of what need not wait any more."""
        for buffer, held in list(self._held.items()):
            if self._sender.gathers(buffer) and self._sender.is_small(held.size_bytes):
                continue
            del self._held[buffer]
            self.pending_bytes -= held.size_bytes
            for partition, parts in held.partitions.items():
                self.pending_parts -= len(parts)
                for run in _runs(parts, self._frame_bytes_max):
                    self._pack_run(partition, run)

    def _pack_run(self, partition: PartitionId, run: Sequence[HeldPart]) -> None:
        first = run[0]
        if len(run) == 1:
            self._pack(partition, first.batch, first.ticket, first.place, first.due_ms)
        else:
            batch = _joined([part.batch for part in run])
            self._pack(partition, batch, _Shared(run), 0, min(part.due_ms for part in run))

    def _pack(
        self, partition: PartitionId, batch: Batch, ticket: Ticket, index: int, due_ms: int
    ) -> None:
        epoch, sequence = self._sender.numbers(partition)
        header, body = batch.to_wire(self._producer_id, epoch, sequence, self._options)
        # A small body is pickled ten times faster as bytes than as a buffer beside the pickle.
        packed = body.to_pybytes() if body.size < OUT_OF_BAND_BYTES else body
        self._sender.add(partition, header, packed, ticket, index, due_ms)


def _runs(parts: Sequence[HeldPart], bytes_max: int) -> Iterator[list[HeldPart]]:
    """Cut parts of a partition, in their order, into what can be one frame each."""
    run: list[HeldPart] = []
    size_bytes = 0
    for part in parts:
        if run and (size_bytes + part.size_bytes > bytes_max or not _alike(run[0], part)):
            yield run
            run, size_bytes = [], 0
        run.append(part)
        size_bytes += part.size_bytes
    yield run


def _alike(first: HeldPart, other: HeldPart) -> bool:
    """Whether both can be in one frame: with the same columns, and one date."""
    one, two = first.batch, other.batch
    if one.flags != two.flags:
        return False
    apart_ms = abs(two.timestamp_fixed_ms - one.timestamp_fixed_ms)
    return bool(one.flags & HAS_TIMESTAMPS) or apart_ms <= DATED_TOGETHER_MS


class _Shared:
    """The ticket of a frame whose messages belong to several."""

    __slots__ = ("_run",)

    def __init__(self, run: Sequence[HeldPart]) -> None:
        self._run = run

    def settle(self, index: int, answer: Appended | PxrsError) -> None:
        """Tell each where its own messages are."""
        start = 0
        for part in self._run:
            count = len(part.batch)
            theirs = answer
            if isinstance(answer, Appended):
                base = answer.base_offset
                base = None if base is None else base + start
                theirs = Appended(answer.partition, base, count, answer.repeated)
            part.ticket.settle(part.place, theirs)
            start += count


def _joined(parts: Sequence[Batch]) -> Batch:
    """The messages of several batches with the same columns, one behind the other, dated as those
    of the first."""
    first = parts[0]
    rows = _joined_rows(parts)
    if rows is not None:
        return Batch(
            first.partition, first.base_offset, first.flags, rows, first.timestamp_fixed_ms
        )
    columns = [
        pa.concat_arrays([part.columns.column(at) for part in parts])
        for at in range(first.columns.num_columns)
    ]
    whole = pa.RecordBatch.from_arrays(columns, schema=first.columns.schema)
    return Batch(first.partition, first.base_offset, first.flags, whole, first.timestamp_fixed_ms)


def _joined_rows(parts: Sequence[Batch]) -> PlainRows | None:
    keys: list[bytes | None] = []
    payloads: list[bytes] = []
    for part in parts:
        if part.plain_rows is None:
            return None
        keys += part.plain_rows.keys
        payloads += part.plain_rows.payloads
    return rows_of(keys, payloads)
