"""Has a replica's log begin anew, whole, whatever ends it in the middle.

    note_beginning(files, folder, beginning)     # what is to be done is on disk before it begins
    finish_beginning(files, folder, lock_fd)     # now, or when the log is opened the next time

Rules of this file. It is for a replica that lacks what the others have dropped. Either the log is
as it was before, or it has nothing but the new beginning: one that is empty, and begins at 0, would
give offsets out again. The snapshot of producers may know of more than where the log begins; it
stays beside the log until that is as long.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pxrs_ray.codec import Codec, register
from pxrs_ray.errors import LogCorrupted
from pxrs_ray.files import Files
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.log.log_cut import CUT, FLOOR, SNAPSHOT
from pxrs_ray.log.manifest import Manifest
from pxrs_ray.log.producer_state import SNAPSHOT as SNAPSHOT_FORM
from pxrs_ray.log.segment import INDEX_SUFFIX, segment_paths
from pxrs_ray.log.synced_mark import NOTE, NOTE_BYTES
from pxrs_ray.model import Offset

BEGIN = "begin"
BEGUN = "producers.begun"


@dataclass(frozen=True, slots=True)
class Beginning:
    """A log begins at `at`; `producers` is a snapshot of what is known of them, there or further
    on."""

    at: Offset
    producers: bytes


def _decode(data: bytes) -> Beginning:
    at, producers = NOTE.decode(data[:NOTE_BYTES]), data[NOTE_BYTES:]
    SNAPSHOT_FORM.decode(producers)
    return Beginning(at, producers)


BEGINNING: Codec[Beginning] = register(
    Codec("log: begin", Beginning, lambda it: NOTE.encode(it.at) + it.producers, _decode)
)


def note_beginning(files: Files, folder: Path, beginning: Beginning) -> None:
    """From now on the log begins so, once `finish_beginning` is done.

    Raises LogCorrupted where the snapshot is none, OSError, DiskFull.
    """
    data = BEGINNING.encode(beginning)
    try:
        BEGINNING.decode(data)
    except ValueError as error:
        raise LogCorrupted(f"the producers' snapshot: {error}") from error
    files.replace(folder / BEGIN, data, sync=True)


def finish_beginning(files: Files, folder: Path, lock_fd: int) -> bool:
    """Do what was noted; whether anything was. May be cut off anywhere, and done again.

    Raises OSError, DiskFull, LogCorrupted.
    """
    try:
        beginning = BEGINNING.decode(files.read_file(folder / BEGIN))
    except FileNotFoundError:
        return False
    except ValueError as error:
        raise LogCorrupted(f"{folder / BEGIN}: {error}") from error
    for path in reversed(segment_paths(folder, files)):
        files.unlink(path.with_suffix(INDEX_SUFFIX))
        files.unlink(path)
    for name in (SNAPSHOT, FLOOR, CUT):
        files.unlink(folder / name)
    files.replace(folder / BEGUN, beginning.producers, sync=True)
    manifest = Manifest.read(files, folder)
    if manifest is not None:
        anew(manifest, beginning.at).write(files, folder)
    files.overwrite(lock_fd, [NOTE.encode(beginning.at)], 0)
    files.sync(lock_fd)
    # Every name that is gone is gone for good before the note is.
    files.sync_folder(folder)
    files.unlink(folder / BEGIN)
    files.sync_folder(folder)
    return True


def anew(manifest: Manifest, at: Offset) -> Manifest:
    """The manifest of a log that begins at `at`."""
    return replace(manifest, start_offset=at, known_end=at, gaps=[], stopped="")
