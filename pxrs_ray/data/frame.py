"""Frames: one batch of messages of one partition, the same bytes on the wire and on disk.

Rules of this file. A frame is a fixed header and a body; the body is one Arrow IPC record batch
message in one of the schemas below, which the header's flags name. A producer encodes the body
once, with its checksum, and packs the header with base offset 0; the log packs the header anew
with the real base offset and touches nothing else. Every byte is covered: the header's checksum
covers the body's. Checksums are XXH3-64. Both parts are multiples of 8 bytes, so that frames
follow one another aligned and are decoded in place.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from xxhash import xxh3_64_intdigest

from pxrs_ray.codec import Codec, register
from pxrs_ray.data.plain_rows import PlainRows, rows_in
from pxrs_ray.errors import LogCorrupted
from pxrs_ray.model import Offset

MAGIC = b"PXFR"
VERSION = 1
PRODUCER_ID_BYTES = 16
# Of so much nothing is copied that need not be, and nothing while other threads wait.
LARGE_BYTES = 1 << 20

HAS_TIMESTAMPS = 1  # a timestamp a message; without it all have the header's timestamp_min_ms
HAS_HEADERS = 2
HAS_IDS = 4
KNOWN_FLAGS = HAS_TIMESTAMPS | HAS_HEADERS | HAS_IDS

# magic, version, flags, follows (sequence), count, body bytes, base offset, producer id, producer
# epoch, follows (epoch), sequence, timestamp min and max, body checksum
_FIELDS = struct.Struct("<4sBBHIIQ16sIIQqqQ")
_CHECKSUM = struct.Struct("<Q")
_PRODUCER_AT = struct.calcsize("<4sBBHIIQ")
HEADER_BYTES = _FIELDS.size + _CHECKSUM.size
assert HEADER_BYTES % 8 == 0

# The epoch in a mark of a producer that a log has never heard of, or has forgotten.
NOBODY = (1 << 32) - 1
_MARKS = (1 << 16) - 1

HEADERS_TYPE = pa.map_(pa.utf8(), pa.binary())


def _schema(flags: int) -> pa.Schema:
    fields = [pa.field("key", pa.binary()), pa.field("payload", pa.binary(), nullable=False)]
    if flags & HAS_TIMESTAMPS:
        fields.append(pa.field("timestamp_ms", pa.int64(), nullable=False))
    if flags & HAS_HEADERS:
        fields.append(pa.field("headers", HEADERS_TYPE))
    if flags & HAS_IDS:
        fields.append(pa.field("id", pa.utf8()))
    return pa.schema(fields)


SCHEMAS = tuple(_schema(flags) for flags in range(KNOWN_FLAGS + 1))
# Texts as bytes: what is no UTF-8 is dealt with by who reads it, and takes no neighbours down.
_RAW = {pa.utf8(): pa.binary(), HEADERS_TYPE: pa.map_(pa.binary(), pa.binary())}


class Mark(NamedTuple):
    """A producer's position in a log: its newest epoch and next sequence. Only so many bits of the
    sequence are kept as tell apart what can be under way at one time."""

    epoch: int
    sequence: int


def mark(epoch: int, next_sequence: int) -> Mark:
    """The mark of a producer that stands there; `NOBODY` and 0 for one that is not known."""
    return Mark(epoch, next_sequence % _MARKS)


class FrameHeader(NamedTuple):
    """What a frame says of itself. `base_offset` is 0 until the log has assigned it.

    The first frame of an epoch may carry the `Mark` that its producer must have for the log to take
    it.
    """

    messages: int
    flags: int
    base_offset: Offset
    producer_id: bytes
    producer_epoch: int
    sequence: int
    timestamp_min_ms: int
    timestamp_max_ms: int
    body_bytes: int
    body_checksum: int
    follows: Mark | None = None

    @property
    def end_offset(self) -> Offset:
        """The offset after the frame's last message."""
        return self.base_offset + self.messages

    @property
    def frame_bytes(self) -> int:
        """Header and body together."""
        return HEADER_BYTES + self.body_bytes


def producer_id(name: str) -> bytes:
    """The id of a producer that is known by name (a feed's block, say): always the same."""
    return blake2b(name.encode(), digest_size=PRODUCER_ID_BYTES).digest()


def producer_of(packed_header: bytes) -> bytes:
    """The producer id in a header, without a look at the rest."""
    return bytes(packed_header[_PRODUCER_AT : _PRODUCER_AT + PRODUCER_ID_BYTES])


