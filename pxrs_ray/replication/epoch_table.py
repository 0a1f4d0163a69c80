"""`EpochTable`: under which leader epoch each part of a log was written. Pure.

Rules of this file. A leader begins an epoch at the end of its own log. Two logs that have the same
last epoch are alike up to the shorter one's end; where they part is found from the epochs alone,
never from a high watermark, which a follower hears of late (KIP-101). A follower asks for the end
of its own last epoch; whoever leads may never have had that one, and answers with the next lower
one that it has; the follower cuts there and asks again (KIP-279).
"""

from __future__ import annotations

from bisect import bisect_right

from pxrs_ray.model import Offset
from pxrs_ray.replication.placement import LeaderEpoch


class EpochTable:
    """The epochs of one log, each with the offset at which it begins. Epoch 0 begins it."""

    def __init__(self, begins: list[tuple[LeaderEpoch, Offset]] | None = None) -> None:
        self.begins = list(begins) if begins else [(0, 0)]

    @classmethod
    def of_log(cls, begins: list[tuple[LeaderEpoch, Offset]]) -> EpochTable:
        """The table of a log that has these epochs."""
        return cls([(0, 0), *((epoch, offset) for epoch, offset in begins if epoch)])

    @property
    def last(self) -> LeaderEpoch:
        """The epoch of the newest frames."""
        return self.begins[-1][0]

    def begin(self, epoch: LeaderEpoch, offset: Offset) -> None:
        """From `offset` on, frames are of this epoch; one that is known already goes on."""
        if epoch > self.last:
            # An epoch without a frame leaves nothing to tell apart.
            if self.begins[-1][1] == offset and len(self.begins) > 1:
                self.begins.pop()
            self.begins.append((epoch, offset))

    def begins_at(self, end: Offset) -> bool:
        """Whether the newest epoch has nothing before `end`."""
        return len(self.begins) > 1 and self.begins[-1][1] >= end

    def cut(self, end: Offset) -> None:
        """What is from `end` on is gone. Epoch 0 stays."""
        while self.begins_at(end):
            self.begins.pop()

    def forget_before(self, first: Offset) -> None:
        """What is before `first` is not here any more, and counts as epoch 0: whoever lacks it, and
        begins there, is at the end of that."""
        kept = [begun for begun in self.begins[1:] if begun[1] > first]
        at = len(self.begins) - len(kept) - 1
        if at and first:
            kept.insert(0, (self.begins[at][0], first))
            self.begins = [(0, 0), *kept]

    def end_of(self, epoch: LeaderEpoch, log_end: Offset) -> tuple[LeaderEpoch, Offset]:
        """The highest epoch up to this one that the log has, and the offset at which that ends."""
        at = max(0, bisect_right(self.begins, epoch, key=lambda begun: begun[0]) - 1)
        end = self.begins[at + 1][1] if at + 1 < len(self.begins) else log_end
        return self.begins[at][0], end

    def epochs_in(self, first: Offset, end: Offset) -> tuple[tuple[LeaderEpoch, Offset], ...]:
        """The epochs of a run of frames, each with the offset from which on it holds there."""
        found = []
        for at, (epoch, begin) in enumerate(self.begins):
            stop = self.begins[at + 1][1] if at + 1 < len(self.begins) else end
            if begin < end and stop > first:
                found.append((epoch, max(begin, first)))
        return tuple(found)
