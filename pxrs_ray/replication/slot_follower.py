"""`SlotFollower`: everything that a follower of a slot decides. Pure, sans-io.

Rules of this file. It takes frames only under the leader epoch that it follows, and only at its own
end. Before the first of an epoch it asks its leader where their logs part, and cuts there: by the
epochs of the frames, never by a high watermark. An answer counts for the question that was asked
last and for none before: one that comes late would cut what was stored since (KIP-320).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from pxrs_ray.model import Offset, PartitionId
from pxrs_ray.replication.epoch_table import EpochTable
from pxrs_ray.replication.peer_messages import (
    Agreed,
    CutAt,
    Follower,
    Frames,
    Position,
    Stored,
    ToFollower,
    ToLeader,
    Watermark,
)
from pxrs_ray.replication.placement import Disk, LeaderEpoch


@dataclass(slots=True)
class FollowedPartition:
    """One partition's log at a follower, and where it is with its leader.

    `number` is that of the question asked last, `again_ms` when it is asked again.
    """

    end: Offset
    synced: Offset
    table: EpochTable
    high_watermark: Offset = 0
    agreed: bool = False
    number: int = 0
    again_ms: int = 0


@dataclass(frozen=True, slots=True)
class Say:
    """Say this to the leader."""

    to: Disk
    message: ToLeader


@dataclass(frozen=True, slots=True)
class CutLog:
    """Drop what the log has from `end` on, epochs without a frame as well. It is done before
    anything else."""

    partition: PartitionId
    end: Offset


@dataclass(frozen=True, slots=True)
class StoreFrames:
    """Append these frames at the end, then say with `stored` what of it is synced."""

    frames: Frames


FollowerEffect = Say | CutLog | StoreFrames


class SlotFollower:
    """A replica of a slot that does not lead it, in one life of its process."""

    def __init__(
        self, who: Follower, partitions: Mapping[PartitionId, FollowedPartition], again_ms: int
    ) -> None:
        self.epoch: LeaderEpoch = 0
        self.leader: Disk = ""
        self.partitions = dict(partitions)
        self._who = who
        self._again_ms = again_ms
        self._effects: deque[FollowerEffect] = deque()

    def take_effect(self) -> FollowerEffect | None:
        """What is to be done next; None when that is nothing."""
        return self._effects.popleft() if self._effects else None

    def follow(self, epoch: LeaderEpoch, leader: Disk, now_ms: int) -> None:
        """There is a leader. One of an older epoch is none any more."""
        if epoch <= self.epoch:
            return
        self.epoch, self.leader = epoch, leader
        for partition in self.partitions:
            self._ask(partition, now_ms)

    def opened(self, partition: PartitionId, log: FollowedPartition, now_ms: int) -> None:
        """The slot has one more log."""
        self.partitions[partition] = log
        if self.leader:
            self._ask(partition, now_ms)

    def tick(self, now_ms: int) -> None:
        """Ask again what was not answered."""
        if self.leader:
            for partition, log in self.partitions.items():
                if not log.agreed and now_ms >= log.again_ms:
                    self._say_position(partition, log, now_ms)

    def _ask(self, partition: PartitionId, now_ms: int) -> None:
        log = self.partitions[partition]
        log.agreed = False
        log.number += 1
        self._say_position(partition, log, now_ms)

    def _say_position(self, partition: PartitionId, log: FollowedPartition, now_ms: int) -> None:
        log.again_ms = now_ms + self._again_ms
        last, ends = log.table.last, (log.end, log.synced)
        asked = Position(self.epoch, self._who, partition, log.number, last, *ends)
        self._effects.append(Say(self.leader, asked))

    def heard(self, said: ToFollower, now_ms: int) -> None:
        """The leader says something. Of another epoch it says nothing to us."""
        log = self.partitions.get(said.partition)
        if log is None or said.epoch != self.epoch:
            return
        match said:
            case CutAt():
                if said.number == log.number and not log.agreed:
                    self._cut(log, said, now_ms)
            case Agreed():
                if said.number == log.number:
                    log.agreed = True
            case Frames():
                if log.agreed:
                    self._take(log, said)
            case Watermark():
                if log.agreed:
                    self._heard_watermark(log, said.high_watermark)

    def _cut(self, log: FollowedPartition, said: CutAt, now_ms: int) -> None:
        _, end = log.table.end_of(said.of_epoch, log.end)
        end = min(end, said.at)
        # An epoch that was begun and has no frame yet is gone as well: older ones may come now.
        if end < log.end or log.table.begins_at(end):
            self._effects.append(CutLog(said.partition, end))
            log.end, log.synced = end, min(log.synced, end)
        log.table.cut(end)
        self._ask(said.partition, now_ms)

    def _take(self, log: FollowedPartition, frames: Frames) -> None:
        if frames.first != log.end:
            self._say_stored(frames.partition, log)
            return
        for epoch, offset in frames.epochs:
            log.table.begin(epoch, offset)
        log.end = frames.end
        self._effects.append(StoreFrames(frames))
        self._heard_watermark(log, frames.high_watermark)

    def _heard_watermark(self, log: FollowedPartition, high_watermark: Offset) -> None:
        log.high_watermark = max(log.high_watermark, min(high_watermark, log.end))

    def stored(self, partition: PartitionId, synced: Offset) -> None:
        """What was to be stored is in the log; what is before `synced` survives a power cut."""
        log = self.partitions[partition]
        log.synced = max(log.synced, min(synced, log.end))
        self._say_stored(partition, log)

    def _say_stored(self, partition: PartitionId, log: FollowedPartition) -> None:
        if log.agreed:
            stored = Stored(self.epoch, self._who, partition, log.end, log.synced)
            self._effects.append(Say(self.leader, stored))
