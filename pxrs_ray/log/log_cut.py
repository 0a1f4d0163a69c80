"""Cuts the end off a log on disk, whole, whatever ends it in the middle.

    note_cut(files, folder, offset)          # what is to be done is on disk before it begins
    finish_cut(files, folder, lock_fd)       # now, or when the log is opened the next time

Rules of this file. Everything that knows of what is gone goes with it: segments, indexes, gaps, the
note of what is synced, what a snapshot knows of producers. Else it would be believed again as soon
as other messages have the offsets. Nothing is appended before the cut is done.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pxrs_ray.codec import Codec, register
from pxrs_ray.data.protocol import Gap
from pxrs_ray.errors import LogCorrupted
from pxrs_ray.files import Files
from pxrs_ray.log.manifest import Manifest
from pxrs_ray.log.producer_state import SNAPSHOT as SNAPSHOT_FORM
from pxrs_ray.log.scan import Damage, scan
from pxrs_ray.log.segment import (
    FILE_HEADER_BYTES,
    INDEX_SUFFIX,
    read_file_header,
    segment_paths,
)
from pxrs_ray.log.synced_mark import NOTE, read_note
from pxrs_ray.model import Offset

CUT = "cut"
# What is known of producers, and in a replicated log what was known where nothing is cut any more.
SNAPSHOT, FLOOR = "producers.snap", "producers.floor"

CUT_NOTE: Codec[Offset] = register(Codec("log: cut", int, NOTE.encode, NOTE.decode))


def note_cut(files: Files, folder: Path, offset: Offset) -> None:
    """From now on the log ends at `offset`, once `finish_cut` is done. Raises OSError, DiskFull."""
    files.replace(folder / CUT, CUT_NOTE.encode(offset), sync=True)


def finish_cut(files: Files, folder: Path, lock_fd: int) -> Offset | None:
    """Do what was noted, if anything was: the offset. May be cut off anywhere, and done again.

    Raises OSError, DiskFull, LogCorrupted.
    """
    try:
        offset = CUT_NOTE.decode(files.read_file(folder / CUT))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise LogCorrupted(f"{folder / CUT}: {error}") from error
    _cut_segments(files, folder, offset)
    _roll_back_producers(files, folder, offset)
    manifest = Manifest.read(files, folder)
    if manifest is not None:  # and with it every name that is gone so far
        below(manifest, offset).write(files, folder)
    # An older note, of what is gone, would be taken for a loss after a power cut.
    files.overwrite(lock_fd, [NOTE.encode(min(offset, read_note(files, lock_fd)))], 0)
    files.sync(lock_fd)
    files.unlink(folder / CUT)
    files.sync_folder(folder)
    return offset


def below(manifest: Manifest, offset: Offset) -> Manifest:
    """The manifest of a log that was cut at `offset`."""
    gaps = [
        Gap(gap.first, min(gap.end, offset), gap.at_ms, gap.reason)
        for gap in manifest.gaps
        if gap.first < offset
    ]
    start, end = min(manifest.start_offset, offset), min(manifest.known_end, offset)
    return replace(manifest, start_offset=start, known_end=end, gaps=gaps)


def _cut_segments(files: Files, folder: Path, offset: Offset) -> None:
    for path in reversed(segment_paths(folder, files)):
        # What is sealed will grow again, perhaps to the very size that its index tells.
        files.unlink(path.with_suffix(INDEX_SUFFIX))
        try:
            base_offset = read_file_header(files, path).base_offset
        except LogCorrupted:
            if files.size_of(path) > FILE_HEADER_BYTES:
                raise
            continue  # not even born: recovery drops it
        if base_offset < offset:
            _cut_segment(files, path, base_offset, offset)
            return
        files.unlink(path)


def _cut_segment(files: Files, path: Path, base_offset: Offset, offset: Offset) -> None:
    fd = files.open(path)
    try:
        end = size = files.length(fd)
        for found in scan(files, fd, path, FILE_HEADER_BYTES, size, base_offset):
            if isinstance(found, Damage):
                return  # before the cut: for recovery to judge
            header, _, position = found
            if header.base_offset < offset < header.end_offset:
                raise LogCorrupted(f"{path}: no message begins at {offset}, where it is to be cut")
            if header.base_offset >= offset:
                end = position
                break
        files.end_at(fd, end)
    finally:
        files.close(fd)


def _roll_back_producers(files: Files, folder: Path, offset: Offset) -> None:
    if snapshot_end(files, folder / SNAPSHOT, offset) is not None:
        return
    if snapshot_end(files, folder / FLOOR, offset) is not None:
        files.replace(folder / SNAPSHOT, files.read_file(folder / FLOOR), sync=True)
    else:
        files.unlink(folder / SNAPSHOT)
    files.unlink(folder / FLOOR)


def snapshot_end(files: Files, path: Path, end: Offset) -> Offset | None:
    """Up to where a snapshot of producers knows the log; None where it is not whole, not there, or
    knows of more than a log that ends at `end` has.
    """
    try:
        found = SNAPSHOT_FORM.decode(files.read_file(path)).end_offset
    except (FileNotFoundError, ValueError):
        return None
    return found if found <= end else None
