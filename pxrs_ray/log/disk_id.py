"""Identifies a disk: a random id in a file of the data folder, made once.

Rules of this file. The first process makes it, and every other finds the same one, also when
several make it at once: it is written and synced under a name of its own, and then linked to the
one name, which succeeds once. An emptied or foreign folder is another disk. An id that cannot be
read is an error and never a new disk.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from pathlib import Path

from pxrs_ray.codec import json_codec
from pxrs_ray.errors import LogCorrupted
from pxrs_ray.files import Files
from pxrs_ray.late_dataclass import dataclass

NAME = "disk.json"


@dataclass(frozen=True, slots=True)
class KnownDisk:
    """What a data folder notes of itself."""

    disk_id: str


DISK = json_codec("node: disk.json", KnownDisk)


def read_disk_id(files: Files, data_dir: Path) -> str:
    """The id of the disk that is here; '' when there is none. Raises LogCorrupted, OSError."""
    path = data_dir / NAME
    try:
        found: KnownDisk = DISK.decode(files.read_file(path))
    except FileNotFoundError:
        return ""
    except ValueError as error:
        raise LogCorrupted(f"{path}: does not tell which disk this is ({error})") from error
    if not found.disk_id:
        raise LogCorrupted(f"{path}: does not tell which disk this is (it is empty)")
    return found.disk_id


def make_disk_id(files: Files, data_dir: Path) -> str:
    """The id of the disk that is here, made where there is none.

    Whoever is answered may rely on it after a power cut. Raises LogCorrupted, DiskFull, OSError.
    """
    files.make_folder(data_dir)
    found = read_disk_id(files, data_dir)
    if not found:
        made = uuid.uuid4().hex
        temporary = data_dir / f"{NAME}.{made}.new"
        try:
            fd = files.create(temporary)
            try:
                files.write(fd, [DISK.encode(KnownDisk(made))], 0)
                files.sync(fd)
            finally:
                files.close(fd)
            with suppress(FileExistsError):  # somebody was first: it is theirs
                files.link(temporary, data_dir / NAME)
        finally:
            files.unlink(temporary)
        found = read_disk_id(files, data_dir)
    # Also who finds it: whoever made it may not have come so far.
    files.sync_folder(data_dir)
    return found
