"""What the replicas of a slot say to each other. All of it may be late, lost or doubled.

Rules of this file. Everything names the leader epoch under which it was said: of another epoch it
means nothing. What a follower says names its life too: what an earlier process of it had may be
gone. An answer names the question that it answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pxrs_ray.model import Offset, PartitionId
from pxrs_ray.replication.placement import Disk, LeaderEpoch


@dataclass(frozen=True, slots=True)
class Follower:
    """Who says something to the leader. `life` is counted on its disk: each process has a higher
    one than those before it."""

    disk: Disk
    boot: str
    life: int


@dataclass(frozen=True, slots=True)
class Position:
    """A follower asks where its log parts from the leader's: it ends at `end`, in `last_epoch`."""

    epoch: LeaderEpoch
    follower: Follower
    partition: PartitionId
    number: int
    last_epoch: LeaderEpoch
    end: Offset
    synced: Offset


@dataclass(frozen=True, slots=True)
class Stored:
    """A follower has what is before `end`; a power cut would leave it what is before `synced`."""

    epoch: LeaderEpoch
    follower: Follower
    partition: PartitionId
    end: Offset
    synced: Offset


@dataclass(frozen=True, slots=True)
class CutAt:
    """The leader's log has nothing of the follower's after `of_epoch`, which ends at `at` there."""

    epoch: LeaderEpoch
    partition: PartitionId
    number: int
    of_epoch: LeaderEpoch
    at: Offset


@dataclass(frozen=True, slots=True)
class Agreed:
    """The follower's log is a beginning of the leader's."""

    epoch: LeaderEpoch
    partition: PartitionId
    number: int


@dataclass(frozen=True, slots=True)
class Frames:
    """Frames of the leader's log as they lie there, from `first` to `end`, and their epochs."""

    epoch: LeaderEpoch
    partition: PartitionId
    first: Offset
    end: Offset
    epochs: tuple[tuple[LeaderEpoch, Offset], ...]
    high_watermark: Offset
    data: Any


@dataclass(frozen=True, slots=True)
class Watermark:
    """The high watermark of a partition, where no frames go that could carry it."""

    epoch: LeaderEpoch
    partition: PartitionId
    high_watermark: Offset


ToLeader = Position | Stored
ToFollower = CutAt | Agreed | Frames | Watermark
