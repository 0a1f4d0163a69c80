"""`Accumulator`: collects messages, routes them, and passes frames to the `Sender`. Pure.

Rules of this file. Messages of one key keep the order in which they were given. The open batch is
closed by size, or by its owner when it has lingered. A message that can never be sent is refused
when it is given, so that it does not fail the messages around it. Every `now_ms` is monotonic; the
wall clock only dates messages.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

import pyarrow as pa

from pxrs_ray.clock import Instant
from pxrs_ray.data.batch import Batch, Headers
from pxrs_ray.data.frame import HEADERS_TYPE
from pxrs_ray.data.message_form import (
    MESSAGE_OVERHEAD_BYTES,
    NO_EXTRAS,
    Extras,
    batch_bytes,
    checked_extras,
    checked_key,
    checked_name,
    checked_payload,
    row_sizes,
    scope_column,
    too_large,
)
from pxrs_ray.errors import ConfigError
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import PartitionId, Strategy
from pxrs_ray.partitioning import Partitioner
from pxrs_ray.producer.outbox import Outbox
from pxrs_ray.producer.receipt import Receipt, Shipment
from pxrs_ray.producer.routing import chunks, route
from pxrs_ray.producer.sender import Call, Sender, SenderLimits

# What a frame is more than its messages: names and places of its columns.
FRAME_OVERHEAD_BYTES = 1 << 10
COMPRESSIONS = (None, "lz4", "zstd")
# Who sends looks at each of the first messages of a batch whether it can go, then now and then: the
# batch grows by one part in `LOOK_AGAIN` in between.
LOOK_AT_FIRST = 16
LOOK_AGAIN = 8
# To close a batch takes some time, however few messages it has. So much of the time goes into it at
# most: one part in this many, as long as nothing rests for longer than `REST_MS_MAX`.
REST_TIMES = 2
REST_MS_MAX = 5
# What a batch costs beside its messages is next to nothing of a large one: where more than so many
# messages come in a millisecond, batches gather for so long.
MANY_PER_MS = 100
MANY_REST_MS_MAX = 20


@dataclass(frozen=True, slots=True)
class ProducerLimits:
    """The bounds of one producer.

    The open batch is sent when it has `batch_records_max` messages or `batch_bytes_max` bytes,
    or after `linger_ms`. Columns are cut at `chunk_records_max` and `chunk_bytes_max`. No frame
    grows above `frame_bytes_max`, which is what the queue's logs take. At most
    `pending_bytes_max` wait for acknowledgement; beyond, `send` waits up to `block_ms`, then
    raises PartitionFull or DeadlineExceeded.
    """

    linger_ms: int
    batch_records_max: int
    batch_bytes_max: int
    message_bytes_max: int
    frame_bytes_max: int
    sender: SenderLimits
    # What no option of a topology sets, but a caller may.
    chunk_records_max: int = 100_000
    chunk_bytes_max: int = 16 << 20
    pending_bytes_max: int = 128 << 20
    block_ms: int = 30_000
    compression: str | None = None

    def __post_init__(self) -> None:
        if self.compression not in COMPRESSIONS:
            raise ConfigError(f"compression is {self.compression!r}, not one of {COMPRESSIONS}")
        if self.linger_ms < 0:
            raise ConfigError(f"linger_ms must not be below 0, as {self.linger_ms} is")
        for limit in fields(self):
            value = getattr(self, limit.name)
            if limit.name not in ("linger_ms", "block_ms", "compression", "sender") and value < 1:
                raise ConfigError(f"{limit.name} must be at least 1, not {value}")

    @property
    def room_bytes(self) -> int:
        """What the messages of one frame may be together."""
        # What cannot be compressed grows by a little.
        spare = self.frame_bytes_max // 128 if self.compression else 0
        return self.frame_bytes_max - FRAME_OVERHEAD_BYTES - spare


class _OpenBatch:
    """Single messages that were not sent yet."""

    __slots__ = (
        "dated_ms",
        "extras",
        "keys",
        "look_at",
        "opened_ms",
        "payloads",
        "plain_bytes_max",
        "scopes",
        "shipment",
        "size_bytes",
    )

    def __init__(self, now: Instant, plain_bytes_max: int) -> None:
        self.keys: list[bytes | str | None] = []
        self.payloads: list[bytes] = []
        self.extras: dict[int, Extras] = {}
        self.scopes: dict[int, str] = {}
        self.shipment = Shipment()
        self.size_bytes = self.look_at = 0
        self.plain_bytes_max = plain_bytes_max
        self.opened_ms, self.dated_ms = now.monotonic_ms, now.wall_ms

    def scope_column(self) -> list[str | None] | None:
        """The tenant or label of each message; None when none has one."""
        return [self.scopes.get(at) for at in range(len(self.keys))] if self.scopes else None

    def batch(self) -> Batch:
        """The messages as columns; what has no timestamp of its own is of when this was opened."""
        if not self.extras:
            return Batch.of_few(self.keys, self.payloads, self.dated_ms)
        extras = [self.extras.get(at, NO_EXTRAS) for at in range(len(self.keys))]
        stamps, headers, ids, _ = (list(column) for column in zip(*extras, strict=True))
        return Batch.of(
            self.keys,
            self.payloads,
            timestamp_ms=self.dated_ms,
            timestamps_ms=stamps if any(stamp is not None for stamp in stamps) else None,
            headers=pa.array(headers, HEADERS_TYPE) if any(headers) else None,
            ids=ids if any(each is not None for each in ids) else None,
        )


class Accumulator:
    """See the rules at the head of this file. Not thread-safe."""

    def __init__(
        self,
        partitioner: Partitioner,
        sender: Sender,
        limits: ProducerLimits,
        producer_id: bytes | None = None,
    ) -> None:
        self._partitioner = partitioner
        self._labelled = partitioner.strategy == Strategy.LABEL
        self._sender = sender
        self._limits = limits
        self._message_bytes_max = min(limits.message_bytes_max, limits.room_bytes)
        self._open: _OpenBatch | None = None
        self._rests_until_ms = self._closed_messages = 0
        options = (
            pa.ipc.IpcWriteOptions(compression=limits.compression) if limits.compression else None
        )
        identity = producer_id or uuid.uuid4().bytes
        # What was held together is a batch like any other: no larger, though a log would take it.
        together = min(limits.room_bytes, limits.batch_bytes_max)
        self._outbox = Outbox(sender, identity, together, options)

    @property
    def pending_bytes(self) -> int:
        """Bytes that were given and are not acknowledged."""
        open_bytes = self._open.size_bytes if self._open is not None else 0
        return open_bytes + self._outbox.pending_bytes + self._sender.pending_bytes

    @property
    def pending_batches(self) -> int:
        """How many batches were closed and are not acknowledged."""
        return self._outbox.pending_parts + self._sender.pending_frames

    def calls(self, now_ms: int) -> Iterator[Call]:
        """Every call that should be made now; see `Sender.calls`."""
        self._outbox.release()
        return self._sender.calls(now_ms)

    @property
    def opened(self) -> bool:
        """Whether there is an open batch."""
        return self._open is not None

    @property
    def due_ms(self) -> int | None:
        """When the open batch shall go; None when there is none, or an answer comes first.

        While every buffer is at work on a call, another one would only wait its turn: what comes
        meanwhile gathers, so that batches grow with the load by themselves.
        """
        if self._open is None or self._sender.busy():
            return None
        return max(self._open.opened_ms + self._limits.linger_ms, self._rests_until_ms)

    def rest(self, now_ms: int, took_us: int) -> None:
        """Closing a batch took so long: let the next one gather in proportion, to that and to how
        many messages it had.

        What is quick (few messages) is sent again at once; where very many come, closing small
        batches one after the other would take the time that sending needs, here and behind.
        """
        for_time_ms = min(REST_TIMES * took_us // 1_000, REST_MS_MAX)
        for_many_ms = min(self._closed_messages // MANY_PER_MS, MANY_REST_MS_MAX)
        self._rests_until_ms = now_ms + max(for_time_ms, for_many_ms)

    def look_now(self) -> None:
        """Let the next message be added by `add`."""
        if self._open is not None:
            self._open.look_at = 0

    def looked(self) -> None:
        """Who sends has seen that the open batch cannot go yet: some messages more can be added
        without another look.
        """
        batch = self._open
        if batch is not None:
            messages = len(batch.keys)
            more = 0 if messages < LOOK_AT_FIRST else messages // LOOK_AGAIN
            batch.look_at = min(messages + more, self._limits.batch_records_max - 1)

    def _plain_bytes_max(self) -> int:
        """Below this size the open batch is not full, no message of it is too large, and there is
        not too much unacknowledged: what is pending beside it only falls while it is open. Labels
        are looked at one by one.
        """
        if self._labelled:
            return 0
        limits = self._limits
        room = limits.pending_bytes_max - self._outbox.pending_bytes - self._sender.pending_bytes
        return min(limits.batch_bytes_max, room, self._message_bytes_max)

    def add_plain(self, key: Any, payload: Any) -> Receipt | None:
        """As `add`, for most messages of a batch that gathers; None: nothing was added, use `add`.

        It is what a single send consists of, so it does nothing that others could have done.
        """
        batch = self._open
        if batch is None or type(payload) is not bytes or type(key) is not bytes:
            return None
        keys = batch.keys
        at = len(keys)
        size_bytes = batch.size_bytes + len(payload) + len(key) + MESSAGE_OVERHEAD_BYTES
        if at >= batch.look_at or size_bytes >= batch.plain_bytes_max:
            return None
        keys.append(key)
        batch.payloads.append(payload)
        batch.size_bytes = size_bytes
        return Receipt((batch.shipment, at))

    def full(self) -> bool:
        """Whether the open batch should be closed now for its size."""
        batch = self._open
        return batch is not None and (
            batch.size_bytes >= self._limits.batch_bytes_max
            or len(batch.keys) >= self._limits.batch_records_max
        )

    def add(
        self,
        key: bytes | str | None,
        payload: bytes | str,
        now: Instant,
        headers: Headers = None,
        timestamp_ms: int | None = None,
        message_id: str | None = None,
        scope: str | None = None,
    ) -> Receipt:
        """Put a message into the open batch; `now` is read when it is the first of one.

        Raises MessageTooLarge, UsageError.
        """
        if type(payload) is not bytes:
            payload = checked_payload(payload)
        if type(key) is not bytes:
            key = checked_key(key)
        size = len(payload) + (len(key) if key is not None else 0) + MESSAGE_OVERHEAD_BYTES
        extras = None
        if headers is not None or timestamp_ms is not None or message_id is not None:
            extras = checked_extras(timestamp_ms, headers, message_id)
            size += extras[3]
        if size > self._message_bytes_max:
            raise too_large(size, self._message_bytes_max, "a message")
        if scope is not None:
            checked_name(scope, "the scope")
        if self._labelled:
            self._partitioner.window(scope)  # refuses this message alone, not its whole batch
        batch = self._open
        if batch is None:
            batch = self._open = _OpenBatch(now, self._plain_bytes_max())
        at = len(batch.keys)
        if extras is not None:
            batch.extras[at] = extras
        if scope is not None:
            batch.scopes[at] = scope
        batch.keys.append(key)
        batch.payloads.append(payload)
        batch.size_bytes += size
        return Receipt((batch.shipment, at))

    def close_open(self, now_ms: int) -> None:
        """Give the open batch, routed, to the `Sender`; its receipts tell what went wrong."""
        batch, self._open = self._open, None
        self._closed_messages = 0 if batch is None else len(batch.keys)
        if batch is not None:
            due_ms = min(now_ms, batch.opened_ms + self._limits.linger_ms)
            try:
                self._ship(batch.batch(), batch.shipment, due_ms, batch.scope_column())
            except Exception as error:  # noqa: BLE001 - the receipts tell it
                batch.shipment.broken(error)

    def pieces(self, batch: Batch, scopes: Any = None) -> list[tuple[Batch, pa.Array | None]]:
        """Cut columns, and the tenant or label of each, into what `add_batch` takes.

        Raises MessageTooLarge and UsageError; then nothing of the batch was sent.
        """
        column = scope_column(scopes, len(batch))
        if self._labelled and len(batch):
            for scope in [None] if column is None else pa.compute.unique(column).to_pylist():
                self._partitioner.window(scope)
        limits = self._limits
        bytes_max = min(limits.chunk_bytes_max, self._message_bytes_max)
        if len(batch) <= limits.chunk_records_max and batch_bytes(batch) <= bytes_max:
            return [(batch, column)]
        sizes = row_sizes(batch)
        row = int(sizes.argmax()) if len(sizes) else 0
        if len(sizes) and sizes[row] > self._message_bytes_max:
            which = f"nothing of the batch was sent: the message of row {row},"
            raise too_large(int(sizes[row]), self._message_bytes_max, which)
        found, start = [], 0
        for piece in chunks(batch, sizes, limits.chunk_records_max, limits.chunk_bytes_max):
            part = column.slice(start, len(piece)) if column is not None else None
            found.append((piece, part))
            start += len(piece)
        return found

    def add_batch(self, batch: Batch, now_ms: int, scopes: Any = None) -> Shipment:
        """Send columns, behind everything that was given before."""
        self.close_open(now_ms)
        shipment = Shipment()
        self._ship(batch, shipment, now_ms, scopes)
        return shipment

    def add_everywhere(
        self, batch: Batch, partitions: Sequence[PartitionId], now_ms: int
    ) -> Shipment:
        """Send the same columns to each of `partitions`. Raises MessageTooLarge."""
        self.pieces(batch)
        self.close_open(now_ms)
        shipment = Shipment()
        shipment.routed([(partition, len(batch)) for partition in partitions], None)
        for index, partition in enumerate(partitions):
            self._outbox.put(partition, batch, shipment, index, now_ms)
        return shipment

    def _ship(self, batch: Batch, shipment: Shipment, now_ms: int, scopes: Any = None) -> None:
        routed = route(batch, self._partitioner, scopes)
        parts: Sequence[tuple[PartitionId, Batch]] = routed.parts
        room = self._limits.room_bytes
        if batch_bytes(batch) > room:
            parts = [
                (partition, piece)
                for partition, part in parts
                for piece in chunks(part, row_sizes(part), len(part), room)
            ]
        shipment.routed([(partition, len(part)) for partition, part in parts], routed.order)
        for index, (partition, part) in enumerate(parts):
            self._outbox.put(partition, part, shipment, index, now_ms)
