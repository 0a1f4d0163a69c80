"""Segments: the files of a partition log, each named for its first offset.

Rules of this file. A segment is a small header and then frames, back to back. Its index counts
what is in the log; bytes behind `size` are not. Every read verifies checksums and names file,
position and offset of what fails. Reading opens the file anew, so that any number of segments
costs no descriptors. All frames of a segment are of one leader epoch; that of logs without replicas
is 0, and then the header is as it was before there were any.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from xxhash import xxh3_64_intdigest

from pxrs_ray.codec import Codec, register
from pxrs_ray.data.frame import HEADER_BYTES, FrameHeader, check_body, unpack_header
from pxrs_ray.errors import LogCorrupted
from pxrs_ray.files import Files
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.log.index import SparseIndex
from pxrs_ray.log.scan import Damage, scan
from pxrs_ray.model import Offset

SUFFIX = ".seg"
INDEX_SUFFIX = ".idx"
_MAGIC = b"PXSEGM"
_CREATED, _OF_EPOCH = 1, 2
# magic, version, reserved, base offset, and by version: when it was created, or its leader epoch
_FIELDS = struct.Struct("<6sBBQQ")
FILE_HEADER_BYTES = _FIELDS.size + 8


class SegmentHead(NamedTuple):
    """What a segment file begins with. When one of a leader epoch was created is not told."""

    base_offset: Offset
    created_ms: int = 0
    epoch: int = 0


def pack_file_header(head: SegmentHead) -> bytes:
    """The bytes of it."""
    tail = (_OF_EPOCH, head.epoch) if head.epoch else (_CREATED, head.created_ms)
    fields = _FIELDS.pack(_MAGIC, tail[0], 0, head.base_offset, tail[1])
    return fields + xxh3_64_intdigest(fields).to_bytes(8, "little")


def _decode_file_header(data: bytes) -> SegmentHead:
    try:
        return check_file_header(data, Path())
    except LogCorrupted as error:
        raise ValueError(str(error)) from error


FILE_HEADER: Codec[SegmentHead] = register(
    Codec("log: *.seg, its header", SegmentHead, pack_file_header, _decode_file_header)
)


def check_file_header(data: bytes, path: Path) -> SegmentHead:
    """Read a segment's header. Raises LogCorrupted when it is no segment we can read."""
    fields, checksum = data[: _FIELDS.size], data[_FIELDS.size : FILE_HEADER_BYTES]
    if checksum != xxh3_64_intdigest(fields).to_bytes(8, "little"):
        raise LogCorrupted(f"{path}: damaged at position 0: the segment header is not whole")
    magic, version, _, base_offset, last = _FIELDS.unpack(fields)
    if magic != _MAGIC or version not in (_CREATED, _OF_EPOCH):
        raise LogCorrupted(f"{path}: segment version {version} is above {_OF_EPOCH}")
    if version == _CREATED:
        return SegmentHead(int(base_offset), created_ms=int(last))
    return SegmentHead(int(base_offset), epoch=int(last))


def read_file_header(files: Files, path: Path) -> SegmentHead:
    """The header of a segment file. Raises LogCorrupted, OSError."""
    fd = files.open_to_read(path)
    try:
        return check_file_header(files.read(fd, FILE_HEADER_BYTES, 0), path)
    finally:
        files.close(fd)


def segment_path(folder: Path, base_offset: Offset) -> Path:
    """Where the segment that begins at `base_offset` is."""
    return folder / f"{base_offset:020d}{SUFFIX}"


def segment_paths(folder: Path, files: Files | None = None) -> list[Path]:
    """All segment files of a folder, in order of offset."""
    return (files or Files()).names(folder, SUFFIX)


@dataclass(slots=True)
class Segment:
    """One segment file and what is known of it."""

    path: Path
    base_offset: Offset
    index: SparseIndex
    epoch: int = 0

    @property
    def size(self) -> int:
        """Bytes that belong to the log."""
        return self.index.size

    @property
    def end_offset(self) -> Offset:
        """The offset after the last message; the base offset when there is none."""
        return self.index.end_offset

    @property
    def empty(self) -> bool:
        """Whether it holds no frame."""
        return not self.index.positions

    @property
    def index_path(self) -> Path:
        """Where the index of the sealed segment is."""
        return self.path.with_suffix(INDEX_SUFFIX)

    def read(
        self, files: Files, offset: Offset, records_max: int, bytes_max: int
    ) -> tuple[memoryview, Offset] | None:
        """Whole frames from the one holding `offset` on, and the offset after them.

        At least one frame, then up to the bounds; None when no frame ends above `offset`.
        Raises LogCorrupted.
        """
        size, position = self.size, self.index.position_for_offset(offset)
        if position is None or offset >= self.end_offset:
            return None
        fd = files.open_to_read(self.path)
        try:
            while True:
                header = self._header(files.read(fd, HEADER_BYTES, position), position, offset)
                if header.end_offset > offset:
                    break
                position += header.frame_bytes
            want = min(max(bytes_max, header.frame_bytes), size - position)
            data = memoryview(files.read(fd, want, position))
        finally:
            files.close(fd)
        return self._whole_frames(data, position, offset, records_max)

    def _header(self, data: bytes | memoryview, position: int, offset: Offset) -> FrameHeader:
        try:
            return unpack_header(data)
        except LogCorrupted as error:
            raise Damage(self.path, position, offset, str(error)).error() from error

    def _whole_frames(
        self, data: memoryview, position: int, offset: Offset, records_max: int
    ) -> tuple[memoryview, Offset]:
        here, records = 0, 0
        while len(data) - here >= HEADER_BYTES and records < records_max:
            header = self._header(data[here : here + HEADER_BYTES], position + here, offset)
            after = here + header.frame_bytes
            if after > len(data) and here:
                break
            try:
                check_body(header, data[here + HEADER_BYTES : after])
            except LogCorrupted as error:
                raise Damage(
                    self.path, position + here, header.base_offset, str(error)
                ).error() from error
            records += header.end_offset - max(offset, header.base_offset)
            here, offset = after, header.end_offset
        return data[:here], offset

    def frames(self, files: Files, position: int) -> Iterator[tuple[FrameHeader, memoryview]]:
        """Every frame from `position` (a frame's start) on. Raises LogCorrupted."""
        fd = files.open_to_read(self.path)
        try:
            for found in scan(files, fd, self.path, position, self.size, self.base_offset):
                if isinstance(found, Damage):
                    raise found.error()
                yield found[0], found[1]
        finally:
            files.close(fd)
