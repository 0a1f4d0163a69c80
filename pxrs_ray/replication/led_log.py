"""What a slot's leader knows of one log: of its own, and of how far each follower is with it."""

from __future__ import annotations

from collections import deque
from dataclasses import field

from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.log.replica_log import ReplicaLog
from pxrs_ray.model import Offset
from pxrs_ray.replication.epoch_table import EpochTable
from pxrs_ray.replication.peer_messages import Follower, LogKey

# A replica is late by marks of where the log ended when: so many of them cover the longest lag.
MARKS = 8


class LedLog:
    """One log at its leader: its end, what of it is synced, its epochs, and up to where it may be
    read; `first`, from where on it can be followed, and `start`, before which it was dropped."""

    __slots__ = ("end", "first", "high_watermark", "marks", "start", "synced", "table")

    def __init__(
        self, end: Offset, synced: Offset, table: EpochTable, high_watermark: Offset = 0
    ) -> None:
        self.end = end
        self.synced = synced
        self.table = table
        self.high_watermark = high_watermark
        self.first = self.start = 0
        # Where it ended, and when.
        self.marks: deque[tuple[Offset, int]] = deque()

    def differs(self, log: ReplicaLog) -> bool:
        """Whether the log has grown, was shortened, or has more synced, than is known here."""
        known = self.first, self.start, self.end, self.synced
        return known != (log.first_offset, log.start_offset, log.end_offset, log.durable_offset)

    def mark(self, now_ms: int, lag_max_ms: int) -> None:
        """Note where the log ends now; forget what an older mark than is needed says."""
        marks = self.marks
        if not marks or now_ms - marks[-1][1] >= lag_max_ms // MARKS:
            marks.append((self.end, now_ms))
        while len(marks) > 1 and marks[1][1] <= now_ms - lag_max_ms:
            marks.popleft()

    def due(self, now_ms: int, lag_max_ms: int) -> Offset:
        """Up to where a replica should be that is not late."""
        self.mark(now_ms, lag_max_ms)
        end, at_ms = self.marks[0]
        return end if at_ms <= now_ms - lag_max_ms else 0


@dataclass(slots=True)
class ReplicaProgress:
    """How far one follower is with one log.

    `agreed`: its log is known to be a beginning of the leader's, as answered to its question of
    that `number`. `sent` runs ahead of `end` by what is under way, which is so many `ships`;
    `again_ms`: when all of that is sent again. `heard`: the high watermark and the start that it
    has heard of, `told` what it was told last. `left_behind`: what comes next for it was dropped,
    and it has been told to begin anew.
    """

    agreed: bool = False
    number: int = -1
    end: Offset = 0
    synced: Offset = 0
    sent: Offset = 0
    ships: int = 0
    again_ms: int = 0
    heard: tuple[Offset, Offset] = (0, 0)
    told: tuple[Offset, Offset] = (0, 0)
    left_behind: bool = False


@dataclass(slots=True)
class ReplicaHeard:
    """One follower, in the life that was heard last."""

    who: Follower
    logs: dict[LogKey, ReplicaProgress] = field(default_factory=dict)
