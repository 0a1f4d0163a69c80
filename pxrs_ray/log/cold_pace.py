"""`ColdPace`: how fast a buffer reads from files while it accepts appends. Pure: takes the time.

Rules of this file. Readers of old messages and producers compete for the same processors and the
same disk, and a reader of a backlog takes all that it can get. While many bytes are appended, reads
from files are limited to a share of that rate, so that appends lose at most a quarter. While few
bytes are appended, nothing limits reads. A rest is short, because appends may stop at any time.
"""

from __future__ import annotations

# From so many appended bytes a second on they matter: below, there is room for both.
BUSY_BYTES_PER_S = 16 << 20
# How many bytes may be read from files while one is appended. To read one costs about four fifths
# of what it costs to append one, in producers, buffers and consumers together.
READ_PART = 1 / 3
WINDOW_S = 0.1
REST_MOST_S = 0.5


class ColdPace:
    """The pace of one buffer. Ask `rest_s` before each read from files, and tell what was `read`.

    `appended_bytes` is how much was appended since the buffer began.
    """

    def __init__(self, now_s: float) -> None:
        self._window_s, self._window_bytes = now_s, 0
        self._per_s = 0.0
        self._next_s = now_s

    def rest_s(self, now_s: float) -> float:
        """For how long the next read from files waits."""
        return min(max(0.0, self._next_s - now_s), REST_MOST_S)

    def read(self, size_bytes: int, appended_bytes: int, now_s: float) -> None:
        """So much was read from files."""
        passed_s = now_s - self._window_s
        if passed_s >= WINDOW_S:
            self._per_s = (appended_bytes - self._window_bytes) / passed_s
            self._window_s, self._window_bytes = now_s, appended_bytes
        if self._per_s < BUSY_BYTES_PER_S:
            self._next_s = now_s
            return
        # Never far ahead: the appends that it is counted by may end.
        takes_s = size_bytes / (self._per_s * READ_PART)
        self._next_s = min(max(self._next_s, now_s - WINDOW_S) + takes_s, now_s + REST_MOST_S)
