"""`MemoryTail`: the newest frames of a log, in memory; readers that keep up read only these."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from pxrs_ray.data.frame import FrameHeader, unpack_header
from pxrs_ray.model import Offset

_SMALL_BYTES = 16 << 10
_COMPACT_MIN = 1_024


class MemoryTail:
    """Consecutive whole frames, oldest first; the owner bounds it by `evict` or `drop_below`.

    Not thread-safe: `PartitionLog` holds its lock around every call.
    """

    def __init__(self) -> None:
        self._frames: list[bytes] = []
        self._bases: list[Offset] = []
        self._ends: list[Offset] = []
        self._maxima_ms: list[int] = []
        self._head = 0
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._frames) - self._head

    @property
    def base_offset(self) -> Offset | None:
        """The first offset that is here; None when empty."""
        return self._bases[self._head] if len(self) else None

    def append(self, header: FrameHeader, frame: bytes) -> None:
        """Add the frame behind the last one."""
        greatest = self._maxima_ms[-1] if self._maxima_ms else header.timestamp_max_ms
        self._frames.append(frame)
        self._bases.append(header.base_offset)
        self._ends.append(header.end_offset)
        self._maxima_ms.append(max(greatest, header.timestamp_max_ms))
        self.bytes += len(frame)

    def parts(self, count: int) -> list[tuple[Offset, int, int]]:
        """(end offset, bytes, greatest timestamp so far) of the oldest `count` frames."""
        here = slice(self._head, self._head + count)
        sizes = map(len, self._frames[here])
        return list(zip(self._ends[here], sizes, self._maxima_ms[here], strict=True))

    def evict(self, bytes_max: int) -> None:
        """Drop the oldest frames until at most `bytes_max` are left, but never the newest."""
        while self.bytes > bytes_max and len(self) > 1:
            self.drop_oldest()

    def drop_below(self, offset: Offset) -> None:
        """Drop the frames that end at or below `offset`."""
        while len(self) and self._ends[self._head] <= offset:
            self.drop_oldest()

    def drop_oldest(self) -> None:
        """Drop one frame."""
        self.bytes -= len(self._frames[self._head])
        self._frames[self._head] = b""
        self._head += 1
        if self._head >= _COMPACT_MIN and self._head * 2 >= len(self._frames):
            for column in (self._frames, self._bases, self._ends, self._maxima_ms):
                del column[: self._head]
            self._head = 0

    def cut(self, offset: Offset) -> None:
        """Drop the frames that end above `offset`."""
        while len(self) and self._ends[-1] > offset:
            self.bytes -= len(self._frames[-1])
            for column in (self._frames, self._bases, self._ends, self._maxima_ms):
                column.pop()

    def read(
        self, offset: Offset, end_max: Offset, records_max: int, bytes_max: int
    ) -> tuple[list[bytes], Offset]:
        """Runs of whole frames from the one holding `offset` on, and the offset after them.

        At least one frame, then up to the bounds, but none ending above `end_max`. Small frames
        are joined to one run.
        """
        chunks: list[bytes] = []
        small: list[bytes] = []
        size, after = 0, offset
        for at in range(bisect_right(self._ends, offset, self._head), len(self._frames)):
            frame = self._frames[at]
            size += len(frame)
            if self._ends[at] > end_max or (size > bytes_max and size > len(frame)):
                break
            if len(frame) < _SMALL_BYTES:
                small.append(frame)
            else:
                if small:
                    chunks.append(b"".join(small))
                    small = []
                chunks.append(frame)
            after = self._ends[at]
            if after - offset >= records_max:
                break
        if small:
            chunks.append(b"".join(small))
        return chunks, after

    def frame_reaching(self, timestamp_ms: int) -> bytes | None:
        """The first frame with a timestamp of at least `timestamp_ms`; None when none has."""
        found = bisect_left(self._maxima_ms, timestamp_ms, self._head)
        return self._frames[found] if found < len(self._frames) else None

    def timestamps(self) -> tuple[int, int]:
        """The first frame's lowest timestamp, and the greatest of all; not when empty."""
        return unpack_header(self._frames[self._head]).timestamp_min_ms, self._maxima_ms[-1]
