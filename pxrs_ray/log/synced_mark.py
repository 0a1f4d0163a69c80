"""Notes how far a log is synced, in its lock file, which is open anyway.

Rules of this file. The note is written after each sync and is itself not synced. After a kill the
next process finds the newest note; after a power cut the note is old, never too high. Below it
nothing can be torn. Above it, in the same life of the machine, the page cache is not believed: a
sync may have failed, and the system then marks such pages clean though they are not on disk. They
are written again before any answer says that they are there.
"""

from __future__ import annotations

import contextlib
import struct

from xxhash import xxh3_64_intdigest

from pxrs_ray.codec import Codec, register
from pxrs_ray.files import Files
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Offset

_FIELDS = struct.Struct("<Q")
NOTE_BYTES = _FIELDS.size + 8


@dataclass(frozen=True, slots=True)
class Synced:
    """Everything below `offset` is on disk. After a `power_cut` anything above may be torn."""

    offset: Offset = 0
    power_cut: bool = False


def _encode(offset: Offset) -> bytes:
    fields = _FIELDS.pack(offset)
    return fields + xxh3_64_intdigest(fields).to_bytes(8, "little")


def _decode(data: bytes) -> Offset:
    fields = data[: _FIELDS.size]
    if len(data) != NOTE_BYTES or data[_FIELDS.size :] != _encode_checksum(fields):
        raise ValueError("the note of what is synced is not whole")
    return int(_FIELDS.unpack(fields)[0])


def _encode_checksum(fields: bytes) -> bytes:
    return xxh3_64_intdigest(fields).to_bytes(8, "little")


NOTE: Codec[Offset] = register(Codec("log: lock (synced offset)", int, _encode, _decode))


def read_note(files: Files, lock_fd: int) -> Offset:
    """What was noted; 0 when nothing was, or not whole."""
    try:
        return NOTE.decode(files.read(lock_fd, files.length(lock_fd), 0))
    except ValueError:
        return 0


def write_note(files: Files, lock_fd: int, offset: Offset) -> None:
    """Note it. What cannot be noted is only believed less by those who come."""
    with contextlib.suppress(OSError):
        files.overwrite(lock_fd, [NOTE.encode(offset)], 0)
