"""Copying the logs of one slot from its disk to another, while they are written, and then for good.

    listing = slot_files(files, source, index, buffers)      # where they are now
    for piece in arriving.missing(listing):                  # where they shall be
        arriving.take(piece, read_piece(files, source, piece))
    arriving.install()                                       # after a last round, logs closed

Rules of this file. A copy arrives in a folder of its own, and is no log until it is whole: then it
is synced, and its folders are renamed into their places. A segment only grows, so a round fetches
what has come since the last one; any other file that changed is fetched whole. Only a round in
which nobody writes makes a copy that may be installed. Being cut off anywhere leaves the source as
it was; a copy that was begun before is thrown away by the next one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from xxhash import xxh3_64_intdigest

from pxrs_ray.errors import LogCorrupted
from pxrs_ray.files import Files
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.log.disk_reserve import NAME as RESERVE
from pxrs_ray.log.identity import note_left

PIECE_BYTES = 4 << 20
SEGMENT = ".seg"
ARRIVING, REPLACED = ".arriving", ".replaced"
SLOTS = ".buffers"
_HALF_WRITTEN = ".new"
_LEFT_OUT = frozenset((RESERVE,))


@dataclass(frozen=True, slots=True)
class FileState:
    """A file of a slot: where it lies below the topology's folder, and what it is now."""

    path: str
    size_bytes: int
    changed_ns: int
    inode: int


@dataclass(frozen=True, slots=True)
class Piece:
    """Some bytes of a file, in the state that the file had when it was listed."""

    file: FileState
    position: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Bytes:
    """What was read of a piece, and the checksum (XXH3-64) of it. Fewer bytes than were asked
    for: the file has changed since it was listed, and the next round comes back to it."""

    data: bytes
    checksum: int


def slot_files(files: Files, folder: Path, index: int, buffers: int) -> list[FileState]:
    """Every file that belongs to slot `index` of `buffers`, of all queues. Raises OSError."""
    found = []
    for place in slot_folders(folder, index, buffers):
        found += _files_in(files, folder, place)
    return found


def _files_in(files: Files, folder: Path, place: Path) -> list[FileState]:
    found = []
    for path in files.names(place, ""):
        name = path.name
        if path.is_file() and not name.endswith(_HALF_WRITTEN) and name not in _LEFT_OUT:
            stat = path.stat()
            where = path.relative_to(folder).as_posix()
            found.append(FileState(where, stat.st_size, stat.st_mtime_ns, stat.st_ino))
    return found


def slot_folders(folder: Path, index: int, buffers: int) -> list[Path]:
    """The folders of a slot: one a partition of each queue, and last what the buffer remembers."""
    logs = [
        place
        for place in folder.glob("*/p" + "[0-9]" * 5)
        if int(place.name[1:]) % buffers == index and not place.parent.name.startswith(".")
    ]
    own = folder / SLOTS / str(index)
    return [*sorted(logs), *([own] if own.is_dir() else [])]


def read_piece(files: Files, folder: Path, piece: Piece) -> Bytes:
    """Read a piece where it lies. Raises OSError."""
    try:
        fd = files.open_to_read(_within(folder, piece.file.path))
    except FileNotFoundError:  # dropped by retention since it was listed
        return Bytes(b"", xxh3_64_intdigest(b""))
    try:
        data = files.read(fd, piece.size_bytes, piece.position)
    finally:
        files.close(fd)
    return Bytes(data, xxh3_64_intdigest(data))


