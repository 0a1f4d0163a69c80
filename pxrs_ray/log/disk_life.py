"""`DiskLife`: which process of a slot's replica on a disk this is, counted on the disk itself.

Rules of this file. Each process has a higher number than all before it, for what an earlier one has
said, or was granted, must never be taken for the present one's. So the number is durable before
anybody hears of it, and it is counted under a lock that the process keeps until it ends: of two at
once, the second gets none. A note that cannot be read is an error and never a new beginning.
"""

from __future__ import annotations

from pathlib import Path

from pxrs_ray.codec import json_codec
from pxrs_ray.errors import LogCorrupted
from pxrs_ray.files import Files
from pxrs_ray.late_dataclass import dataclass

NAME, LOCK = "life.json", "life.lock"


@dataclass(frozen=True, slots=True)
class LivesSoFar:
    """How many processes of this slot have begun on this disk."""

    lives: int = 0


LIVES = json_codec("log: life.json", LivesSoFar)


class DiskLife:
    """The life of this process: `number` counts from 1. Close it; the end of the process does too.

    Raises LockHeld while another process of the slot lives here, LogCorrupted, DiskFull, OSError.
    """

    def __init__(self, files: Files, folder: Path, lock_wait_ms: int) -> None:
        self._files = files
        files.make_folder(folder)
        self._lock_fd = files.lock(folder / LOCK, lock_wait_ms)
        try:
            self.number = _so_far(files, folder / NAME) + 1
            data = LIVES.encode(LivesSoFar(self.number))
            files.replace(folder / NAME, data, sync=True)
        except BaseException:
            files.close(self._lock_fd)
            raise

    def close(self) -> None:
        """Let the next process have its life."""
        self._files.close(self._lock_fd)


def _so_far(files: Files, path: Path) -> int:
    try:
        found: LivesSoFar = LIVES.decode(files.read_file(path))
    except FileNotFoundError:
        return 0
    except ValueError as error:
        raise LogCorrupted(f"{path}: does not tell how many lives there were ({error})") from error
    return found.lives
