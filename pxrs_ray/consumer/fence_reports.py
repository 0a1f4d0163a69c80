"""`FenceReports`: which epochs of a member the logs have refused, until the coordinator knows.

Rules of this file. A log that refuses an epoch knows a higher one. In most cases the member's newer
assignment is under way. Where the member is the owner all the same, the registry knows less than
the logs, and only the coordinator can find that out. A report is repeated until it is answered.
"""

from __future__ import annotations

from pxrs_ray.model import Epoch, PartitionId

REPORT_PAUSE_S = 0.01


class FenceReports:
    """The reports of one member. Pure."""

    def __init__(self) -> None:
        self._refused: dict[PartitionId, Epoch] = {}
        # When to tell them; None: everything is told, or being told.
        self.due_s: float | None = None

    def note(self, partition: PartitionId, epoch: Epoch, now_s: float) -> None:
        """A log says that this epoch is over."""
        self._refused[partition] = epoch
        self.due_s = now_s

    def take(self) -> tuple[tuple[PartitionId, Epoch], ...]:
        """What to tell now."""
        self.due_s = None
        return tuple(sorted(self._refused.items()))

    def unheard(self, now_s: float) -> None:
        """The report was not answered: it is to be made again."""
        self.due_s = now_s + REPORT_PAUSE_S

    def told(self, epochs: tuple[tuple[PartitionId, Epoch], ...]) -> None:
        """The report was answered; what was noted meanwhile is not."""
        for partition, epoch in epochs:
            if self._refused.get(partition) == epoch:
                del self._refused[partition]
