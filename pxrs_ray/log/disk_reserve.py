"""`Reserve`: disk space that a log keeps for itself, so that a full disk cannot stay full.

Rules of this file. Retention frees space, but must write before it may: the manifest says where the
log begins now, the snapshot keeps what the dropped frames knew. On a disk without space for even
that the reserve is given up; it is made again when there is space.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from pxrs_ray.errors import DiskFull
from pxrs_ray.files import Files

NAME = "reserve"
RESERVE_BYTES = 64 << 10
Answer = TypeVar("Answer")


class Reserve:
    """The reserve of one log's folder."""

    def __init__(self, files: Files, folder: Path) -> None:
        self._files = files
        self._path = folder / NAME
        self._there = False

    @property
    def is_there(self) -> bool:
        """Whether it is kept now."""
        return self._there

    def keep(self) -> None:
        """Have the reserve, if there is room for it."""
        if self._there:
            return
        with contextlib.suppress(OSError, DiskFull):
            fd = self._files.create(self._path)
            try:
                self._files.write(fd, [bytes(RESERVE_BYTES)], 0)
                self._there = True
            finally:
                self._files.close(fd)

    def with_room(self, write: Callable[[], Answer]) -> Answer:
        """Write; where the disk is full, once more in the place of the reserve."""
        try:
            return write()
        except DiskFull:
            self._there = False
            try:
                self._files.unlink(self._path)
            except OSError as error:
                raise DiskFull(f"{self._path} cannot be given up: {error}") from error
            return write()
