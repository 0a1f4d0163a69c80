"""`Pulse`: whether this process has stood still, as seen by the threads that do its work.

Rules of this file: the event loop beats, several times a lease. A worker that begins a message
looks at the last beat first: when that is too old the process was frozen (SIGSTOP, a paused
machine), its partitions may belong to others by now, and nothing may be begun until the
coordinator has answered. A coordinator that is merely away stops nobody.
"""

from __future__ import annotations

import threading
import time

from pxrs_ray.forks import in_children, leave_if_child

# A part of the lease that is surely shorter than the time after which others take over.
STILL_PART = 0.5
LOOK_PAUSE_S = 0.01


class Pulse:
    """One process's pulse. `beat` and `confirm` are called by its loop, the rest by anybody."""

    def __init__(self) -> None:
        self._sure_until_s = float("inf")
        self.doubts = 0
        self._in_doubt = False
        self._valid_s = float("inf")
        self._beaten_s = time.monotonic()
        in_children(self._stop)

    def _stop(self) -> None:
        """In a process that a handler forked: nothing more is begun there."""
        self._sure_until_s = float("-inf")

    def beat(self, lease_s: float) -> bool:
        """Say that the loop runs; False when it had stood still since it last did."""
        now_s, self._valid_s = time.monotonic(), lease_s * STILL_PART
        still = now_s - self._beaten_s > self._valid_s
        self._beaten_s = now_s
        if still:
            self.doubts += 1
            self._in_doubt = True
        if not self._in_doubt:
            self._sure_until_s = now_s + self._valid_s
        return not still

    def confirm(self, doubts: int) -> None:
        """The coordinator has answered a question that was asked when there were so many `doubts`.

        An answer to a question from before the newest doubt proves nothing.
        """
        if doubts == self.doubts and self._in_doubt:
            self._in_doubt = False
            self._sure_until_s = time.monotonic() + self._valid_s

    def may_begin(self, stopping: threading.Event) -> bool:
        """Whether work may begin, as soon as that is sure; False when `stopping` comes first."""
        while time.monotonic() > self._sure_until_s:
            leave_if_child()
            if stopping.wait(LOOK_PAUSE_S):
                return False
        return not stopping.is_set()
