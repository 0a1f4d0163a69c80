"""`SimulatedDisk`: the files of a simulated machine, in memory, which fail as disks do.

Rules of this file. What ships runs on it as on a real one: it is a `Files`. A power cut leaves what
was synced, and of the rest any part of each write, in any order; of names those that were synced,
or those that were there. A sync that fails is as bad as Linux makes it: what was written since the
last one can still be read, and no later sync puts it on disk, unless it is written again.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from pxrs_ray.errors import LockHeld
from pxrs_ray.files import Files

PAGE_BYTES = 64
FREE_BYTES = 1 << 40
SEGMENT = ".seg"

_numbers = count(1)
Change = tuple[int, bytes] | int
"""A write at a position, or a new length."""


@dataclass(slots=True, eq=False)
class _Inode:
    data: bytearray = field(default_factory=bytearray)
    synced: bytearray = field(default_factory=bytearray)
    # Since the last sync.
    pending: list[Change] = field(default_factory=list)
    number: int = field(default_factory=_numbers.__next__)


def _apply(data: bytearray, change: Change) -> None:
    if isinstance(change, int):
        del data[change:]
        data.extend(bytes(change - len(data)))
        return
    position, piece = change
    if position > len(data):
        data.extend(bytes(position - len(data)))
    data[position : position + len(piece)] = piece


class SimulatedDisk(Files):
    """See the rules at the head of this file.

    `full` refuses what needs room; `failing` is the share of reads, writes and syncs that fail, a
    write after it has written a part; while `spent` no file can be opened.
    """

    def __init__(self, seed: int, bytes_max: int = 0, *, tears: bool = False) -> None:
        """A disk for `bytes_max`, or for any amount where that is 0. One that `tears` leaves a part
        of each write that fails, and may not let that be cut off."""
        self.full = False
        self._bytes_max = bytes_max
        self.failing = 0.0
        self.spent = False
        self.boots = 0
        self._dice = random.Random(f"disk {seed}")
        self._tears = random.Random(f"torn {seed}") if tears else None
        self._names: dict[str, dict[str, _Inode]] = {}
        self._synced: dict[str, dict[str, _Inode]] = {}
        self._open: dict[int, _Inode] = {}
        self._locked: dict[int, _Inode] = {}
        # Bytes that are held, and on which number.
        self._bytes_held: dict[tuple[int, int], int] = {}
        self._opened = 0
        self._rotten: list[tuple[_Inode, int, int]] = []

    # --- faults -----------------------------------------------------------------------------------

    @contextmanager
    def well(self) -> Iterator[None]:
        """Nothing fails inside."""
        before, self.failing, self.spent = (self.failing, self.spent), 0.0, False
        try:
            yield
        finally:
            self.failing, self.spent = before

    def _fail(self, what: str, share: float = 1.0) -> None:
        if self.failing and self._dice.random() < self.failing * share:
            raise OSError(errno.EIO, f"{what} failed (simulated)")

    def _need_room(self, more: int = 0) -> None:
        if self.full or (self._bytes_max and more > self._bytes_left()):
            raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)} (simulated)")

    def _bytes_left(self) -> int:
        held = {id(i): i for folder in self._names.values() for i in folder.values()}
        held |= {id(i): i for i in self._open.values()}
        return self._bytes_max - sum(len(inode.data) for inode in held.values())

    def end_processes(self) -> None:
        """Whoever had files open is gone."""
        self._open.clear()
        self._locked.clear()
        self._bytes_held.clear()

    def cut_power(self) -> None:
        """Leave what was synced, and anything of the rest."""
        self.end_processes()
        self.boots += 1
        for folder, now in self._names.items():
            synced = self._synced.get(folder, {})
            chosen = {name: self._dice.choice((now, synced)) for name in {**now, **synced}}
            left = {name: where[name] for name, where in chosen.items() if name in where}
            self._names[folder] = left
            self._synced[folder] = dict(left)
        for inode in {
            id(i): i for folder in self._names.values() for i in folder.values()
        }.values():
            self._cut(inode)

    def _cut(self, inode: _Inode) -> None:
        if not inode.pending and inode.data == inode.synced:
            return
        kept, data = self._dice.choice((0.0, 0.5, 1.0)), bytearray(inode.synced)
        for change in inode.pending:
            if isinstance(change, int):
                if self._dice.random() < kept:
                    _apply(data, change)
                continue
            position, piece = change
            for at in range(0, len(piece), PAGE_BYTES):
                if self._dice.random() < kept:
                    _apply(data, (position + at, piece[at : at + PAGE_BYTES]))
        inode.data, inode.synced, inode.pending = data, data[:], []

    def rot(self) -> None:
        """Let a byte of a segment that is sealed be another one; `mend` brings it back."""
        sealed = []
        for names in self._names.values():
            segments = sorted(name for name in names if name.endswith(SEGMENT))
            sealed += [names[name] for name in segments[:-1] if names[name].data]
        if sealed:
            inode = self._dice.choice(sealed)
            at = self._dice.randrange(len(inode.data))
            self._rotten.append((inode, at, inode.data[at]))
            inode.data[at] ^= 0xFF

    def mend(self) -> bool:
        """Bring the files back, as an operator does; False where none was damaged."""
        rotten, self._rotten = self._rotten, []
        for inode, at, byte in reversed(rotten):
            if at < len(inode.data):
                inode.data[at] = byte
        return bool(rotten)

    def lose(self, folder: Path) -> None:
        """What was in this folder, and below it, is gone, and was never there for a power cut."""
        for names in (self._names, self._synced):
            for name in [each for each in names if Path(each).is_relative_to(folder)]:
                del names[name]

    def kept(self) -> dict[str, dict[str, bytes]]:
        """All of it, as it is but for what is damaged: nobody could mend that in a copy."""
        sound = {id(inode): bytearray(inode.data) for inode, _, _ in self._rotten}
        for inode, at, byte in reversed(self._rotten):
            if at < len(inode.data):
                sound[id(inode)][at] = byte
        return {
            folder: {name: bytes(sound.get(id(i), i.data)) for name, i in names.items()}
            for folder, names in self._names.items()
        }

    def restore(self, kept: dict[str, dict[str, bytes]]) -> None:
        """Be what was `kept`, and on disk for sure."""
        self.end_processes()
        self._names = {
            folder: {name: _Inode(bytearray(data), bytearray(data)) for name, data in files.items()}
            for folder, files in kept.items()
        }
        self._synced = {folder: dict(names) for folder, names in self._names.items()}

    # --- Files ------------------------------------------------------------------------------------

    def boot_id(self) -> str:
        return f"boot-{self.boots}"

    def open(self, path: Path, *, create: bool = False) -> int:
        folder = self._folder(path)
        inode = folder.get(path.name)
        if inode is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            self._need_room()
            inode = folder[path.name] = _Inode()
        return self._opened_as(inode)

    def open_to_read(self, path: Path) -> int:
        return self.open(path)

    def _opened_as(self, inode: _Inode) -> int:
        if self.spent:
            raise OSError(errno.EMFILE, f"{os.strerror(errno.EMFILE)} (simulated)")
        self._opened += 1
        self._open[self._opened] = inode
        return self._opened

    def _inode(self, fd: int) -> _Inode:
        inode = self._open.get(fd)
        if inode is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return inode

    def close(self, fd: int) -> None:
        self._open.pop(fd, None)
        self._locked.pop(fd, None)
        if self._bytes_held:
            for held in [held for held, by in self._bytes_held.items() if by == fd]:
                del self._bytes_held[held]

    def identity(self, fd: int) -> tuple[int, int]:
        return 1, self._inode(fd).number

    def hold_byte(self, fd: int, at: int) -> bool:
        if self._bytes_held.setdefault((self._inode(fd).number, at), fd) != fd:
            raise LockHeld(f"byte {at} is held by another process")
        return True

    def let_go_byte(self, fd: int, at: int) -> None:
        self._bytes_held.pop((self._inode(fd).number, at), None)

    def length(self, fd: int) -> int:
        return len(self._inode(fd).data)

    def write_some(self, fd: int, pieces: Sequence[Any], position: int) -> int:
        inode, piece = self._inode(fd), b"".join(pieces)
        if position + len(piece) > len(inode.data):
            self._need_room(position + len(piece) - len(inode.data))
        try:
            self._fail("a write")
        except OSError:
            if self._tears is not None:
                self._write(inode, position, piece[: self._tears.randrange(len(piece) + 1)])
            raise
        self._write(inode, position, piece)
        return len(piece)

    def _write(self, inode: _Inode, position: int, piece: bytes) -> None:
        _apply(inode.data, (position, piece))
        inode.pending.append((position, piece))

    def read(self, fd: int, size: int, position: int) -> bytes:
        self._fail("a read", 0.3)
        return bytes(self._inode(fd).data[position : position + size])

    def sync(self, fd: int) -> None:
        inode = self._inode(fd)
        if not inode.pending:
            return
        pending, inode.pending = inode.pending, []
        self._fail("a sync")
        for change in pending:
            _apply(inode.synced, change)

    def truncate(self, fd: int, size: int) -> None:
        inode = self._inode(fd)
        if len(inode.data) != size:
            if self._tears is not None and self.failing and self._tears.random() < 0.5:
                raise OSError(errno.EIO, "a cut failed (simulated)")
            _apply(inode.data, size)
            inode.pending.append(size)

    def sync_folder(self, folder: Path) -> None:
        self._fail("a sync of names")
        self._synced[str(folder)] = dict(self._names.get(str(folder), {}))

    def _folder(self, path: Path) -> dict[str, _Inode]:
        folder = self._names.get(str(path.parent))
        if folder is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return folder

    def rename(self, source: Path, target: Path) -> None:
        if str(source) in self._names:
            for kept in (self._names, self._synced):
                for folder in [f for f in kept if Path(f).is_relative_to(source)]:
                    kept[str(target / Path(folder).relative_to(source))] = kept.pop(folder)
            return
        self._folder(target)[target.name] = self._folder(source).pop(source.name)

    def unlink(self, path: Path) -> None:
        self._folder(path).pop(path.name, None)

    def make_folder(self, folder: Path) -> None:
        self._names.setdefault(str(folder), {})

    def names(self, folder: Path, suffix: str) -> list[Path]:
        found = self._names.get(str(folder), {})
        return [folder / name for name in sorted(found) if name.endswith(suffix)]

    def size_of(self, path: Path) -> int:
        inode = self._folder(path).get(path.name)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return len(inode.data)

    def free_bytes(self, folder: Path) -> int:
        if self._bytes_max and not self.full:
            return max(0, self._bytes_left())
        return 0 if self.full else FREE_BYTES

    def lock(self, path: Path, wait_ms: int) -> int:
        fd = self.open(path, create=True)
        inode = self._inode(fd)
        if any(held is inode for held in self._locked.values()):
            self.close(fd)
            raise LockHeld(f"{path.parent} is in use by another process")
        self._locked[fd] = inode
        return fd


class ProcessFiles(Files):
    """One process's way to a disk: what it opened and locked is given back when it ends."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self._disk = disk
        self._fds: set[int] = set()
        # Past this class: a run calls them a hundred thousand times.
        for name in _AS_THEY_ARE:
            setattr(self, name, getattr(disk, name))

    def open(self, path: Path, *, create: bool = False) -> int:
        return self._mine(self._disk.open(path, create=create))

    def open_to_read(self, path: Path) -> int:
        return self._mine(self._disk.open_to_read(path))

    def lock(self, path: Path, wait_ms: int) -> int:
        return self._mine(self._disk.lock(path, wait_ms))

    def _mine(self, fd: int) -> int:
        self._fds.add(fd)
        return fd

    def close(self, fd: int) -> None:
        self._fds.discard(fd)
        self._disk.close(fd)

    def end(self) -> None:
        """The process is gone."""
        for fd in self._fds:
            self._disk.close(fd)
        self._fds.clear()


_AS_THEY_ARE = (
    "boot_id",
    "identity",
    "hold_byte",
    "let_go_byte",
    "length",
    "write_some",
    "read",
    "sync",
    "truncate",
    "sync_folder",
    "rename",
    "unlink",
    "make_folder",
    "names",
    "size_of",
    "free_bytes",
)