class Arriving:
    """A slot's copy that grows on another disk. See the rules at the head of this file."""

    def __init__(self, files: Files, folder: Path, index: int) -> None:
        """Begin anew: what an earlier try left is removed. Raises OSError."""
        self._files = files
        self._folder = folder
        self._index = index
        self._staging = folder / ARRIVING / str(index)
        self._have: dict[str, FileState] = {}
        self._size_bytes: dict[str, int] = {}
        files.remove_folder(self._staging)
        files.make_folder(self._staging)

    def missing(self, listing: Iterable[FileState], *, last: bool = False) -> Iterator[Piece]:
        """What is to be taken so that this is as listed; what is listed no more is removed.

        In the `last` round, when nobody writes any more, small files are taken whatever their
        times say: the clock of a file system may stand still between two writes.
        """
        listed = {state.path: state for state in listing}
        if last:
            self._have = {p: s for p, s in self._have.items() if p.endswith(SEGMENT)}
        for path in [path for path in self._size_bytes if path not in listed]:
            self._files.unlink(_within(self._staging, path))
            del self._size_bytes[path]
            self._have.pop(path, None)
        for path, state in listed.items():
            if self._have.get(path) != state:
                yield from self._pieces(state)

    def _pieces(self, state: FileState) -> Iterator[Piece]:
        known = self._size_bytes.get(state.path, 0)
        grown = state.path.endswith(SEGMENT) and known <= state.size_bytes
        position = known if grown else 0
        if position == state.size_bytes:  # empty, or only its time has changed
            yield Piece(state, position, 0)
        while position < state.size_bytes:
            size = min(PIECE_BYTES, state.size_bytes - position)
            yield Piece(state, position, size)
            position += size

    def take(self, piece: Piece, found: Bytes) -> None:
        """Write a piece. Raises LogCorrupted when it changed on its way, DiskFull, OSError."""
        if xxh3_64_intdigest(found.data) != found.checksum:
            raise LogCorrupted(f"{piece.file.path}: bytes changed on their way: copy it again")
        path = _within(self._staging, piece.file.path)
        self._files.make_folder(path.parent)
        fd = self._files.create(path)
        try:
            end = piece.position + len(found.data)
            if piece.position == 0 or end == piece.file.size_bytes:
                self._files.truncate(fd, piece.position)
            self._files.write(fd, [found.data], piece.position)
        finally:
            self._files.close(fd)
        self._size_bytes[piece.file.path] = end
        if end == piece.file.size_bytes:
            self._have[piece.file.path] = piece.file

    def lacks(self, listing: Iterable[FileState]) -> list[str]:
        """The files that are not here as they are listed; [] when the copy is whole."""
        listed = {state.path: state for state in listing}
        wrong = [path for path, state in listed.items() if self._have.get(path) != state]
        return [*wrong, *(path for path in self._size_bytes if path not in listed)]

    def install(self) -> None:
        """Put a whole copy into its places, durably. Raises OSError; may be called again.

        What lay there is of a former life of the slot on this disk, and goes.
        """
        for path in sorted(self._staging.rglob("*")):
            if path.is_file():
                fd = self._files.open(path)
                try:
                    self._files.sync(fd)
                finally:
                    self._files.close(fd)
        replaced = self._folder / REPLACED / str(self._index)
        self._files.remove_folder(replaced)
        for source in self._arrived():
            name = source.relative_to(self._staging)
            target = self._folder / name
            self._files.sync_folder(source)
            self._files.make_folder(target.parent)
            if target.exists():
                self._files.make_folder((replaced / name).parent)
                self._files.rename(target, replaced / name)
            self._files.rename(source, target)
            self._files.sync_folder(target.parent)
        self._files.remove_folder(replaced)
        self._files.remove_folder(self._staging)
        self._have, self._size_bytes = {}, {}

    def _arrived(self) -> list[Path]:
        """The folders of the copy; what the buffer remembers is the last one."""
        found = {path.parent for path in self._staging.rglob("*") if path.is_file()}
        return sorted(found, key=lambda at: (at.parent.name == SLOTS, at))

    def give_up(self) -> None:
        """Remove what has come so far. Raises OSError."""
        self._files.remove_folder(self._staging)


def remove_slot(
    files: Files, folder: Path, index: int, buffers: int, left: Iterable[FileState]
) -> None:
    """Remove the logs of a slot that has another home now; a note of where they went stays.

    `left` is what it left when it went. A folder with anything else in it stays: the slot may have
    come back before this was carried out. Raises OSError, DiskFull, LogCorrupted; may be cut off.
    """
    known = frozenset(left)
    for place in reversed(slot_folders(folder, index, buffers)):  # what it remembers goes first
        there = _files_in(files, folder, place)
        if there and known.issuperset(there):
            if place.parent.name == SLOTS:  # no partition's folder has an identity
                note_left(files, place)
            files.remove_folder(place)


def _within(folder: Path, name: str) -> Path:
    """`folder / name`, which must lie in it: names come from another process."""
    parts = PurePosixPath(name).parts
    if not parts or PurePosixPath(name).is_absolute() or ".." in parts:
        raise LogCorrupted(f"{name!r} names no file of a slot")
    return folder.joinpath(*parts)
