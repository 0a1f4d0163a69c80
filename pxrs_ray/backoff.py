"""`Backoff`: how long to rest before the next try, for whoever tries until it works.

It knows no clock and waits for nothing: who uses it sleeps, on a thread or an event loop.
"""

from __future__ import annotations


class Backoff:
    """Pauses that double from `first_s` up to `most_s`."""

    def __init__(self, first_s: float, most_s: float) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self.next_s = first_s

    def failed(self) -> float:
        """A try has failed: for how long to rest now."""
        pause_s = self.next_s
        self.next_s = min(pause_s * 2, self._most_s)
        return pause_s

    def worked(self) -> None:
        """A try has worked: the next pause is the first one again."""
        self.next_s = self._first_s
