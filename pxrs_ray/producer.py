"""`Accumulator`: collects messages, routes them, and hands frames to the outbox. Pure.

Rules of this file. Messages of one key keep the order in which they were given. The open batch is
closed by size, or by its owner when it has lingered. A message that can never be sent is refused
when it is given, so that it does not take its neighbours down.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from pxrs_ray.batch import Batch, Headers
from pxrs_ray.errors import ConfigError, MessageTooLarge, UsageError
from pxrs_ray.model import PartitionId
from pxrs_ray.outbox import Outbox, OutboxLimits
from pxrs_ray.partitioning import Partitioner
from pxrs_ray.receipt import Receipt, Shipment
from pxrs_ray.routing import chunks, route

MESSAGE_OVERHEAD_BYTES = 32
OUT_OF_BAND_BYTES = 4 << 10
COMPRESSIONS = (None, "lz4", "zstd")
Extras = tuple[int | None, Headers, str | None]
_NO_EXTRAS: Extras = (None, None, None)


@dataclass(frozen=True, slots=True)
class ProducerLimits:
    """The bounds of one producer.

    The open batch is sent when it has `batch_records_max` messages or `batch_bytes_max` bytes,
    or after `linger_ms`. Columns are cut at `chunk_records_max` and `chunk_bytes_max`. At most
    `pending_bytes_max` wait for acknowledgement; beyond, `send` waits up to `block_ms`, then
    raises PartitionFull or DeadlineExceeded.
    """

    linger_ms: int = 5
    batch_records_max: int = 100_000
    batch_bytes_max: int = 1 << 20
    chunk_records_max: int = 100_000
    chunk_bytes_max: int = 16 << 20
    message_bytes_max: int = 16 << 20
    pending_bytes_max: int = 128 << 20
    block_ms: int = 30_000
    compression: str | None = None
    outbox: OutboxLimits = field(default_factory=OutboxLimits)

    def __post_init__(self) -> None:
        if self.compression not in COMPRESSIONS:
            raise ConfigError(f"compression is {self.compression!r}, not one of {COMPRESSIONS}")
        if self.linger_ms < 0:
            raise ConfigError(f"linger_ms must not be below 0, as {self.linger_ms} is")


class _OpenBatch:
    """Single messages that were not sent yet."""

    __slots__ = ("extras", "keys", "opened_ms", "payloads", "scopes", "shipment", "size_bytes")

    def __init__(self, opened_ms: int) -> None:
        self.keys: list[bytes | str | None] = []
        self.payloads: list[bytes] = []
        self.extras: dict[int, Extras] = {}
        self.scopes: dict[int, str] = {}
        self.shipment = Shipment()
        self.size_bytes = 0
        self.opened_ms = opened_ms

    def scope_column(self) -> list[str | None] | None:
        """The tenant or label of each message; None when none has one."""
        return [self.scopes.get(at) for at in range(len(self.keys))] if self.scopes else None

    def batch(self) -> Batch:
        """The messages as columns; what has no timestamp of its own is of when this was opened."""
        if not self.extras:
            return Batch.of(self.keys, self.payloads, timestamp_ms=self.opened_ms)
        extras = [self.extras.get(at, _NO_EXTRAS) for at in range(len(self.keys))]
        stamps, headers, ids = (list(column) for column in zip(*extras, strict=True))
        return Batch.of(
            self.keys,
            self.payloads,
            timestamp_ms=self.opened_ms,
            timestamps_ms=stamps if any(stamp is not None for stamp in stamps) else None,
            headers=headers if any(headers) else None,
            ids=ids if any(each is not None for each in ids) else None,
        )


class Accumulator:
    """See the rules at the head of this file. Not thread-safe."""

    def __init__(
        self,
        partitioner: Partitioner,
        outbox: Outbox,
        limits: ProducerLimits,
        producer_id: bytes | None = None,
    ) -> None:
        self._partitioner = partitioner
        self._labelled = partitioner.strategy == "label"
        self._outbox = outbox
        self._limits = limits
        self._producer_id = producer_id or uuid.uuid4().bytes
        self._open: _OpenBatch | None = None
        self._options = (
            pa.ipc.IpcWriteOptions(compression=limits.compression) if limits.compression else None
        )

    @property
    def pending_bytes(self) -> int:
        """Bytes that were given and are not acknowledged."""
        open_bytes = self._open.size_bytes if self._open is not None else 0
        return open_bytes + self._outbox.pending_bytes

    @property
    def opened(self) -> bool:
        """Whether there is an open batch."""
        return self._open is not None

    @property
    def due_ms(self) -> int | None:
        """When the open batch has lingered; None when there is none, or an answer comes first.

        While every buffer is at work on a call, another one would only wait its turn: what comes
        meanwhile gathers, so that batches grow with the load by themselves.
        """
        if self._open is None or self._outbox.busy():
            return None
        return self._open.opened_ms + self._limits.linger_ms

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
        now_ms: int,
        headers: Headers = None,
        timestamp_ms: int | None = None,
        message_id: str | None = None,
        scope: str | None = None,
    ) -> Receipt:
        """Put a message into the open batch. Raises MessageTooLarge, UsageError."""
        if type(payload) is not bytes:
            payload = _payload_bytes(payload)
        if key is not None and not isinstance(key, (bytes, str)):
            raise UsageError(f"a key is bytes, str or None, not {type(key).__name__}")
        size = len(payload) + (len(key) if key is not None else 0) + MESSAGE_OVERHEAD_BYTES
        if size > self._limits.message_bytes_max:
            raise MessageTooLarge(
                f"a message of {size} bytes is above message_bytes_max="
                f"{self._limits.message_bytes_max}: keep large payloads elsewhere, send a reference"
            )
        if self._labelled:
            self._partitioner.window(scope)  # refuses this message alone, not its whole batch
        batch = self._open
        if batch is None:
            batch = self._open = _OpenBatch(now_ms)
        at = len(batch.keys)
        if headers is not None or timestamp_ms is not None or message_id is not None:
            batch.extras[at] = _checked(timestamp_ms, headers, message_id)
        if scope is not None:
            batch.scopes[at] = scope
        batch.keys.append(key)
        batch.payloads.append(payload)
        batch.size_bytes += size
        return Receipt(batch.shipment, at)

    def close_open(self, now_ms: int) -> None:
        """Give the open batch, routed, to the outbox; its receipts tell what went wrong."""
        batch, self._open = self._open, None
        if batch is not None:
            due_ms = min(now_ms, batch.opened_ms + self._limits.linger_ms)
            try:
                self._ship(batch.batch(), batch.shipment, due_ms, batch.scope_column())
            except Exception as error:  # noqa: BLE001 - the receipts tell it
                batch.shipment.broken(error)

    def pieces(self, batch: Batch) -> list[Batch]:
        """Cut columns into what `add_batch` takes. Raises MessageTooLarge."""
        for column in (batch.keys, batch.payloads):
            longest = pa.compute.max(pa.compute.binary_length(column)).as_py() or 0
            if longest > self._limits.message_bytes_max:
                raise MessageTooLarge(
                    f"a message of {longest} bytes is above message_bytes_max="
                    f"{self._limits.message_bytes_max}; nothing of the batch was sent"
                )
        return list(chunks(batch, self._limits.chunk_records_max, self._limits.chunk_bytes_max))

    def add_batch(self, batch: Batch, now_ms: int, scopes: Any = None) -> Shipment:
        """Send columns, behind everything that was given before."""
        self.close_open(now_ms)
        shipment = Shipment()
        self._ship(batch, shipment, now_ms, scopes)
        return shipment

    def add_everywhere(
        self, batch: Batch, partitions: Sequence[PartitionId], now_ms: int
    ) -> Shipment:
        """Send the same columns to each of `partitions`."""
        self.close_open(now_ms)
        shipment = Shipment()
        shipment.routed([(partition, len(batch)) for partition in partitions], None)
        for index, partition in enumerate(partitions):
            self._pack(partition, batch, shipment, index, now_ms)
        return shipment

    def _ship(self, batch: Batch, shipment: Shipment, now_ms: int, scopes: Any = None) -> None:
        routed = route(batch, self._partitioner, scopes)
        shipment.routed([(partition, len(part)) for partition, part in routed.parts], routed.order)
        for index, (partition, part) in enumerate(routed.parts):
            self._pack(partition, part, shipment, index, now_ms)

    def _pack(
        self, partition: PartitionId, part: Batch, shipment: Shipment, index: int, now_ms: int
    ) -> None:
        epoch, sequence = self._outbox.numbers(partition)
        header, body = part.to_wire(self._producer_id, epoch, sequence, self._options)
        # A small body is pickled ten times faster as bytes than as a buffer beside the pickle.
        packed = body.to_pybytes() if body.size < OUT_OF_BAND_BYTES else body
        self._outbox.add(partition, header, packed, shipment, index, now_ms)


def _payload_bytes(payload: Any) -> bytes:
    if isinstance(payload, str):
        return payload.encode()
    if isinstance(payload, (bytes, bytearray, memoryview)):
        return bytes(payload)
    raise UsageError(f"a payload is bytes or str, not {type(payload).__name__}: encode it first")


def _checked(timestamp_ms: Any, headers: Headers, message_id: Any) -> Extras:
    """Refuse what would spoil the whole batch later."""
    if timestamp_ms is not None and not isinstance(timestamp_ms, int):
        raise UsageError(f"a timestamp is milliseconds as int, not {timestamp_ms!r}")
    if message_id is not None and not isinstance(message_id, str):
        raise UsageError(f"an id is str, not {message_id!r}")
    pairs: Any = dict(headers or ()).items()
    if not all(isinstance(k, str) and isinstance(v, (bytes, str)) for k, v in pairs):
        raise UsageError(f"headers are names to bytes, not {headers!r}")
    return timestamp_ms, headers, message_id
