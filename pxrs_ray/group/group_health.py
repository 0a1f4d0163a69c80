"""`GroupHealth`: whether a group is well, is to be loaded again, or is over. Pure.

Rules of this file. The first fault counts until the group is loaded again; faults in a row make
the pauses longer. A newer coordinator, and a registry that cannot be trusted, end the group for
good: no reload cures them.
"""

from __future__ import annotations

from pxrs_ray.errors import CoordinatorDeposed, StoreCorrupted, StoreError, StoreSchemaError
from pxrs_ray.supervision.restart_rules import FaultsInARow, RestartRules, first_line

# A group that has failed says so for so long after it is well again.
SHOWN_MS = 60_000
RELOADS = RestartRules(pause_first_s=0.05, pause_most_s=10.0)
# What is read from the store again says the same.
LASTING = (StoreCorrupted, StoreSchemaError)


class GroupHealth:
    """See the rules at the head of this file. Times are monotonic."""

    def __init__(self) -> None:
        self.is_well = False
        self.over: BaseException | None = None
        self.reload_ms: int | None = None
        self.told = "has failed"
        self._faults = FaultsInARow(RELOADS)
        self._shown_to_ms: int | None = None

    @property
    def halted(self) -> StoreError | None:
        """Why the registry cannot be trusted; None while it can."""
        return self.over if isinstance(self.over, StoreError) else None

    @property
    def counts(self) -> bool:
        """Whether one more fault means anything."""
        return self.over is None and self.reload_ms is None

    def well(self) -> None:
        """The group is loaded."""
        self.is_well = True

    def failed(self, error: BaseException, now_ms: int) -> None:
        """Something of the group has failed."""
        self.is_well = False
        if isinstance(error, (CoordinatorDeposed, *LASTING)):
            self.end(error)
            return
        pause_s = self._faults.failed(now_ms / 1_000) or 0.0
        often = f", {self._faults.count} times in a row" if self._faults.count > 1 else ""
        self.told = f"failed ({shown(error)}) and is loaded again from the registry{often}"
        self._shown_to_ms = now_ms + SHOWN_MS
        self.reload_ms = now_ms + int(pause_s * 1_000)

    def end(self, error: BaseException) -> None:
        """It is over."""
        self.is_well = False
        self.over = error
        self.reload_ms = None

    def problem(self, now_ms: int) -> str:
        """What is wrong; a fault is told for a while after it is over."""
        if self.halted is not None:
            return str(self.halted)
        if self._shown_to_ms is None or (self.is_well and now_ms >= self._shown_to_ms):
            return ""
        return self.told


def shown(error: BaseException) -> str:
    """An error in a few words, for a status."""
    line, name = first_line(error), type(error).__name__
    return name if line == name else f"{name}: {line}"