def pack_header(header: FrameHeader) -> bytes:
    """The header's bytes, with its checksum."""
    follows = header.follows
    fields = _FIELDS.pack(
        MAGIC,
        VERSION,
        header.flags,
        0 if follows is None else follows.sequence + 1,
        header.messages,
        header.body_bytes,
        header.base_offset,
        header.producer_id,
        header.producer_epoch,
        0 if follows is None else follows.epoch,
        header.sequence,
        header.timestamp_min_ms,
        header.timestamp_max_ms,
        header.body_checksum,
    )
    return fields + _CHECKSUM.pack(xxh3_64_intdigest(fields))


def unpack_header(data: Any, position: int = 0) -> FrameHeader:
    """Read a header at `position` of a buffer. Raises LogCorrupted saying what is wrong with it."""
    if len(data) - position < HEADER_BYTES:
        raise LogCorrupted(f"the frame header is cut: {len(data) - position} bytes are left")
    fields = _FIELDS.unpack_from(data, position)
    if fields[0] != MAGIC:
        raise LogCorrupted("not a frame: the magic bytes are wrong")
    (checksum,) = _CHECKSUM.unpack_from(data, position + _FIELDS.size)
    if checksum != xxh3_64_intdigest(memoryview(data)[position : position + _FIELDS.size]):
        raise LogCorrupted("the frame header's checksum is wrong")
    _, version, flags, at, count, body_bytes, base, producer, epoch, of, sequence, *rest = fields
    low, high, body = rest
    if version != VERSION or flags & ~KNOWN_FLAGS:
        raise LogCorrupted(f"frame version {version} with flags {flags} is newer than this code")
    follows = Mark(of, at - 1) if at else None
    return FrameHeader(
        count, flags, base, producer, epoch, sequence, low, high, body_bytes, body, follows
    )


def check_body(header: FrameHeader, body: Any) -> None:
    """Raise LogCorrupted unless `body` is, byte for byte, what `header` was made for."""
    if len(body) != header.body_bytes:
        raise LogCorrupted(f"the frame body has {len(body)} bytes, not {header.body_bytes}")
    if xxh3_64_intdigest(body) != header.body_checksum:
        raise LogCorrupted("the frame body's checksum is wrong")


def decode_body(header: FrameHeader, body: Any) -> pa.RecordBatch:
    """The body's columns, as views into its bytes (checked before: see `check_body`)."""
    try:
        columns = pa.ipc.read_record_batch(pa.py_buffer(body), SCHEMAS[header.flags])
        # Arrow believes every place that a column names, and would read wherever that is.
        for column in columns.columns:
            raw = _RAW.get(column.type)
            (column if raw is None else column.view(raw)).validate(full=True)
    except (pa.ArrowException, OSError, EOFError, ValueError) as error:
        raise LogCorrupted(f"the frame body is not a record batch: {error}") from error
    if columns.num_rows != header.messages:
        raise LogCorrupted(f"the frame has {columns.num_rows} messages, not {header.messages}")
    if columns.column(1).null_count:
        raise LogCorrupted("a message of the frame has no payload")
    return columns


def plain_rows_in(header: FrameHeader, body: Any) -> PlainRows | None:
    """The messages of a body that has a few, keys and payloads alone; None: ask `decode_body`."""
    return rows_in(header.messages, body) if not header.flags else None


def check_decodes(header: FrameHeader, body: Any) -> None:
    """Raise LogCorrupted unless `body` is what Arrow can read (its bytes were checked before)."""
    if plain_rows_in(header, body) is None:
        decode_body(header, body)


def whole_frame(header: FrameHeader, body: Any) -> Any:
    """A frame as it is stored, in one piece of bytes.

    What is large is copied without the interpreter's lock: a join of 64 MB holds up every other
    thread, and so the event loop, for as long as the system takes to find the memory.
    """
    packed = pack_header(header)
    if len(body) < LARGE_BYTES:
        return b"".join((packed, body))
    frame = np.empty(len(packed) + len(body), np.uint8)
    frame[: len(packed)] = np.frombuffer(packed, np.uint8)
    frame[len(packed) :] = np.frombuffer(body, np.uint8)
    return frame.data.toreadonly()


def frames_in(chunk: Any) -> Iterator[tuple[FrameHeader, memoryview]]:
    """Walk a run of whole frames: each header, unpacked, and its body as a view, checked."""
    data = memoryview(chunk)
    position = 0
    while position < len(data):
        header = unpack_header(data, position)
        body = data[position + HEADER_BYTES : position + header.frame_bytes]
        check_body(header, body)
        yield header, body
        position += header.frame_bytes


def _decode_header(data: bytes) -> FrameHeader:
    try:
        return unpack_header(data)
    except LogCorrupted as error:
        raise ValueError(str(error)) from error


HEADER: Codec[FrameHeader] = register(
    Codec("log: frame header", FrameHeader, pack_header, _decode_header)
)
