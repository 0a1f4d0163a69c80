"""`CatchUpRoom`: how much may be sent now to replicas that catch up. Pure.

Rules of this file. What is sent to a replica that is not in sync is bounded, so that a copy takes
no more of disks and wires than they have to spare; what is sent to one in sync is not, for appends
wait for it. What was not used a moment ago may be used now, and no more than that.
"""

from __future__ import annotations

# What was not used for so long may be used at once.
SAVED_MS_MAX = 100


class CatchUpRoom:
    """The room of one leader, for all replicas that catch up with it. 0 is no bound."""

    def __init__(self, bytes_per_s: int) -> None:
        self.bytes_per_s = bytes_per_s
        # When what was sent is paid for.
        self._paid_ms = 0.0

    def is_there(self, now_ms: int) -> bool:
        """Whether something may be sent now, however much one message takes."""
        return not self.bytes_per_s or self._paid_ms <= now_ms

    def take(self, size_bytes: int, now_ms: int) -> None:
        """So much was sent."""
        if self.bytes_per_s:
            since_ms = max(self._paid_ms, now_ms - SAVED_MS_MAX)
            self._paid_ms = since_ms + size_bytes * 1_000 / self.bytes_per_s
