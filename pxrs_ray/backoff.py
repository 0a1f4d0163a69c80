"""`Backoff`: how long to rest before the next try, for whoever tries until it works.

It knows no clock and waits for nothing: who uses it sleeps, on a thread or an event loop.
"""

from __future__ import annotations

from typing import TypeVar

Length = TypeVar("Length", int, float)

# Beyond so many tries no pause grows: every maximum is reached long before.
DOUBLED_MOST = 30


def pause_after(failures: int, first: Length, most: Length) -> Length:
    """The pause after so many failures in a row: `first` after one, then doubled, up to `most`."""
    doubled: Length = first * 2 ** min(failures - 1, DOUBLED_MOST)
    return min(doubled, most)


class Backoff:
    """Pauses that double from `first_s` up to `most_s`."""

    def __init__(self, first_s: float, most_s: float) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self._failures = 0

    @property
    def next_s(self) -> float:
        """The pause after a try that fails now."""
        return pause_after(self._failures + 1, self._first_s, self._most_s)

    def failed(self) -> float:
        """A try has failed: for how long to rest now."""
        self._failures += 1
        return pause_after(self._failures, self._first_s, self._most_s)

    def worked(self) -> None:
        """A try has worked: the next pause is the first one again."""
        self._failures = 0
