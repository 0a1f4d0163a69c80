"""The segments of one partition log: written at the end, read anywhere, dropped from the front.

Rules of this file. One writer, any number of readers: the list of segments is replaced, never
changed, and an index only grows by what is already written. A segment is synced before its
successor gets a frame, so only the last one can be torn. Nothing here knows producers or groups.
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path

from pxrs_ray.errors import DiskFull, LogError
from pxrs_ray.log.files import Files
from pxrs_ray.log.frame import FrameHeader
from pxrs_ray.log.index import SparseIndex
from pxrs_ray.log.limits import LogLimits
from pxrs_ray.log.recovery import Cut, recover
from pxrs_ray.log.segment import (
    FILE_HEADER_BYTES,
    Segment,
    pack_file_header,
    segment_path,
)
from pxrs_ray.model import Offset


class DiskLog:
    """See the rules at the head of this file."""

    def __init__(self, folder: Path, limits: LogLimits, files: Files) -> None:
        """Open what the folder holds. Raises LogCorrupted; `begin` before the first append."""
        self._folder = folder
        self._files = files
        self._fd = -1
        self._fd_lock = threading.Lock()
        self.limits = limits
        recovered = recover(files, folder, limits.index_interval_bytes)
        self.segments: list[Segment] = recovered.segments
        self.cut: Cut | None = recovered.cut
        self.size_bytes = sum(segment.size for segment in self.segments)

    def begin(self, end_offset: Offset, now_ms: int) -> None:
        """Be ready to append at `end_offset`: to the last segment, or to a new one.

        What recovery found is synced: a process that was killed left it to the system.
        """
        if self.segments:
            self._fd = self._files.open(self.segments[-1].path)
            self._files.sync(self._fd)
        if not self.segments or self.segments[-1].end_offset != end_offset:
            self.roll(end_offset, now_ms)

    @property
    def active(self) -> Segment:
        """The segment that is written."""
        return self.segments[-1]

    def append(self, header: FrameHeader, frame: bytes, now_ms: int) -> None:
        """Write a frame at the end; whole, or not at all. Raises DiskFull."""
        size = self.active.size
        if not self.active.empty and size + len(frame) > self.limits.segment_bytes_max:
            self.roll(header.base_offset, now_ms)
        self._files.write(self._fd, [frame], self.active.size)
        self.active.index.add(header)
        self.size_bytes += len(frame)

    def roll(self, base_offset: Offset, now_ms: int) -> None:
        """Seal the active segment and go on in a new one. Raises DiskFull, and stays then."""
        if self._fd >= 0:
            self._files.sync(self._fd)
        path = segment_path(self._folder, base_offset)
        fd = self._files.open(path, create=True)
        try:
            self._files.write(fd, [pack_file_header(base_offset, now_ms)], 0)
            self._files.truncate(fd, FILE_HEADER_BYTES)
            self._files.sync(fd)
            self._files.sync_folder(self._folder)
        except BaseException:
            os.close(fd)
            if not self.segments or path != self.active.path:
                path.unlink(missing_ok=True)
            raise
        index = SparseIndex(self.limits.index_interval_bytes, FILE_HEADER_BYTES, base_offset)
        with self._fd_lock:
            before, self._fd = self._fd, fd
        if before >= 0:
            os.close(before)
        self._write_index()
        kept = [s for s in self.segments if s.path != path]
        self.segments = [*kept, Segment(path, base_offset, index)]
        self.size_bytes = sum(segment.size for segment in self.segments)

    def _write_index(self) -> None:
        if self.segments and not self.active.empty:
            try:
                packed = self.active.index.pack()
                self._files.replace(self.active.index_path, packed, sync=False)
            except (OSError, DiskFull):
                pass  # an index that is missing is made anew from the segment

    def dup(self) -> int:
        """The active file once more, for a sync that does not hold up the writer."""
        with self._fd_lock:
            return os.dup(self._fd)

    def read(
        self, offset: Offset, records_max: int, bytes_max: int
    ) -> tuple[memoryview, Offset] | None:
        """Whole frames from `offset` on, of one segment; None at the end. Raises LogCorrupted."""
        segments = self.segments
        first = max(0, bisect_right(segments, offset, key=lambda s: s.base_offset) - 1)
        for segment in segments[first:]:
            found = segment.read(self._files, offset, records_max, bytes_max)
            if found is not None:
                return found
        return None

    def frame_reaching(self, timestamp_ms: int) -> tuple[FrameHeader, memoryview] | None:
        """The first frame with a timestamp of at least `timestamp_ms`; None when none has."""
        for segment in self.segments:
            if segment.index.timestamp_max_ms < timestamp_ms:
                continue
            position = segment.index.position_for_timestamp(timestamp_ms)
            for header, body in segment.frames(self._files, position or FILE_HEADER_BYTES):
                if header.timestamp_max_ms >= timestamp_ms:
                    return header, body
        return None

    def frames_from(self, offset: Offset) -> Iterator[FrameHeader]:
        """The header of every frame that begins at `offset` or above. Raises LogCorrupted."""
        for segment in self.segments:
            if segment.end_offset > offset:
                position = segment.index.position_for_offset(offset) or FILE_HEADER_BYTES
                for header, _ in segment.frames(self._files, position):
                    if header.base_offset >= offset:
                        yield header

    def drop(self, count: int) -> None:
        """Delete the oldest `count` segments; the active one stays."""
        if count >= len(self.segments):
            raise LogError("the active segment cannot be dropped: roll first")
        dropped, self.segments = self.segments[:count], self.segments[count:]
        for segment in dropped:
            self.size_bytes -= segment.size
            segment.path.unlink(missing_ok=True)
            segment.index_path.unlink(missing_ok=True)

    def close(self) -> None:
        """Give the file back; nothing is synced here."""
        with self._fd_lock:
            before, self._fd = self._fd, -1
        if before >= 0:
            os.close(before)
