"""`BoundedFiles`: a process that keeps more files open than the system would let it.

Rules of this file. What `open` and `lock` answer stands for a file that may be closed meanwhile: of
those that nobody uses, the one that was used longest ago goes first, and it is opened again when it
is needed. Nobody notices, but by time:

- Before a file is closed here, what was written to it is synced: the system tells of a failed write
  to whoever had the file open, and might forget it. Where that sync fails, the next write or sync
  of the file's owner is told. A sync takes its time, and the owner will make it soon: until far
  more are open than should be, only those go that need none.
- A lock outlasts the closing of its file. Each is held twice: on its own file, while that is open,
  and as a part of one file of all locks, which stays open. One that can only be held on its own
  file keeps that open.
- A file is opened again only if it is the same one.

Any thread may call. What `open_to_read` answers is the system's own, and for a moment.
"""

from __future__ import annotations

import contextlib
import errno
import resource
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from pxrs_ray.errors import LockHeld
from pxrs_ray.files import LOCK_PAUSE_S, Files

OPEN_MAX = 2_048
UNSYNCED_MAX = 50_000
OPEN_MIN = 16
# Among so many of those that were used longest ago it is looked for one that needs no sync.
LOOK_AT = 32
_FIRST = 1 << 40
_SPENT = frozenset({errno.EMFILE, errno.ENFILE})


class OpenBounds(NamedTuple):
    """How many files to keep open; and how many at most, where those beyond would have to be synced
    before they could be closed."""

    open_max: int
    unsynced_max: int


