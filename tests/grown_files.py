"""Files that only grow: each line of them is read once, however often somebody looks.

Tests wait for what processes note, and look ten times a second and more: to read all notes each
time took more of the two cores than what was looked at.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Generic, TypeVar

Line = TypeVar("Line")


class GrownFiles(Generic[Line]):
    """What `parse` makes of each whole line. A file that is another one now is read anew."""

    def __init__(self, parse: Callable[[bytes], Line]) -> None:
        self._parse = parse
        self._known: dict[Path, tuple[int, int, list[Line]]] = {}
        self._lock = threading.Lock()

    def lines_of(self, files: Iterable[Path]) -> list[Line]:
        """Those of all these files, one file after the other."""
        with self._lock:
            return [line for file in files for line in self._lines(file)]

    def _lines(self, path: Path) -> list[Line]:
        with path.open("rb") as file:
            now = os.fstat(file.fileno())
            which, read_bytes, lines = self._known.get(path, (now.st_ino, 0, []))
            if which != now.st_ino or now.st_size < read_bytes:
                read_bytes, lines = 0, []
            if now.st_size > read_bytes:
                file.seek(read_bytes)
                added = file.read()
                added = added[: added.rfind(b"\n") + 1]  # the rest is being written
                lines.extend(self._parse(line) for line in added.splitlines())
                read_bytes += len(added)
            self._known[path] = (now.st_ino, read_bytes, lines)
        return lines
