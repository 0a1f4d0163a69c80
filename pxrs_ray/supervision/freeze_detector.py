"""`FreezeDetector`: whether a process that does not answer is frozen, and must be ended. Pure.

Rules of this file. A process is asked for its pulse again and again, by somebody who runs beside
it. Slow is not frozen: a pulse is answered by a thread that does nothing else, so that an event
loop at work on something big, or a registry that is away, never looks like a frozen process. Who
asks may have stood still itself: then what it counted is forgotten.

A process that the system says is stopped (SIGSTOP, a debugger) is ended after half its lease, so
that it is back before the lease is over; one that is mute otherwise after three leases. One whose
pulse beats and whose event loop does not is ended after `LOOP_LEASES` leases, a minute at least.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

MUTE_LEASES = 3.0
LOOP_LEASES = 6.0
LOOP_LEAST_S = 60.0
LOOKS_LEAST = 3


class Health(StrEnum):
    """What a look at a process has shown."""

    WELL = "well"
    MUTE = "mute"
    FROZEN = "frozen"


@dataclass(frozen=True, slots=True)
class ProcessLook:
    """What one look has seen.

    `stopped` is what the system says; `loop_silent_s` for how long the event loop has not run, as
    the pulse tells (None where there is no loop yet).
    """

    answered: bool
    stopped: bool = False
    loop_silent_s: float | None = None


class FreezeDetector:
    """Judges one process. `lease_s` is how long it may be missed."""

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self._looked_s: float | None = None
        self._mute_since_s: float | None = None
        self._mute_looks = 0

    def mute_s(self, now_s: float) -> float:
        """For how long it has been seen mute."""
        return 0.0 if self._mute_since_s is None else now_s - self._mute_since_s

    def look(self, now_s: float, seen: ProcessLook, gap_max_s: float) -> Health:
        """Take note of a look. FROZEN says that the process is to be ended.

        Who looks has stood still itself when the look before was longer ago than `gap_max_s`.
        """
        before_s, self._looked_s = self._looked_s, now_s
        if before_s is not None and now_s - before_s > gap_max_s:
            self._mute_since_s, self._mute_looks = None, 0
        if seen.answered:
            self._mute_since_s, self._mute_looks = None, 0
            loop_max_s = max(LOOP_LEAST_S, LOOP_LEASES * self._lease_s)
            if seen.loop_silent_s is not None and seen.loop_silent_s > loop_max_s:
                return Health.FROZEN
            return Health.WELL
        if self._mute_since_s is None:
            self._mute_since_s = now_s
        self._mute_looks += 1
        limit_s = self._lease_s * (0.5 if seen.stopped else MUTE_LEASES)
        over = self.mute_s(now_s) >= limit_s and self._mute_looks >= LOOKS_LEAST
        return Health.FROZEN if over else Health.MUTE
