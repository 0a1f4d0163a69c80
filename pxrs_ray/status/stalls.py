"""`StallDetector`: finds partitions whose checkpoint does not move while the lag grows. Pure.

Rules of this file. A partition is stalled when all the time it has an owner and messages wait in
it, its checkpoint does not move, and more messages wait than at the beginning. That is reported
after WINDOW_MS, and not before three times the longest of the last pauses that it made between two
moves: a slow consumer that commits now and then is at work. A partition without an owner, a paused
group's and an empty one do not move either and are not stalled. What cannot be asked is not
reported.
"""

from __future__ import annotations

from collections.abc import Mapping

from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Offset, PartitionId

WINDOW_MS = 60_000
PAUSES_KEPT = 4
PAUSES = 3


@dataclass(frozen=True, slots=True)
class Stall:
    """For how long a checkpoint has not moved, and by how many messages the lag grew meanwhile."""

    seconds: float
    grown: int


@dataclass(slots=True)
class _Watched:
    checkpoint: Offset
    since_ms: int
    lag: int
    pauses_ms: tuple[int, ...] = ()


class StallDetector:
    """The partitions of one group, as an observer sees them every few seconds."""

    def __init__(self) -> None:
        self._watched: dict[PartitionId, _Watched] = {}

    def note(
        self,
        now_ms: int,
        seen: Mapping[PartitionId, tuple[Offset, int | None]],
        window_ms: int = WINDOW_MS,
    ) -> dict[PartitionId, Stall]:
        """Take in checkpoint and lag of each partition that somebody works at now; answer which
        are stalled. A lag of None is not known; `now_ms` is of a clock that does not jump."""
        self._watched = {p: each for p, each in self._watched.items() if p in seen}
        found = {}
        for partition, (checkpoint, lag) in seen.items():
            if lag is None:
                continue
            at = self._watched.get(partition)
            if at is None or at.lag == 0 or lag == 0:
                pauses_ms = at.pauses_ms if at is not None else ()
                self._watched[partition] = _Watched(checkpoint, now_ms, lag, pauses_ms)
                continue
            same_ms = now_ms - at.since_ms
            if checkpoint != at.checkpoint:
                pauses_ms = (*at.pauses_ms, same_ms)[-PAUSES_KEPT:]
                self._watched[partition] = _Watched(checkpoint, now_ms, lag, pauses_ms)
                continue
            long_ms = max(window_ms, PAUSES * max(at.pauses_ms, default=0))
            if same_ms >= long_ms and lag > at.lag:
                found[partition] = Stall(same_ms / 1_000, lag - at.lag)
        return found
