"""`FaultyFiles`: a disk that fails one operation, or loses its power there.

Rules of this file. Files are real, beneath some folder; beside them it is kept what a power cut
would leave: of each file what was synced and the writes since, of each folder the names that were
synced. A sync that fails is as bad as Linux makes it: what was written since the last one can
still be read, and no later sync puts it on disk, unless it is written again. Every operation of
`Files` counts; the fault is put at one of those that it can befall.
"""

from __future__ import annotations

import errno
import os
import random
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pxrs_ray.files import Files

PAGE_BYTES = 256
OPENS = ("open", "open_to_read", "lock")
NAMES = ("rename", "link", "unlink", "make_folder", "remove_folder")
WRITES = ("write_some", "truncate")
SYNCS = ("sync", "sync_folder")
READS = ("read", "names", "size_of")

# What can befall which operations. The last three end the process: in the middle of a write, or
# before any operation; with or without the power.
KINDS: dict[str, tuple[str, ...]] = {
    "ENOSPC": (*OPENS[:1], *NAMES[:1], "write_some", "make_folder", "sync"),
    "EIO": (*OPENS, *NAMES, *WRITES, *SYNCS, *READS),
    "EMFILE": (*OPENS, "sync_folder", "names"),
    "EACCES": (*OPENS, *NAMES),
    "torn": ("write_some",),
    "kill": (*OPENS, *NAMES, *WRITES, *SYNCS),
    "power": (*OPENS, *NAMES, *WRITES, *SYNCS),
}
ENDS = ("torn", "kill", "power")


class Ended(BaseException):
    """The process is no more: nobody may take this for an error to deal with."""


@dataclass(frozen=True)
class Fault:
    """`kind` befalls the operation number `at` of those that it can, and `burst` in all."""

    kind: str
    at: int
    burst: int = 1


@dataclass
class _Inode:
    """What a power cut leaves of a file: `synced`, and of `pending` nobody knows."""

    synced: bytes = b""
    pending: list[tuple[int, bytes] | int] = field(default_factory=list)


def _applied(data: bytes, change: tuple[int, bytes] | int) -> bytes:
    if isinstance(change, int):
        return data[:change].ljust(change, b"\0")
    position, piece = change
    return data[:position].ljust(position, b"\0") + piece + data[position + len(piece) :]


