"""What logs ask of the file system, in one class, so that tests can take disks and power away.

Rules of this file: a write is whole or it never happened (the caller is told DiskFull and the
file is cut back); small files are replaced atomically; nothing here knows what is in a file.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pxrs_ray.errors import AlreadyExists, DiskFull

VECTORS_MAX = 1_000
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class Files:
    """The real file system. All methods may block."""

    def open(self, path: Path, *, create: bool = False) -> int:
        """Open for reading and writing; the caller closes what it gets."""
        return os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o644)

    def open_to_read(self, path: Path) -> int:
        """Open for reading; the caller closes what it gets."""
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def write(self, fd: int, pieces: Sequence[Any], position: int) -> int:
        """Write all of `pieces` at `position`; answer how many bytes. Whole, or not at all.

        Raises DiskFull when there is no room, after cutting the file back to `position`.
        """
        pending = [memoryview(piece).cast("B") for piece in pieces if len(piece)]
        total = sum(len(piece) for piece in pending)
        written = 0
        try:
            while pending:
                done = self.write_some(fd, pending[:VECTORS_MAX], position + written)
                written += done
                while pending and done >= len(pending[0]):
                    done -= len(pending.pop(0))
                if pending:
                    pending[0] = pending[0][done:]
        except OSError as error:
            with contextlib.suppress(OSError):
                self.truncate(fd, position)
            if error.errno in _FULL:
                raise DiskFull(
                    f"no room for {total} bytes ({error.strerror}): nothing of them was kept; "
                    "free disk space, or lower retention"
                ) from error
            raise
        return total

    def write_some(self, fd: int, pieces: Sequence[Any], position: int) -> int:
        """Write what the system takes in one go; the one call that a full disk refuses."""
        return os.pwritev(fd, pieces, position)

    def read(self, fd: int, size: int, position: int) -> bytes:
        """Read up to `size` bytes at `position`; fewer only at the end of the file."""
        data = os.pread(fd, size, position)
        while 0 < len(data) < size:
            more = os.pread(fd, size - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    def sync(self, fd: int) -> None:
        """Return when everything written to `fd` would survive a power cut."""
        os.fdatasync(fd)

    def truncate(self, fd: int, size: int) -> None:
        """Cut a file to `size` bytes."""
        os.ftruncate(fd, size)

    def sync_folder(self, folder: Path) -> None:
        """Make names in `folder` survive a power cut."""
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def replace(self, path: Path, data: bytes, *, sync: bool) -> None:
        """Put `data` in the place of `path`'s content: after a crash it is the old or the new."""
        temporary = path.with_name(path.name + ".new")
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            self.write(fd, [data], 0)
            if sync:
                self.sync(fd)
        finally:
            os.close(fd)
        temporary.replace(path)
        if sync:
            self.sync_folder(path.parent)

    def lock(self, path: Path, wait_ms: int) -> int:
        """Hold the file `path` against other processes, until the answered fd is closed.

        Raises AlreadyExists when another process still holds it after `wait_ms`.
        """
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        deadline = time.monotonic() + wait_ms / 1_000
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return fd
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    os.close(fd)
                    raise AlreadyExists(
                        f"{path.parent} is in use by another process: two buffers must never "
                        "write one log; end the other one first"
                    ) from None
            time.sleep(0.02)


def boot_id() -> str:
    """What differs after each start of the machine; '' where the system does not tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
