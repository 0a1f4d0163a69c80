"""`FreezeDetector`: decides whether a process that does not answer is frozen, and must be ended.
Pure.

Rules of this file. Another process of the node checks the pulse of this one again and again. Slow
is not frozen: a thread that does nothing else answers, so that an event loop at work on something
big, or a registry that is away, never looks like a frozen process. The checking process may have
been frozen itself: then its count is reset.

A process that the system reports as stopped (SIGSTOP, a debugger) is ended after half its lease, so
that it is back before the lease is over; one that does not answer for another reason after three
leases. One that answers while its event loop does not run is ended after `LOOP_LEASES` leases, a
minute at least.
"""

from __future__ import annotations

from enum import StrEnum

from pxrs_ray.late_dataclass import dataclass

MUTE_LEASES = 3.0
LOOP_LEASES = 6.0
LOOP_LEAST_S = 60.0
LOOKS_LEAST = 3


class Health(StrEnum):
    """The result of a check of a process."""

    WELL = "well"
    MUTE = "mute"
    FROZEN = "frozen"


@dataclass(frozen=True, slots=True)
class ProcessLook:
    """What one check has seen.

    `stopped` is what the system reports; `loop_silent_s` for how long the event loop has not run,
    as the answer says (None where there is no loop yet).
    """

    answered: bool
    stopped: bool = False
    loop_silent_s: float | None = None


class FreezeDetector:
    """Judges one process. `lease_s` is how long it may be missing."""

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
