"""`Files`: every file operation of PXRS, in one class, so that tests can inject disk and power
failures.

Rules of this file. A write is whole or it never happened (the caller gets DiskFull and the file is
cut back); small files are replaced atomically; nothing here knows what is in a file. Files are for
their owner alone (0600, folders 0700). All code that writes files uses this class, and a tidy test
checks that: an operation that goes past it meets no fault in the tests.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import struct
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pxrs_ray.errors import DiskFull, LockHeld

VECTORS_MAX = 1_000
FILE_MODE = 0o600
FOLDER_MODE = 0o700
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_HELD = frozenset({errno.EAGAIN, errno.EACCES})
LOCK_PAUSE_S = 0.02
_PLACES = (1 << 62) - 1
_FLOCK = struct.Struct("@hhqqi")
_SET_LOCK: int | None = getattr(fcntl, "F_OFD_SETLK", None)


class Files:
    """The real file system. All methods may block, and raise OSError.

    The first ones are what a fault can befall; those below `replace` are made of them.
    """

    def open(self, path: Path, *, create: bool = False) -> int:
        """Open for reading and writing; the caller closes what it gets."""
        return os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), FILE_MODE)

    def open_to_read(self, path: Path) -> int:
        """Open for reading; the caller closes what it gets."""
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def close(self, fd: int) -> None:
        """Give back what was opened."""
        os.close(fd)

    def length(self, fd: int) -> int:
        """How many bytes an open file has."""
        return os.fstat(fd).st_size

    def identity(self, fd: int) -> tuple[int, int]:
        """Which file it is: its device, and its number there. Another one of that path differs."""
        found = os.fstat(fd)
        return found.st_dev, found.st_ino

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
        """Return when everything written to `fd` would survive a power cut.

        When it fails, what was written since the last time may be gone although it can still be
        read: the system tells of it once, and then takes its pages for clean.
        """
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

    def rename(self, source: Path, target: Path) -> None:
        """Give a file another name, in the place of what has it."""
        source.replace(target)

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name. Raises FileExistsError where something has that name."""
        target.hardlink_to(source)

    def unlink(self, path: Path) -> None:
        """Remove a file; one that is not there is success."""
        path.unlink(missing_ok=True)

    def make_folder(self, folder: Path) -> None:
        """Make a folder, and those above it that are missing."""
        missing = []
        while not folder.is_dir():
            missing.append(folder)
            folder = folder.parent
        for each in reversed(missing):
            with contextlib.suppress(FileExistsError):
                each.mkdir(FOLDER_MODE)
            self.sync_folder(each.parent)

    def remove_folder(self, folder: Path) -> None:
        """Remove a folder with everything in it; one that is not there is success."""
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(folder)

    def names(self, folder: Path, suffix: str) -> list[Path]:
        """The files of a folder whose names end in `suffix`, sorted."""
        return sorted(path for path in folder.iterdir() if path.name.endswith(suffix))

    def size_of(self, path: Path) -> int:
        """How many bytes a file has."""
        return path.stat().st_size

    def free_bytes(self, folder: Path) -> int:
        """How many bytes the disk of a folder, or of the nearest one above it, has left for us."""
        while not folder.exists():
            folder = folder.parent
        return shutil.disk_usage(folder).free

    def lock(self, path: Path, wait_ms: int) -> int:
        """Hold the file `path` against other processes, until the answered fd is closed.

        Raises LockHeld when another process still holds it after `wait_ms`.
        """
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        deadline = time.monotonic() + wait_ms / 1_000
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return fd
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    os.close(fd)
                    raise LockHeld(
                        f"{path.parent} is in use by another process: two buffers must never "
                        "write one log; end the other one first"
                    ) from None
            except BaseException:
                os.close(fd)
                raise
            time.sleep(LOCK_PAUSE_S)

    def hold_byte(self, fd: int, at: int) -> bool:
        """Hold byte `at` of an open file against whoever has opened it too, until it is let go or
        `fd` is closed; False where this system knows no such locks. Raises LockHeld."""
        if _SET_LOCK is None:
            return False
        try:
            fcntl.fcntl(fd, _SET_LOCK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, at & _PLACES, 1, 0))
        except OSError as error:
            if error.errno in _HELD:
                raise LockHeld(f"byte {at} is held by another process") from None
            return False  # this file system has no such locks
        return True

    def let_go_byte(self, fd: int, at: int) -> None:
        """Give back a byte that is held."""
        if _SET_LOCK is not None:
            fcntl.fcntl(fd, _SET_LOCK, _FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, at & _PLACES, 1, 0))

    def boot_id(self) -> str:
        """What differs after each start of the machine; '' where the system does not tell."""
        try:
            return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        except OSError:
            return ""

    # ---- made of the above

    def create(self, path: Path) -> int:
        """Open for writing, and make the file where it is not there. Raises DiskFull."""
        try:
            return self.open(path, create=True)
        except OSError as error:
            if error.errno not in _FULL:
                raise
            raise DiskFull(
                f"no room for {path.name} ({error.strerror}): free disk space"
            ) from error

    def replace(self, path: Path, data: bytes, *, sync: bool) -> None:
        """Put `data` in the place of `path`'s content: after a crash it is the old or the new."""
        temporary = path.with_name(path.name + ".new")
        fd = self.create(temporary)
        try:
            self.truncate(fd, 0)
            self.write(fd, [data], 0)
            if sync:
                self.sync(fd)
        finally:
            self.close(fd)
        self.rename(temporary, path)
        if sync:
            self.sync_folder(path.parent)

    def write(self, fd: int, pieces: Sequence[Any], position: int) -> int:
        """Write all of `pieces` at `position`; answer how many bytes. Whole, or not at all.

        Raises DiskFull when there is no room, after cutting the file back to `position`; another
        OSError when not even that is sure.
        """
        try:
            return self.overwrite(fd, pieces, position)
        except OSError as error:
            if error.errno not in _FULL:
                with contextlib.suppress(OSError):
                    self.truncate(fd, position)
                raise
            self.truncate(fd, position)
            total = sum(map(len, pieces))
            raise DiskFull(
                f"no room for {total} bytes ({error.strerror}): nothing of them was kept; "
                "free disk space, or lower retention"
            ) from error

    def overwrite(self, fd: int, pieces: Sequence[Any], position: int) -> int:
        """Write all of `pieces` over what is at `position`; nothing is cut when it fails."""
        pending = [memoryview(piece).cast("B") for piece in pieces if len(piece)]
        written = 0
        while pending:
            done = self.write_some(fd, pending[:VECTORS_MAX], position + written)
            written += done
            while pending and done >= len(pending[0]):
                done -= len(pending.pop(0))
            if pending:
                pending[0] = pending[0][done:]
        return written

    def end_at(self, fd: int, size: int) -> None:
        """Have a file end at `size`, on disk, also where it is as long already: an earlier cut may
        be known to this machine's memory alone, where the sync after it failed.

        A full disk has no room to show it once more; then a sync has to do. Raises OSError.
        """
        with contextlib.suppress(DiskFull):
            self.write(fd, [b"\0"], size)
        self.truncate(fd, size)
        self.sync(fd)

    def sync_file(self, path: Path) -> None:
        """Return when what is in `path` would survive a power cut; its name may not yet."""
        fd = self.open_to_read(path)
        try:
            self.sync(fd)
        finally:
            self.close(fd)

    def read_file(self, path: Path) -> bytes:
        """All of a small file. Raises FileNotFoundError."""
        fd = self.open_to_read(path)
        try:
            return self.read(fd, self.length(fd), 0)
        finally:
            self.close(fd)
