"""`LinkRoom`: how much the buffer's end of one connection accepts before it answers. Pure.

Rules of this file. Calls are accepted as long as there is room for them and their answers.
Everything else is not read, and waits at the other end. One call may exceed the room, so that a
large call is served too. A peer that takes no answers gets no new calls accepted.
"""

from __future__ import annotations

# Unanswered calls of one connection, and what they and their answers may weigh.
CALLS_MAX = 1_000
CALLS_BYTES_MAX = 16 << 20
STRANGERS_MAX = 256
GREETING_WAIT_S = 5.0
# Who takes no answer for so long is hung up on.
STUCK_S = 10.0


class LinkRoom:
    """What one connection has under way."""

    __slots__ = ("calls", "size_bytes", "stuck")

    def __init__(self) -> None:
        self.calls = self.size_bytes = 0
        self.stuck = False

    def has_room(self) -> bool:
        """Whether one more call may begin, or be read."""
        return self.calls < CALLS_MAX and self.size_bytes < CALLS_BYTES_MAX and not self.stuck


def admits(strangers: int) -> bool:
    """Whether one more end whose greeting has not come yet is waited for, beside so many."""
    return strangers < STRANGERS_MAX
