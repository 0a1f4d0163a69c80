"""What becomes of one consumer's process: it begins once, and ends after it has handed over. Pure.

Rules of this file. Whoever makes it may ask it to begin again, and changes nothing by that.
Whatever wants its process to end is heard once: it hands everything back, and then it ends, also
where that took too long. What is over is over: `run` returns by then, whoever ended it.
"""

from __future__ import annotations

# For how long a hand-over may take beyond what a revocation may.
HAND_OVER_EXTRA_S = 2.0


class ConsumerLife:
    """Of one process."""

    def __init__(self) -> None:
        self.has_begun = self.is_over = False
        self._ends = False

    def begins(self) -> bool:
        """It is let begin; whether that is to be done now."""
        if self.has_begun or self.is_over:
            return False
        self.has_begun = True
        return True

    def told_to_end(self) -> bool:
        """Something wants its process to end; whether it is to hand over now."""
        if self._ends or not self.has_begun:
            return False
        self._ends = True
        return True

    def over(self) -> None:
        """Everything was handed back, or is somebody else's."""
        self.is_over = True
