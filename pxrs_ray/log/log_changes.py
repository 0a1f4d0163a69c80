"""`LogChanges`: which logs of a buffer have changed since a user of this list last looked.

Rules of this file. Whoever works on all logs of a buffer (retention, mending, reports of their
ends) asks for the changes since its last look. So the cost of a look follows the number of changes,
and idle logs cost nothing. A change is noted after it was made, so that no look misses it. Safe
from any thread.
"""

from __future__ import annotations

import threading

from pxrs_ray.model import QueuePartition


class LogChanges:
    """See the rules at the head of this file."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._newest = 0
        # Each place by the number of its newest change, the newest last.
        self._of: dict[QueuePartition, int] = {}

    def note(self, place: QueuePartition) -> None:
        """Something about the log of this place is otherwise than before."""
        with self._lock:
            self._newest += 1
            self._of.pop(place, None)
            self._of[place] = self._newest

    def forget(self, place: QueuePartition) -> None:
        """There is no log any more."""
        with self._lock:
            self._of.pop(place, None)

    @property
    def newest(self) -> int:
        """The number of the newest change."""
        return self._newest

    def since(self, number: int, most: int | None = None) -> tuple[int, list[QueuePartition]]:
        """What has changed after that number (0: ever), and the number to ask by the next time.

        What changed first comes first. With `most` it is so many at most: ask again, then, until
        the number is the newest.
        """
        with self._lock:
            found = []
            for place, changed in reversed(self._of.items()):
                if changed <= number:
                    break
                found.append(place)
            found.reverse()
            if most is None or len(found) <= most:
                return self._newest, found
            return self._of[found[most - 1]], found[:most]