def open_bounds() -> OpenBounds:
    """What a process like this one should keep open: half of what it may, and at most three
    quarters."""
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if allowed == resource.RLIM_INFINITY:
        return OpenBounds(OPEN_MAX, UNSYNCED_MAX)
    return OpenBounds(
        max(OPEN_MIN, min(OPEN_MAX, allowed // 2)),
        max(OPEN_MIN, min(UNSYNCED_MAX, allowed * 3 // 4)),
    )


class _Held:
    """A file of ours. `fd` is -1 while it is closed; `users` are at work with it."""

    def __init__(self, path: Path, fd: int, inode: tuple[int, int], *, is_lock: bool) -> None:
        self.path = path
        self.fd = fd
        self.inode = inode
        self.users = 0
        self.is_lock = is_lock
        # A lock's file is only closed where the lock is held beside it.
        self.stays = is_lock
        # A data file that was just opened may hold what somebody else has not synced.
        self.unsynced = not is_lock
        self.error: OSError | None = None
        # Of two syncs at once the system tells one alone that something was lost.
        self.syncing = threading.Lock()

    @property
    def needs_no_sync(self) -> bool:
        """Whether it can be closed as it is."""
        return self.is_lock or not self.unsynced


class BoundedFiles(Files):
    """See the rules at the head of this file. `inner` does what this one decides."""

    def __init__(
        self, locks: Path, bounds: OpenBounds | None = None, *, inner: Files | None = None
    ) -> None:
        """`locks` is the file of all locks: the same for all processes that may share a file."""
        self._inner = inner or Files()
        self._locks = locks
        self._bounds = bounds or open_bounds()
        self._guard = threading.Lock()
        self._held: dict[int, _Held] = {}
        # Of those, what may be closed, the one that was used longest ago first.
        self._open: OrderedDict[int, _Held] = OrderedDict()
        self._next = _FIRST
        # The locks that are held beside their files: place in the file of all locks, and device.
        self._locked: dict[int, int] = {}
        self._locks_fd = -1
        for name in _AS_THEY_ARE:
            setattr(self, name, getattr(self._inner, name))

    # ---- files

    def open(self, path: Path, *, create: bool = False) -> int:
        """Open for reading and writing; what it answers is closed by whoever asked."""
        fd = self._with_room(lambda: self._inner.open(path, create=create))
        return self._keep(_Held(path, fd, self._inner.identity(fd), is_lock=False))

    def open_to_read(self, path: Path) -> int:
        """Open for reading; the caller closes what it gets."""
        return self._with_room(lambda: self._inner.open_to_read(path))

    def close(self, fd: int) -> None:
        """Give back what was opened, and a lock."""
        if fd < _FIRST:
            self._inner.close(fd)
            return
        with self._guard:
            held = self._held.pop(fd)
            self._open.pop(fd, None)
            closing, held.fd = held.fd, -1
        try:
            if closing >= 0:
                self._inner.close(closing)
        finally:
            if held.is_lock and not held.stays:
                self._let_go_beside(held)

    def length(self, fd: int) -> int:
        """How many bytes an open file has."""
        with self._using(fd) as real:
            return self._inner.length(real)

    def read(self, fd: int, size: int, position: int) -> bytes:
        """Read up to `size` bytes at `position`; fewer only at the end of the file."""
        with self._using(fd) as real:
            return self._inner.read(real, size, position)

    def write_some(self, fd: int, pieces: Sequence[Any], position: int) -> int:
        """Write what the system takes in one go."""
        with self._using(fd, writes=True) as real:
            return self._inner.write_some(real, pieces, position)

    def truncate(self, fd: int, size: int) -> None:
        """Cut a file to `size` bytes."""
        with self._using(fd, writes=True) as real:
            self._inner.truncate(real, size)

    def sync(self, fd: int) -> None:
        """Return when everything written to `fd` would survive a power cut."""
        held = self._held.get(fd)
        if held is None:
            self._inner.sync(fd)
            return
        with self._guard:
            if held.fd < 0 and not held.unsynced and held.error is None:
                return  # it was synced before it was closed here
        with self._using(fd) as real, held.syncing:
            if held.error is not None:
                raise held.error
            held.unsynced = False  # what is written from now on may be missed
            try:
                self._inner.sync(real)
            except BaseException:
                held.unsynced = True
                raise

    # ---- which of them are open

    def _keep(self, held: _Held) -> int:
        with self._guard:
            number, self._next = self._next, self._next + 1
            self._held[number] = held
            if not held.stays:
                self._open[number] = held
        self._close_spare(self._bounds)
        return number

    @contextlib.contextmanager
    def _using(self, fd: int, *, writes: bool = False) -> Iterator[int]:
        """The system's number of a file, which stays open meanwhile."""
        held = self._held.get(fd)
        if held is None:
            yield fd
            return
        reopened = False
        with self._guard:
            if held.error is not None and writes:
                raise held.error
            if held.fd < 0:
                held.fd, reopened = self._again(held), True
                self._open[fd] = held
            elif fd in self._open:
                self._open.move_to_end(fd)
            held.users += 1
        try:
            if reopened:
                self._close_spare(self._bounds)
            if writes:
                held.unsynced = True
            yield held.fd
        finally:
            if writes:
                held.unsynced = True  # also where a sync came between
            with self._guard:
                held.users -= 1

    def _again(self, held: _Held) -> int:
        fd = self._inner.open(held.path)
        if self._inner.identity(fd) != held.inode:
            self._inner.close(fd)
            raise OSError(errno.ESTALE, "another file is in the place of one of ours", held.path)
        return fd

    def _with_room(self, opening: Callable[[], int]) -> int:
        """Open something; where the process has no number left for it, after closing others."""
        try:
            return opening()
        except OSError as error:
            if error.errno not in _SPENT or not self._close_spare(self._half()):
                raise
        return opening()

    def _half(self) -> OpenBounds:
        return OpenBounds(len(self._open) // 2, len(self._open) // 2)

    def _close_spare(self, keep: OpenBounds) -> int:
        """Close those that were used longest ago, down to so many; answers how many went."""
        closed = 0
        while (found := self._spare(keep)) is not None:
            number, held = found
            self._sync_to_close(held)
            with self._guard:
                held.users -= 1
                if held.users or held.fd < 0 or not held.needs_no_sync:  # somebody came meanwhile
                    continue
                self._open.pop(number, None)
                closing, held.fd = held.fd, -1
            self._inner.close(closing)
            closed += 1
        return closed

    def _sync_to_close(self, held: _Held) -> None:
        with held.syncing:
            if not held.needs_no_sync:
                held.unsynced = False
                try:
                    self._inner.sync(held.fd)
                except OSError as error:
                    held.error = error

    def _spare(self, keep: OpenBounds) -> tuple[int, _Held] | None:
        """What to close next, with us as its user; None when few enough are open."""
        with self._guard:
            count = len(self._open)
            if count <= keep.open_max:
                return None
            unused = (each for each in self._open.items() if not each[1].users)
            oldest = list(islice(unused, LOOK_AT))
            found = next((each for each in oldest if each[1].needs_no_sync), None)
            if found is None and oldest and count > keep.unsynced_max:
                found = oldest[0]
            if found is not None:
                found[1].users += 1
            return found

    # ---- locks

    def lock(self, path: Path, wait_ms: int) -> int:
        """Hold the file `path` against other processes, until what is answered is closed.

        Raises LockHeld when another process still holds it after `wait_ms`.
        """
        deadline_s = time.monotonic() + wait_ms / 1_000
        fd = self._with_room(lambda: self._inner.lock(path, wait_ms))
        try:
            held = _Held(path, fd, self._inner.identity(fd), is_lock=True)
            while not self._hold_beside(held):
                if time.monotonic() >= deadline_s:
                    raise LockHeld(
                        f"{path.parent} is in use by another process: two buffers must never "
                        "write one log; end the other one first"
                    )
                time.sleep(LOCK_PAUSE_S)
        except BaseException:
            self._inner.close(fd)
            raise
        return self._keep(held)

    def _hold_beside(self, held: _Held) -> bool:
        """Hold the lock where its file's closing does not matter; False while another has it."""
        device, at = held.inode
        with self._guard:
            of_ours = self._locked.get(at)
            if of_ours is not None:
                # The same file; or one of another file system, which has no place of its own.
                return of_ours != device
            try:
                taken = self._inner.hold_byte(self._locks_file(), at)
            except LockHeld:
                return False
            except OSError:
                taken = False
            if taken:
                self._locked[at] = device
                held.stays = False
        return True

    def _let_go_beside(self, held: _Held) -> None:
        with self._guard:
            at = held.inode[1]
            self._locked.pop(at, None)
            if self._locked:
                self._inner.let_go_byte(self._locks_fd, at)
                return
            closing, self._locks_fd = self._locks_fd, -1
        self._inner.close(closing)

    def _locks_file(self) -> int:
        """The file of all locks, open."""
        if self._locks_fd < 0:
            self._inner.make_folder(self._locks.parent)
            self._locks_fd = self._inner.open(self._locks, create=True)
        return self._locks_fd


# What takes no file that is open, and what is made of such calls.
_AS_THEY_ARE = (
    "sync_folder",
    "rename",
    "link",
    "unlink",
    "make_folder",
    "remove_folder",
    "names",
    "size_of",
    "free_bytes",
    "boot_id",
)
