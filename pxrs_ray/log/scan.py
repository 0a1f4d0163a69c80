"""Reads the frames of a file from end to end, for recovery and inspection."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pxrs_ray.data.frame import HEADER_BYTES, MAGIC, FrameHeader, check_body, unpack_header
from pxrs_ray.errors import LogCorrupted
from pxrs_ray.files import Files
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Offset

_WINDOW_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes of a segment that are no frame: where, which offset should be there, and why."""

    path: Path
    position: int
    offset: Offset
    reason: str

    def error(self) -> LogCorrupted:
        """The error that names it."""
        return LogCorrupted(
            f"{self.path}: damaged at position {self.position}, offset {self.offset}: "
            f"{self.reason}; restore the file from a copy, or give up the log from there on"
        )


def scan(
    files: Files, fd: int, path: Path, position: int, size: int, offset: Offset
) -> Iterator[tuple[FrameHeader, memoryview, int] | Damage]:
    """Walk a file's frames: (header, checked body, position) each; Damage where none follows.

    Ends after the first Damage. Offsets must rise from `offset` on.
    """
    window, window_start = memoryview(b""), position

    def ensure(count: int) -> int:
        """Have `count` bytes at `position` in the window, as far as the file has them."""
        nonlocal window, window_start
        if position + count > window_start + len(window):
            want = min(max(_WINDOW_BYTES, count), size - position)
            window, window_start = memoryview(files.read(fd, want, position)), position
        return position - window_start

    while position < size:
        try:
            here = ensure(HEADER_BYTES)
            header = unpack_header(window, here)
            if header.base_offset < offset:
                raise LogCorrupted(f"its base offset {header.base_offset} is not behind the last")
            if position + header.frame_bytes > size:
                raise LogCorrupted(f"cut: {size - position} of {header.frame_bytes} bytes")
            here = ensure(header.frame_bytes)
            body = window[here + HEADER_BYTES : here + header.frame_bytes]
            check_body(header, body)
        except LogCorrupted as error:
            yield Damage(path, position, offset, str(error))
            return
        yield header, body, position
        position += header.frame_bytes
        offset = header.end_offset


def whole_frame_after(
    files: Files, fd: int, position: int, size: int, offset: Offset
) -> int | None:
    """The position of a whole frame of a later offset behind `position`; None when there is none.

    Tells damage in the middle of a log from a tail that was never completely written. A frame
    whose header is whole says where it ends: what its payloads hold is no frame of the log,
    whatever it looks like.
    """
    raw = files.read(fd, size - position, position)
    data = memoryview(raw)
    begin = 1
    try:
        begin = unpack_header(data).frame_bytes
    except LogCorrupted:
        pass
    found = raw.find(MAGIC, begin)
    while found >= 0:
        try:
            header = unpack_header(data, found)
            check_body(header, data[found + HEADER_BYTES : found + header.frame_bytes])
            if header.base_offset >= offset:
                return position + found
        except LogCorrupted:
            pass
        found = raw.find(MAGIC, found + 1)
    return None
