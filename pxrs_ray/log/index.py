"""A sparse index of one segment: where to start looking for an offset or a timestamp."""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from dataclasses import field

import numpy as np
from xxhash import xxh3_64_intdigest

from pxrs_ray.codec import Codec, register
from pxrs_ray.data.frame import FrameHeader
from pxrs_ray.errors import LogCorrupted
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Offset

MAGIC = b"PXIX"
VERSION = 1
NO_TIMESTAMP = -(1 << 63)
# magic, version, reserved, entries, segment size, end offset, first and greatest timestamp
_HEADER = struct.Struct("<4sB3xIqqqq")


@dataclass(slots=True)
class SparseIndex:
    """One entry about every `interval_bytes` of frames, and the segment's summary.

    An entry is (base offset of a frame, its position, the greatest timestamp before it).
    """

    interval_bytes: int
    size: int
    end_offset: Offset
    timestamp_first_ms: int = NO_TIMESTAMP
    timestamp_max_ms: int = NO_TIMESTAMP
    offsets: list[Offset] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    maxima_before_ms: list[int] = field(default_factory=list)

    def add(self, header: FrameHeader) -> None:
        """Note the next frame, which begins where the last one ended."""
        if not self.positions or self.size - self.positions[-1] >= self.interval_bytes:
            self.offsets.append(header.base_offset)
            self.positions.append(self.size)
            self.maxima_before_ms.append(self.timestamp_max_ms)
        if self.timestamp_first_ms == NO_TIMESTAMP:
            self.timestamp_first_ms = header.timestamp_min_ms
        self.timestamp_max_ms = max(self.timestamp_max_ms, header.timestamp_max_ms)
        self.size += header.frame_bytes
        self.end_offset = header.end_offset

    def position_for_offset(self, offset: Offset) -> int | None:
        """Where to start a walk that must meet the frame with `offset`; None without frames."""
        found = bisect_right(self.offsets, offset)
        return self.positions[max(0, found - 1)] if self.positions else None

    def position_for_timestamp(self, timestamp_ms: int) -> int | None:
        """Where to start a walk that must meet the first frame reaching `timestamp_ms`."""
        found = bisect_left(self.maxima_before_ms, timestamp_ms)
        return self.positions[max(0, found - 1)] if self.positions else None

    def pack(self) -> bytes:
        """The index file of a sealed segment."""
        data = (
            _HEADER.pack(
                MAGIC,
                VERSION,
                len(self.offsets),
                self.size,
                self.end_offset,
                self.timestamp_first_ms,
                self.timestamp_max_ms,
            )
            + np.array([self.offsets, self.positions, self.maxima_before_ms], "<i8").tobytes()
        )
        return data + xxh3_64_intdigest(data).to_bytes(8, "little")

    @classmethod
    def unpack(cls, data: bytes, interval_bytes: int) -> SparseIndex:
        """Read an index file. Raises LogCorrupted when it is not whole."""
        body = data[:-8]
        if len(body) < _HEADER.size or data[-8:] != xxh3_64_intdigest(body).to_bytes(8, "little"):
            raise LogCorrupted("the index fails its checksum")
        magic, version, entries, size, end, first, greatest = _HEADER.unpack_from(body)
        if magic != MAGIC or version != VERSION:
            raise LogCorrupted(f"not an index of version {VERSION}")
        if len(body) != _HEADER.size + 3 * 8 * entries:
            raise LogCorrupted("the index has another length than it says")
        table = np.frombuffer(body, "<i8", offset=_HEADER.size).reshape(3, entries)
        return cls(interval_bytes, size, end, first, greatest, *(row.tolist() for row in table))


def _decode(data: bytes) -> SparseIndex:
    try:
        return SparseIndex.unpack(data, 0)
    except LogCorrupted as error:
        raise ValueError(str(error)) from error


# How often entries are made is no part of the file: the index of a sealed segment never grows.
INDEX: Codec[SparseIndex] = register(Codec("log: *.idx", SparseIndex, SparseIndex.pack, _decode))
