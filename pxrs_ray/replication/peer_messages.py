"""What the replicas of a slot say to each other. All of it may be late, lost or doubled.

Rules of this file. Everything names the leader epoch under which it was said: of another epoch it
means nothing. What a follower says names its life too: what an earlier process of it had may be
gone. An answer names the question that it answers, and the life that asked it: a later process of
the same disk counts its questions from the start.
"""

from __future__ import annotations

from typing import Any

from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Offset, PartitionId
from pxrs_ray.replication.placement import Disk, LeaderEpoch

# A log of a slot: the id of its queue, which was made once and is no other queue's, and its
# partition.
LogKey = tuple[str, PartitionId]


@dataclass(frozen=True, slots=True)
class Follower:
    """Who says something to the leader. `life` is counted on its disk: each process has a higher
    one than those before it."""

    disk: Disk
    boot: str
    life: int


@dataclass(frozen=True, slots=True)
class Position:
    """A follower asks where its log parts from the leader's: it ends at `end`, in `last_epoch`, and
    holds nothing before `first`."""

    epoch: LeaderEpoch
    follower: Follower
    key: LogKey
    number: int
    last_epoch: LeaderEpoch
    first: Offset
    end: Offset
    synced: Offset


@dataclass(frozen=True, slots=True)
class Stored:
    """A follower has what is before `end`; a power cut would leave it what is before `synced`. It
    has heard of that high watermark, and of that start. `number` is that of the question by which
    its log was found to agree: what it had stored before is gone."""

    epoch: LeaderEpoch
    follower: Follower
    key: LogKey
    number: int
    end: Offset
    synced: Offset
    high_watermark: Offset = 0
    start: Offset = 0


@dataclass(frozen=True, slots=True)
class CutAt:
    """The leader's log has nothing of the follower's after `of_epoch`, which ends at `at` there."""

    epoch: LeaderEpoch
    key: LogKey
    life: int
    number: int
    of_epoch: LeaderEpoch
    at: Offset


@dataclass(frozen=True, slots=True)
class Agreed:
    """The follower's log is a beginning of the leader's."""

    epoch: LeaderEpoch
    key: LogKey
    life: int
    number: int


@dataclass(frozen=True, slots=True)
class BeginAt:
    """The leader has dropped what would follow the follower's log. So that one begins anew, at
    `at`; `producers` is the snapshot of what is known of them there, or further on."""

    epoch: LeaderEpoch
    key: LogKey
    life: int
    number: int
    at: Offset
    producers: bytes


@dataclass(frozen=True, slots=True)
class Frames:
    """Frames of the leader's log as they lie there, from `first` to `end`, and their epochs. What
    is before `start` was dropped."""

    epoch: LeaderEpoch
    key: LogKey
    first: Offset
    end: Offset
    epochs: tuple[tuple[LeaderEpoch, Offset], ...]
    high_watermark: Offset
    start: Offset
    data: Any


@dataclass(frozen=True, slots=True)
class Watermark:
    """The high watermark of a log, and where it starts now, where no frames go that could carry
    them."""

    epoch: LeaderEpoch
    key: LogKey
    high_watermark: Offset
    start: Offset


ToLeader = Position | Stored
ToFollower = CutAt | Agreed | BeginAt | Frames | Watermark
