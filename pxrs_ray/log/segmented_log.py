"""The segments of one partition log: written at the end, read anywhere, dropped from the front.

Rules of this file. One writer, any number of readers: the list of segments is replaced, never
changed, and an index only grows by what is already written. A segment is synced before its
successor gets a frame, so only the last one can be torn. A new leader epoch begins a new segment.
Nothing here knows producers or groups.
Whatever raises OSError may have left the files in any state: the log must be opened anew.
"""

from __future__ import annotations

import contextlib
import threading
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path

from pxrs_ray.data.frame import FrameHeader
from pxrs_ray.data.log_limits import LogLimits
from pxrs_ray.errors import DiskFull, LogError
from pxrs_ray.files import Files
from pxrs_ray.log.index import SparseIndex
from pxrs_ray.log.recovery import Cut, recover
from pxrs_ray.log.segment import (
    FILE_HEADER_BYTES,
    Segment,
    SegmentHead,
    pack_file_header,
    segment_path,
)
from pxrs_ray.log.synced_mark import Synced
from pxrs_ray.model import Offset

REWRITE_BYTES = 4 << 20


class Active:
    """The descriptor of the segment that is written; closed when its last user releases it."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.users = 1


class DiskLog:
    """See the rules at the head of this file."""

    def __init__(self, folder: Path, limits: LogLimits, files: Files, synced: Synced) -> None:
        """Open what the folder holds. Raises LogCorrupted; `begin` before the first append."""
        self._folder = folder
        self._files = files
        self._active: Active | None = None
        self._active_lock = threading.Lock()
        self._syncing = threading.Lock()
        self._sync_error: OSError | None = None
        self._power_cut = synced.power_cut
        self.limits = limits
        recovered = recover(files, folder, limits.index_interval_bytes, synced=synced)
        self.segments: list[Segment] = recovered.segments
        self.cut: Cut | None = recovered.cut
        self.size_bytes = sum(segment.size for segment in self.segments)

    def begin(self, end_offset: Offset, synced: Offset | None, now_ms: int) -> None:
        """Be ready to append at `end_offset`: to the last segment, or to a new one.

        What recovery found is synced, and written again from `synced` on (None: all of it is on
        disk): what can be read may be what a failed sync left in the system's memory alone.
        """
        if self.segments:
            fd = self._files.open(self.segments[-1].path)
            self._active = Active(fd)
            if synced is not None:
                self._write_again(fd, self.segments[-1], synced)
                self._files.sync_folder(self._folder)
            if synced is not None or self._power_cut:
                self._files.end_at(fd, self.segments[-1].size)
            self._files.sync(fd)
        if not self.segments or self.segments[-1].end_offset != end_offset:
            self.roll(end_offset, now_ms)

    def _write_again(self, fd: int, segment: Segment, synced: Offset) -> None:
        header = self._files.read(fd, FILE_HEADER_BYTES, 0)
        self._files.overwrite(fd, [header], 0)
        if segment.end_offset <= synced:
            return
        position = segment.index.position_for_offset(synced)
        while position is not None and position < segment.size:
            data = self._files.read(fd, min(REWRITE_BYTES, segment.size - position), position)
            self._files.overwrite(fd, [data], position)
            position += len(data)

    @property
    def active(self) -> Segment:
        """The segment that is written."""
        return self.segments[-1]

    @property
    def epoch(self) -> int:
        """The leader epoch of what is appended."""
        return self.segments[-1].epoch if self.segments else 0

    def epochs(self) -> list[tuple[int, Offset]]:
        """The leader epochs of what is here, each with the offset from which on it holds."""
        found: list[tuple[int, Offset]] = []
        for segment in self.segments:
            if not found or segment.epoch != found[-1][0]:
                found.append((segment.epoch, segment.base_offset))
        return found

    def append(self, header: FrameHeader, frame: bytes, now_ms: int) -> None:
        """Write a frame at the end; whole, or not at all. Raises DiskFull."""
        size = self.active.size
        if not self.active.empty and size + len(frame) > self.limits.segment_bytes_max:
            self.roll(header.base_offset, now_ms)
        assert self._active is not None
        self._files.write(self._active.fd, [frame], self.active.size)
        self.active.index.add(header)
        self.size_bytes += len(frame)

    def roll(self, base_offset: Offset, now_ms: int, epoch: int | None = None) -> None:
        """Seal the active segment and go on in a new one, of a higher leader `epoch` where one is
        named. Raises DiskFull, and stays then.
        """
        epoch = self.epoch if epoch is None else epoch
        if self._active is not None:
            self.sync(self._active.fd)
        path = segment_path(self._folder, base_offset)
        fd = self._files.create(path)
        try:
            self._files.write(fd, [pack_file_header(SegmentHead(base_offset, now_ms, epoch))], 0)
            self._files.truncate(fd, FILE_HEADER_BYTES)
            self._files.sync(fd)
            self._files.sync_folder(self._folder)
        except BaseException:
            self._files.close(fd)
            if not self.segments or path != self.active.path:
                with contextlib.suppress(OSError):
                    self._files.unlink(path)
            raise
        index = SparseIndex(self.limits.index_interval_bytes, FILE_HEADER_BYTES, base_offset)
        self._let_go(Active(fd))
        self._write_index()
        kept = [s for s in self.segments if s.path != path]
        self.segments = [*kept, Segment(path, base_offset, index, epoch)]
        self.size_bytes = sum(segment.size for segment in self.segments)

    def _write_index(self) -> None:
        if self.segments and not self.active.empty:
            try:
                packed = self.active.index.pack()
                self._files.replace(self.active.index_path, packed, sync=False)
            except (OSError, DiskFull):
                pass  # an index that is missing is made anew from the segment

    def sync(self, fd: int) -> None:
        """Sync the active file, held by the caller. Once it failed, it fails for ever.

        One at a time, for the system tells one caller alone that what it kept is lost.
        """
        with self._syncing:
            if self._sync_error is not None:
                raise self._sync_error
            try:
                self._files.sync(fd)
            except OSError as error:
                self._sync_error = error
                raise

    def hold(self) -> Active:
        """The active file for a sync that does not hold up the writer; it costs no descriptor.

        To be released, and held before the writer can close the log: see `PartitionLog.sync`.
        """
        with self._active_lock:
            active = self._active
            assert active is not None
            active.users += 1
        return active

    def _let_go(self, successor: Active | None) -> None:
        with self._active_lock:
            before, self._active = self._active, successor
        if before is not None:
            self.release(before)

    def release(self, active: Active) -> None:
        """Let go of what was held."""
        with self._active_lock:
            active.users -= 1
            last = not active.users
        if last:
            self._files.close(active.fd)

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
        """Delete the oldest `count` segments; the active one stays. What cannot be is kept."""
        if count >= len(self.segments):
            raise LogError("the active segment cannot be dropped: roll first")
        for segment in self.segments[:count]:
            self._files.unlink(segment.path)
            self.segments = self.segments[1:]
            self.size_bytes -= segment.size
            self._files.unlink(segment.index_path)

    def close(self) -> None:
        """Give the file back, once nobody syncs it any more; nothing is synced here."""
        self._let_go(None)
