"""`SlotFollower`: everything that a follower of a slot decides. Pure, sans-io.

Rules of this file. It takes frames only under the leader epoch that it follows, and only at its own
end. Before the first of an epoch it asks its leader where their logs part, and cuts there: by the
epochs of the frames, never by a high watermark. An answer counts for the question that this life
asked last and for none before: one that comes late would cut what was stored since (KIP-320). What
the leader has dropped it drops as well, and where it lacks what was dropped it begins anew.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Offset
from pxrs_ray.replication.epoch_table import EpochTable
from pxrs_ray.replication.peer_messages import (
    Agreed,
    BeginAt,
    CutAt,
    Follower,
    Frames,
    LogKey,
    Position,
    Stored,
    ToFollower,
    ToLeader,
    Watermark,
)
from pxrs_ray.replication.placement import Disk, LeaderEpoch


@dataclass(slots=True)
class FollowedLog:
    """One log at a follower, and where it is with its leader.

    It holds nothing before `first`; the leader has dropped what is before `start`. `number` is that
    of the question asked last, `again_ms` when it is asked again.
    """

    end: Offset
    synced: Offset
    table: EpochTable
    high_watermark: Offset = 0
    first: Offset = 0
    start: Offset = 0
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

    key: LogKey
    end: Offset


@dataclass(frozen=True, slots=True)
class BeginLog:
    """Drop all that the log has, and begin it at `at`, with this known of producers."""

    key: LogKey
    at: Offset
    producers: bytes


@dataclass(frozen=True, slots=True)
class StoreFrames:
    """Append these frames at the end, then say with `stored` what of it is synced."""

    frames: Frames


FollowerEffect = Say | CutLog | BeginLog | StoreFrames


class SlotFollower:
    """A replica of a slot that does not lead it, in one life of its process."""

    def __init__(self, who: Follower, logs: Mapping[LogKey, FollowedLog], again_ms: int) -> None:
        self.epoch: LeaderEpoch = 0
        self.leader: Disk = ""
        self.logs = dict(logs)
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
        for key in self.logs:
            self._ask(key, now_ms)

    def ask_anew(self, now_ms: int) -> None:
        """Whoever leads may not know this follower any more."""
        for key in self.logs:
            self._ask(key, now_ms)

    def opened(self, key: LogKey, log: FollowedLog, now_ms: int) -> None:
        """The slot has one more log."""
        self.logs[key] = log
        if self.leader:
            self._ask(key, now_ms)

    def closed(self, key: LogKey) -> None:
        """The slot has one log less."""
        self.logs.pop(key, None)

    def tick(self, now_ms: int) -> None:
        """Ask again what was not answered."""
        if self.leader:
            for key, log in self.logs.items():
                if not log.agreed and now_ms >= log.again_ms:
                    self._say_position(key, log, now_ms)

    def _ask(self, key: LogKey, now_ms: int) -> None:
        log = self.logs[key]
        log.agreed = False
        log.number += 1
        self._say_position(key, log, now_ms)

    def _say_position(self, key: LogKey, log: FollowedLog, now_ms: int) -> None:
        log.again_ms = now_ms + self._again_ms
        last, ends = log.table.last, (log.first, log.end, log.synced)
        asked = Position(self.epoch, self._who, key, log.number, last, *ends)
        self._effects.append(Say(self.leader, asked))

    def heard(self, said: ToFollower, now_ms: int) -> None:
        """The leader says something. Of another epoch it says nothing to us."""
        log = self.logs.get(said.key)
        if log is None or said.epoch != self.epoch:
            return
        match said:
            case CutAt():
                if self._is_answer(said, log) and not log.agreed:
                    self._cut(log, said, now_ms)
            case Agreed():
                if self._is_answer(said, log):
                    log.agreed = True
            case BeginAt():
                # Also where logs had agreed: the leader has dropped since what comes next here.
                if self._is_answer(said, log):
                    self._begin(log, said, now_ms)
            case Frames():
                if log.agreed:
                    self._take(log, said)
            case Watermark():
                if log.agreed:
                    self._heard_watermark(log, said.high_watermark, said.start)
                    self._say_stored(said.key, log)

    def _is_answer(self, said: CutAt | Agreed | BeginAt, log: FollowedLog) -> bool:
        return (said.life, said.number) == (self._who.life, log.number)

    def _cut(self, log: FollowedLog, said: CutAt, now_ms: int) -> None:
        _, end = log.table.end_of(said.of_epoch, log.end)
        end = min(end, said.at)
        # An epoch that was begun and has no frame yet is gone as well: older ones may come now.
        if end < log.end or log.table.begins_at(end):
            self._effects.append(CutLog(said.key, end))
            log.end, log.synced = end, min(log.synced, end)
        log.table.cut(end)
        self._ask(said.key, now_ms)

    def _begin(self, log: FollowedLog, said: BeginAt, now_ms: int) -> None:
        log.first = log.start = log.end = log.synced = said.at
        log.high_watermark = min(log.high_watermark, said.at)
        log.table = EpochTable()
        self._effects.append(BeginLog(said.key, said.at, said.producers))
        self._ask(said.key, now_ms)

    def _take(self, log: FollowedLog, frames: Frames) -> None:
        if frames.first != log.end:
            self._say_stored(frames.key, log)
            return
        for epoch, offset in frames.epochs:
            log.table.begin(epoch, offset)
        log.end = frames.end
        self._effects.append(StoreFrames(frames))
        self._heard_watermark(log, frames.high_watermark, frames.start)

    def _heard_watermark(self, log: FollowedLog, high_watermark: Offset, start: Offset) -> None:
        log.high_watermark = max(log.high_watermark, min(high_watermark, log.end))
        log.start = max(log.start, start)

    def stored(self, key: LogKey, synced: Offset) -> None:
        """What was to be stored is in the log; what is before `synced` survives a power cut."""
        log = self.logs[key]
        log.synced = max(log.synced, min(synced, log.end))
        self._say_stored(key, log)

    def _say_stored(self, key: LogKey, log: FollowedLog) -> None:
        if log.agreed:
            ends, heard = (log.end, log.synced), (log.high_watermark, log.start)
            stored = Stored(self.epoch, self._who, key, log.number, *ends, *heard)
            self._effects.append(Say(self.leader, stored))