class FaultyFiles(Files):
    """See the rules at the head of this file. `fault` may be set between two lives."""

    def __init__(self) -> None:
        self.fault: Fault | None = None
        self.fired = 0
        self.dead = False
        self.count = 0
        self.where = ""
        self._boots = 0
        self._lock_all = threading.RLock()
        self._inodes: dict[int, _Inode] = {}
        self._ids: dict[int, int] = {}
        self._names: dict[Path, dict[str, int]] = {}

    # ---- faults

    def put(self, fault: Fault | None) -> None:
        """From now on count anew, and let this happen."""
        self.fault, self.count, self.fired = fault, 0, 0

    def _step(self, name: str, what: object) -> bool:
        """Count an operation; True when it is torn in its middle. Raises the fault."""
        if self.dead:
            raise Ended
        fault = self.fault
        if fault is None or name not in KINDS[fault.kind]:
            return False
        self.count += 1
        if not fault.at < self.count <= fault.at + fault.burst:
            return False
        self.fired += 1
        self.where = self.where or f"{name} {what}"
        if fault.kind == "torn":
            return True
        if fault.kind in ENDS:
            self.dead = True
            raise Ended
        code = getattr(errno, fault.kind)
        raise OSError(code, f"{os.strerror(code)} (simulated)")

    # ---- the operations

    def boot_id(self) -> str:
        return f"boot-{self._boots}"

    def open(self, path: Path, *, create: bool = False) -> int:
        with self._lock_all:
            self._step("open", path.name)
            return self._opened(path, create, lambda: Files.open(self, path, create=create))

    def lock(self, path: Path, wait_ms: int) -> int:
        with self._lock_all:
            self._step("lock", path.name)
            return self._opened(path, True, lambda: Files.lock(self, path, wait_ms))

    def _opened(self, path: Path, create: bool, opening: Callable[[], int]) -> int:
        new = create and not path.exists()
        fd = opening()
        if new:
            number = len(self._inodes)
            self._inodes[number] = _Inode()
            self._ids[os.fstat(fd).st_ino] = number
        return fd

    def open_to_read(self, path: Path) -> int:
        with self._lock_all:
            self._step("open_to_read", path.name)
            return super().open_to_read(path)

    def write_some(self, fd: int, pieces: Sequence[Any], position: int) -> int:
        with self._lock_all:
            data = b"".join(bytes(piece) for piece in pieces)
            torn = self._step("write_some", f"{len(data)} bytes at {position}")
            if torn:
                data = data[: len(data) // 2]
            self._inode(fd).pending.append((position, data))
            os.pwrite(fd, data, position)
            if torn:
                self.dead = True
                raise Ended
            return len(data)

    def read(self, fd: int, size: int, position: int) -> bytes:
        with self._lock_all:
            self._step("read", f"{size} bytes at {position}")
            return super().read(fd, size, position)

    def sync(self, fd: int) -> None:
        with self._lock_all:
            inode = self._inode(fd)
            try:
                self._step("sync", fd)
            except OSError:
                inode.pending.clear()
                raise
            for change in inode.pending:
                inode.synced = _applied(inode.synced, change)
            inode.pending.clear()

    def truncate(self, fd: int, size: int) -> None:
        with self._lock_all:
            self._step("truncate", size)
            self._inode(fd).pending.append(size)
            super().truncate(fd, size)

    def sync_folder(self, folder: Path) -> None:
        with self._lock_all:
            self._step("sync_folder", folder.name)
            self._names[folder] = self._current(folder)

    def rename(self, source: Path, target: Path) -> None:
        with self._lock_all:
            self._step("rename", target.name)
            super().rename(source, target)
            for folder in [folder for folder in self._names if folder.is_relative_to(source)]:
                self._names[target / folder.relative_to(source)] = self._names.pop(folder)

    def link(self, source: Path, target: Path) -> None:
        with self._lock_all:
            self._step("link", target.name)
            super().link(source, target)

    def unlink(self, path: Path) -> None:
        with self._lock_all:
            self._step("unlink", path.name)
            super().unlink(path)

    def make_folder(self, folder: Path) -> None:
        with self._lock_all:
            self._step("make_folder", folder.name)
            super().make_folder(folder)

    def remove_folder(self, folder: Path) -> None:
        with self._lock_all:
            self._step("remove_folder", folder.name)
            super().remove_folder(folder)

    def names(self, folder: Path, suffix: str) -> list[Path]:
        with self._lock_all:
            self._step("names", folder.name)
            return super().names(folder, suffix)

    def size_of(self, path: Path) -> int:
        with self._lock_all:
            self._step("size_of", path.name)
            return super().size_of(path)

    # ---- what a power cut leaves

    def _inode(self, fd: int) -> _Inode:
        return self._inodes[self._ids[os.fstat(fd).st_ino]]

    def _current(self, folder: Path) -> dict[str, int]:
        found = {path.name: path.stat().st_ino for path in folder.iterdir() if path.is_file()}
        return {name: self._ids[ino] for name, ino in found.items() if ino in self._ids}

    def begin_anew(self) -> None:
        """Another process begins; the machine is the same."""
        self.dead, self.fault = False, None

    def cut_power(self, root: Path, rng: random.Random) -> None:
        """Leave of each file and folder what was synced, and anything of the rest; begin anew."""
        with self._lock_all:
            self.begin_anew()
            self._boots += 1
            left: dict[Path, bytes] = {}
            for folder in [root, *(path for path in root.rglob("*") if path.is_dir())]:
                now, synced = self._current(folder), self._names.get(folder, {})
                for name in {*now, *synced}:
                    number = rng.choice((now, synced)).get(name)
                    if number is not None:
                        left[folder / name] = self._left_of(self._inodes[number], rng)
                for name in now:
                    (folder / name).unlink()
            self._inodes.clear()
            self._ids.clear()
            self._names.clear()
            for path, data in left.items():
                fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
                with suppress(OSError):
                    os.write(fd, data)
                number = len(self._inodes)
                self._inodes[number] = _Inode(data)
                self._ids[os.fstat(fd).st_ino] = number
                os.close(fd)
            for path in left:
                self._names.setdefault(path.parent, {})
            for folder in self._names:
                self._names[folder] = self._current(folder)

    def _left_of(self, inode: _Inode, rng: random.Random) -> bytes:
        kept = rng.choice((0.0, 0.5, 1.0))
        data = inode.synced
        for change in inode.pending:
            if isinstance(change, int):
                data = _applied(data, change) if rng.random() < kept else data
                continue
            position, piece = change
            for at in range(0, len(piece), PAGE_BYTES):
                if rng.random() < kept:
                    data = _applied(data, (position + at, piece[at : at + PAGE_BYTES]))
        return data
