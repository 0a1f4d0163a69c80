"""Opens segment files after a clean end or a crash.

Rules of this file. Only the last segment that holds frames can have a torn tail: the one before it
was synced before the next got its first frame. A tail is torn when no whole frame follows it; then
the file is truncated there, and the cut is reported. After a power cut the pages of what was not
synced are there or not in any order, so there a tail is torn whatever follows. Any other damage is
an error, and the file stays as it is. An index is a convenience: one that is missing or wrong is
made anew.
"""

from __future__ import annotations

from pathlib import Path

from pxrs_ray.errors import LogCorrupted
from pxrs_ray.files import Files
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.log.index import SparseIndex
from pxrs_ray.log.scan import Damage, scan, whole_frame_after
from pxrs_ray.log.segment import (
    FILE_HEADER_BYTES,
    INDEX_SUFFIX,
    Segment,
    SegmentHead,
    read_file_header,
    segment_paths,
)
from pxrs_ray.log.synced_mark import Synced
from pxrs_ray.model import Offset

NOTHING_SYNCED = Synced()


@dataclass(frozen=True, slots=True)
class Cut:
    """A torn tail that recovery removed."""

    path: Path
    position: int
    bytes: int
    offset: Offset
    reason: str


@dataclass(frozen=True, slots=True)
class RecoveredSegments:
    """What the folder holds now, in order; the last segment may be written on."""

    segments: list[Segment]
    cut: Cut | None


def recover(
    files: Files,
    folder: Path,
    interval_bytes: int,
    *,
    repair: bool = True,
    synced: Synced = NOTHING_SYNCED,
) -> RecoveredSegments:
    """Open every segment of `folder`, cutting a torn tail unless not to `repair`.

    Raises LogCorrupted naming file, position and offset.
    """
    paths = segment_paths(folder, files)
    if repair:
        _remove_unborn(files, paths)
    segments: list[Segment] = []
    cut: Cut | None = None
    for path in paths:
        segment = None if path is paths[-1] else _from_index(files, path, interval_bytes)
        if segment is None:
            segment, damage = _from_scan(files, path, interval_bytes)
            if damage is not None:
                later = any(files.size_of(p) > FILE_HEADER_BYTES for p in paths if p > path)
                torn = not later and synced.power_cut and damage.offset >= synced.offset
                cut = _cut_tail(files, segment, damage, later=later, torn=torn, repair=repair)
        if segments and segments[-1].end_offset > segment.base_offset:
            raise LogCorrupted(
                f"{path}: begins at offset {segment.base_offset}, but {segments[-1].path.name} "
                f"before it reaches {segments[-1].end_offset}"
            )
        segments.append(segment)
    while repair and len(segments) > 1 and segments[-1].empty and cut is not None:
        files.unlink(segments.pop().path)
    return RecoveredSegments(segments, cut)


def _remove_unborn(files: Files, paths: list[Path]) -> None:
    """Drop a last file whose header never got to disk: it cannot hold a frame."""
    while paths and files.size_of(paths[-1]) <= FILE_HEADER_BYTES:
        try:
            read_file_header(files, paths[-1])
            return
        except LogCorrupted:
            files.unlink(paths.pop())


def _from_index(files: Files, path: Path, interval_bytes: int) -> Segment | None:
    """A sealed segment by its index file; None when the index is missing, damaged or stale."""
    try:
        data = files.read_file(path.with_suffix(INDEX_SUFFIX))
        index = SparseIndex.unpack(data, interval_bytes)
    except (FileNotFoundError, LogCorrupted):
        return None
    if index.size != files.size_of(path):
        return None
    return _segment(path, read_file_header(files, path), index)


def _segment(path: Path, head: SegmentHead, index: SparseIndex) -> Segment:
    return Segment(path, head.base_offset, index, head.epoch)


def _from_scan(files: Files, path: Path, interval_bytes: int) -> tuple[Segment, Damage | None]:
    """A segment by reading all of it, up to its end or its first damage."""
    head = read_file_header(files, path)
    index = SparseIndex(interval_bytes, FILE_HEADER_BYTES, head.base_offset)
    fd = files.open_to_read(path)
    try:
        size = files.length(fd)
        for found in scan(files, fd, path, FILE_HEADER_BYTES, size, head.base_offset):
            if isinstance(found, Damage):
                return _segment(path, head, index), found
            index.add(found[0])
    finally:
        files.close(fd)
    return _segment(path, head, index), None


def _cut_tail(
    files: Files, segment: Segment, damage: Damage, *, later: bool, torn: bool, repair: bool
) -> Cut:
    fd = files.open(segment.path) if repair else files.open_to_read(segment.path)
    try:
        size = files.length(fd)
        at = damage.position, size, damage.offset
        if later or (not torn and whole_frame_after(files, fd, *at) is not None):
            raise damage.error()
        if repair:
            files.truncate(fd, damage.position)
            files.sync(fd)
    finally:
        files.close(fd)
    return Cut(segment.path, damage.position, size - damage.position, damage.offset, damage.reason)
