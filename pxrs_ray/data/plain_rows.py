"""`PlainRows`: a few messages that are keys and payloads alone, between bytes and Python's lists.

Rules of this file. A frame's body is always an Arrow record batch. Of one or a few messages Arrow
makes columns in a time in which many could be read, and a message that comes alone pays it three
times: where it is sent, stored and handled. So bodies of a few messages are written and read here,
byte for byte as Arrow writes them; how it does is taken from one that it has written. What does not
look exactly so is left to Arrow: nothing is refused here.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import pyarrow as pa

ROWS_MAX = 16
BYTES_MAX = 4 << 10

# A head whose first and last parts never change; in between: bytes behind the head, messages, where
# each of the six buffers begins and how long it is, and of both columns the length and the nulls.
_HEAD = struct.Struct("<40sq24sq8s12q8s4q")
_OFFSETS = [struct.Struct(f"<{rows + 1}i") for rows in range(ROWS_MAX + 1)]


class PlainRows(NamedTuple):
    """The messages of a batch, in order."""

    keys: Sequence[bytes | None]
    payloads: Sequence[bytes]

    def columns(self, schema: pa.Schema) -> pa.RecordBatch:
        """The same as Arrow has it."""
        arrays = [pa.array(column, pa.binary()) for column in self]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def rows_of(keys: Sequence[bytes | str | None], payloads: Sequence[bytes]) -> PlainRows | None:
    """Messages as rows; None where they are too many or too large for that."""
    if len(payloads) > ROWS_MAX or sum(map(len, payloads)) > BYTES_MAX or not _FIXED:
        return None
    plain = [key.encode() if isinstance(key, str) else key for key in keys]
    if sum(len(key) for key in plain if key is not None) > BYTES_MAX:
        return None
    return PlainRows(plain, payloads)


def body_of(rows: PlainRows) -> bytes:
    """The body of a frame with these messages."""
    keys, payloads = rows
    count = len(payloads)
    nulls = valid = 0
    for at, key in enumerate(keys):
        if key is None:
            nulls += 1
        else:
            valid |= 1 << at
    key_bytes = b"".join([key for key in keys if key is not None])
    payload_bytes = b"".join(payloads)
    offsets = _OFFSETS[count]
    key_ends = offsets.pack(*accumulate([len(key or b"") for key in keys], initial=0))
    payload_ends = offsets.pack(*accumulate(map(len, payloads), initial=0))
    bits_bytes = (count + 7) // 8 if nulls else 0
    places = _places(bits_bytes, offsets.size, len(key_bytes), len(payload_bytes))
    first, second, third, fourth = _FIXED
    numbers = (count, nulls, count, 0)
    return b"".join(
        (
            _HEAD.pack(first, places[-1], second, count, third, *places[:-1], fourth, *numbers),
            valid.to_bytes(8, "little") if nulls else b"",
            _padded(key_ends),
            _padded(key_bytes),
            _padded(payload_ends),
            _padded(payload_bytes),
        )
    )


def rows_in(messages: int, body: Any) -> PlainRows | None:
    """The messages of a body that was written as `body_of` does; None of any other one."""
    size = len(body)
    if not 0 < messages <= ROWS_MAX or size < _HEAD.size or size > 4 * BYTES_MAX or not _FIXED:
        return None
    found = _HEAD.unpack_from(body)
    count, nulls = found[3], found[19]
    bits_bytes, key_bytes, payload_bytes = found[6], found[10], found[16]
    offsets = _OFFSETS[messages]
    if (found[0], found[2], found[4], found[17]) != _FIXED or found[18:] != (
        count,
        nulls,
        count,
        0,
    ):
        return None
    right_bits = (messages + 7) // 8 if nulls else 0
    if count != messages or bits_bytes != right_bits or key_bytes < 0 or payload_bytes < 0:
        return None
    places = _places(bits_bytes, offsets.size, key_bytes, payload_bytes)
    if found[5:17] != places[:-1] or not found[1] == places[-1] == size - _HEAD.size:
        return None
    keys = _cut(body, offsets, places[2], places[4], key_bytes)
    payloads = _cut(body, offsets, places[8], places[10], payload_bytes)
    if keys is None or payloads is None:
        return None
    if nulls:
        valid = int.from_bytes(body[_HEAD.size : _HEAD.size + bits_bytes], "little")
        keys = [key if valid >> at & 1 else None for at, key in enumerate(keys)]
        if keys.count(None) != nulls:
            return None
    return PlainRows(keys, payloads)


def _places(
    bits_bytes: int, ends_bytes: int, key_bytes: int, payload_bytes: int
) -> tuple[int, ...]:
    """Where each buffer begins and how long it is, and where all end: the bits of what is no null,
    ends and bytes of the keys, then no bits, ends and bytes of the payloads."""
    key_ends_at = 8 if bits_bytes else 0
    keys_at = key_ends_at + (ends_bytes + 7 & ~7)
    payload_ends_at = keys_at + (key_bytes + 7 & ~7)
    payloads_at = payload_ends_at + (ends_bytes + 7 & ~7)
    return (
        *(0, bits_bytes, key_ends_at, ends_bytes, keys_at, key_bytes),
        *(payload_ends_at, 0, payload_ends_at, ends_bytes, payloads_at, payload_bytes),
        payloads_at + (payload_bytes + 7 & ~7),
    )


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 8)


def _cut(
    body: Any, offsets: struct.Struct, ends_at: int, bytes_at: int, size: int
) -> list[Any] | None:
    """The values of a column; None where its ends are none. Behind the last there may be bytes:
    Arrow leaves some there of what a slice was cut from."""
    ends = offsets.unpack_from(body, _HEAD.size + ends_at)
    start = _HEAD.size + bytes_at
    if ends[0] != 0 or ends[-1] > size:
        return None
    if len(ends) == 2:
        return [bytes(body[start : start + ends[1]])] if ends[1] >= 0 else None
    values = []
    for first, end in pairwise(ends):
        if first > end:
            return None
        values.append(bytes(body[start + first : start + end]))
    return values


_SAMPLE = PlainRows([b"a", None], [b"bcd", b"e"])


def _written_by_arrow() -> bytes:
    """The sample, by Arrow; its arrays are made of bytes, for of lists it loads pandas first."""
    ends = (pa.py_buffer(_OFFSETS[2].pack(0, 1, 1)), pa.py_buffer(_OFFSETS[2].pack(0, 3, 4)))
    keys = (pa.py_buffer(b"\x01"), ends[0], pa.py_buffer(b"a"))
    payloads = (None, ends[1], pa.py_buffer(b"bcde"))
    kind = pa.binary()
    arrays = [pa.Array.from_buffers(kind, 2, list(buffers)) for buffers in (keys, payloads)]
    schema = pa.schema([pa.field("key", kind), pa.field("payload", kind, nullable=False)])
    written: bytes = pa.RecordBatch.from_arrays(arrays, schema=schema).serialize().to_pybytes()
    return written


def _learn() -> tuple[bytes, ...]:
    """What of `_HEAD` never changes, out of what Arrow writes."""
    found = _HEAD.unpack_from(_written_by_arrow().ljust(_HEAD.size))
    return (found[0], found[2], found[4], found[17])


_FIXED = _learn()
if body_of(_SAMPLE) != _written_by_arrow():
    _FIXED = ()  # this Arrow writes otherwise: all is left to it
