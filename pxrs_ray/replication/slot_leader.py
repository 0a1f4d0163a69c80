"""`SlotLeader`: everything that the leader of a slot decides about its followers. Pure, sans-io.

Rules of this file. Who runs it appends to the log, says so, carries what is said between replicas,
and takes the effects after each call; time is given in, by one monotonic clock. The high watermark
of a partition is what every replica in sync has stored. While another in-sync set is asked for,
both sets are waited for: so a leader that nobody hears acknowledges nothing, and needs no clock for
that. The high watermark never goes back. Nothing is cut here: a leader's log is what is true.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from pxrs_ray.model import Offset, PartitionId
from pxrs_ray.replication.epoch_table import EpochTable
from pxrs_ray.replication.leader_effects import (
    Advanced,
    AskIsr,
    LeaderEffect,
    ReplicationSettings,
    Ship,
    SteppedDown,
    Tell,
)
from pxrs_ray.replication.peer_messages import (
    Agreed,
    CutAt,
    Follower,
    Position,
    Stored,
    Watermark,
)
from pxrs_ray.replication.placement import Disk, InSync, IsrChange, Placement

# A replica is late by marks of where the log ended when: so many of them cover the longest lag.
MARKS = 8


class LedPartition:
    """One partition's log at its leader: its end, what of it is synced, its epochs, and up to where
    it may be read."""

    __slots__ = ("end", "high_watermark", "marks", "synced", "table")

    def __init__(
        self, end: Offset, synced: Offset, table: EpochTable, high_watermark: Offset = 0
    ) -> None:
        self.end = end
        self.synced = synced
        self.table = table
        self.high_watermark = high_watermark
        # Where it ended, and when.
        self.marks: deque[tuple[Offset, int]] = deque()

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
    """How far one follower is with one partition.

    `agreed`: its log is known to be a beginning of the leader's, as answered to its question of
    that `number`. `sent` runs ahead of `end` by what is under way, which is so many `ships`;
    `again_ms`: when all of that is sent again. `told`: the high watermark that it was told.
    """

    agreed: bool = False
    number: int = -1
    end: Offset = 0
    synced: Offset = 0
    sent: Offset = 0
    ships: int = 0
    again_ms: int = 0
    told: Offset = 0


@dataclass(slots=True)
class ReplicaHeard:
    """One follower, in the life that was heard last."""

    who: Follower
    partitions: dict[PartitionId, ReplicaProgress] = field(default_factory=dict)


class SlotLeader:
    """The leader of a slot under one epoch. It ends when there is a higher one."""

    def __init__(
        self,
        me: Disk,
        placement: Placement,
        partitions: Mapping[PartitionId, LedPartition],
        settings: ReplicationSettings,
        now_ms: int,
    ) -> None:
        self.placement = placement
        self.partitions = dict(partitions)
        self.ended = False
        self._me = me
        self._settings = settings
        self._effects: deque[LeaderEffect] = deque()
        self._replicas: dict[Disk, ReplicaHeard] = {}
        # The sets that were asked for since the last change, and when to ask again. Any of them may
        # stand in the registry by now: they are forgotten when its version has moved.
        self._asked: tuple[InSync, ...] = ()
        self._ask_again_ms = now_ms
        self._began_ms = now_ms
        self._absent: frozenset[Disk] = frozenset()
        for partition, log in self.partitions.items():
            self._begin(partition, log, now_ms)

    def _begin(self, partition: PartitionId, log: LedPartition, now_ms: int) -> None:
        log.table.begin(self.placement.epoch, log.end)
        log.marks.clear()
        log.mark(now_ms, self._settings.lag_max_ms)
        self._advance(partition)

    def opened(self, partition: PartitionId, log: LedPartition, now_ms: int) -> None:
        """The slot has one more log."""
        self.partitions[partition] = log
        self._begin(partition, log, now_ms)

    def take_effect(self) -> LeaderEffect | None:
        """What is to be done next; None when that is nothing."""
        return self._effects.popleft() if self._effects else None

    # --- its own log ------------------------------------------------------------------------------

    @property
    def takes(self) -> bool:
        """Whether enough replicas are in sync for an append to be acknowledged."""
        return not self.ended and len(self.placement.isr) >= self._settings.min_isr

    def appended(self, partition: PartitionId, end: Offset, synced: Offset, now_ms: int) -> None:
        """The log has grown to `end`, or more of it is synced."""
        log = self.partitions[partition]
        log.end, log.synced = end, max(log.synced, synced)
        log.mark(now_ms, self._settings.lag_max_ms)
        self._advance(partition)
        for disk, heard in self._replicas.items():
            self._ship(disk, heard, partition, now_ms)

    # --- followers --------------------------------------------------------------------------------

    def heard(self, said: Position | Stored, now_ms: int) -> None:
        """A follower says something. Of another epoch it says nothing to us."""
        who = said.follower
        if self.ended or said.epoch != self.placement.epoch or who.disk == self._me:
            return
        if said.partition not in self.partitions or who.disk not in self.placement.replicas:
            return
        known = self._replicas.get(who.disk)
        if known is not None and who.life < known.who.life:
            return  # it is late, and its process is gone
        if known is None or known.who != who:
            # What an earlier life has stored may be gone.
            known = self._replicas[who.disk] = ReplicaHeard(who)
        progress = known.partitions.setdefault(said.partition, ReplicaProgress())
        if isinstance(said, Position):
            if said.number < progress.number:
                return  # it has heard the answer to that, and gone on
            self._agree(said, progress)
        elif not progress.agreed:
            return
        else:
            # One that has stored nothing more lacks what was lost on the way: it waits for that.
            if said.end > progress.end:
                progress.end = said.end
                progress.again_ms = now_ms + self._settings.again_ms
            progress.synced = max(progress.synced, said.synced)
            progress.ships = max(0, progress.ships - 1)
            progress.sent = max(progress.sent, progress.end)
        self._advance(said.partition)
        self._ship(who.disk, known, said.partition, now_ms)
        self._look_at_isr(now_ms)

    def _agree(self, asked: Position, progress: ReplicaProgress) -> None:
        """Find where the logs part, and say so."""
        log = self.partitions[asked.partition]
        epoch, end = log.table.end_of(asked.last_epoch, log.end)
        to, number = asked.follower.disk, asked.number
        if epoch == asked.last_epoch and asked.end <= end:
            if not progress.agreed or number > progress.number:
                progress.agreed, progress.number, progress.ships = True, number, 0
                progress.end = progress.sent = asked.end
                progress.synced, progress.told = asked.synced, 0
            self._effects.append(Tell(to, Agreed(asked.epoch, asked.partition, number)))
        else:
            progress.agreed, progress.number = False, number
            answer = CutAt(asked.epoch, asked.partition, number, epoch, min(end, asked.end))
            self._effects.append(Tell(to, answer))

    def _ship(self, disk: Disk, heard: ReplicaHeard, partition: PartitionId, now_ms: int) -> None:
        progress = heard.partitions.get(partition)
        if progress is None or not progress.agreed or self.ended:
            return
        if progress.sent < self.partitions[partition].end:
            if progress.sent == progress.end:
                progress.again_ms = now_ms + self._settings.again_ms
            if progress.ships < self._settings.ships_max:
                progress.ships += 1
                self._effects.append(Ship(disk, partition, progress.sent))

    def shipped(self, ship: Ship, end: Offset, now_ms: int) -> None:
        """What a `Ship` wanted is on its way, up to `end`."""
        heard = self._replicas.get(ship.to)
        progress = heard.partitions.get(ship.partition) if heard is not None else None
        if heard is not None and progress is not None and progress.sent == ship.first:
            progress.sent = end
            self._ship(ship.to, heard, ship.partition, now_ms)

    # --- the high watermark -----------------------------------------------------------------------

    def _waited_for(self) -> tuple[InSync, ...]:
        """The replicas in sync, and those that may be by now."""
        return (*self.placement.isr, *self._asked)

    def _stored(self, member: InSync, partition: PartitionId) -> Offset:
        """Up to where a replica is known to have a partition."""
        if member.disk == self._me:
            log = self.partitions[partition]
            return log.synced if self._settings.synced_only else log.end
        heard = self._replicas.get(member.disk)
        progress = heard.partitions.get(partition) if heard is not None else None
        if progress is None or not progress.agreed:
            return 0
        return progress.synced if self._settings.synced_only else progress.end

    def _advance(self, partition: PartitionId) -> None:
        log = self.partitions[partition]
        if not self.takes:
            return
        to = min(self._stored(member, partition) for member in self._waited_for())
        if to > log.high_watermark:
            log.high_watermark = to
            self._effects.append(Advanced(partition, to))

    @property
    def is_asking(self) -> bool:
        """Whether another in-sync set may stand in the registry than the one that is known here."""
        return bool(self._asked)

    # --- the in-sync set --------------------------------------------------------------------------

    def placed(self, placement: Placement, now_ms: int) -> None:
        """The coordinator says what stands in the registry now."""
        if self.ended or placement.version < self.placement.version:
            return
        if placement.epoch != self.placement.epoch or placement.leader != self._me:
            self.ended = True
            self._effects.append(SteppedDown())
            return
        if placement.version > self.placement.version:
            self.placement = placement
            self._asked = ()
            for disk in set(self._replicas) - set(placement.replicas):
                del self._replicas[disk]
            for partition in self.partitions:
                self._advance(partition)
        self._look_at_isr(now_ms)

    def absent(self, disks: Collection[Disk], now_ms: int) -> None:
        """The coordinator sees no process of these, and one of all others."""
        self._absent = frozenset(disks)
        if not self.ended:
            self._look_at_isr(now_ms)

    def tick(self, now_ms: int) -> None:
        """Look at the time: who is late, what was not answered, who has not heard how far it is."""
        if self.ended:
            return
        for disk, heard in self._replicas.items():
            for partition, progress in heard.partitions.items():
                self._look_at(disk, heard, partition, progress, now_ms)
        self._look_at_isr(now_ms)

    def _look_at(
        self,
        disk: Disk,
        heard: ReplicaHeard,
        partition: PartitionId,
        progress: ReplicaProgress,
        now_ms: int,
    ) -> None:
        if not progress.agreed:
            return
        # Whatever was lost on the way: what is not stored is sent again.
        if progress.sent > progress.end and now_ms >= progress.again_ms:
            progress.sent, progress.ships = progress.end, 0
            self._ship(disk, heard, partition, now_ms)
        high_watermark = self.partitions[partition].high_watermark
        if progress.told < high_watermark and progress.sent == progress.end:
            progress.told = high_watermark
            told = Watermark(self.placement.epoch, partition, high_watermark)
            self._effects.append(Tell(disk, told))

    def _look_at_isr(self, now_ms: int) -> None:
        """Ask for the in-sync set that should be, unless that is under way."""
        wanted = [one for one in self.placement.isr if not self._is_late(one, now_ms)]
        for heard in self._replicas.values():
            member = InSync(heard.who.disk, heard.who.boot)
            is_new = member not in self.placement.isr and member.disk not in self._absent
            if is_new and self._has_caught_up(member, heard):
                wanted = [one for one in wanted if one.disk != member.disk]
                wanted.append(member)
        changes = set(wanted) != set(self.placement.isr)
        # What was asked for and not answered may yet be done: until the version moves, it counts.
        if changes if not self._asked else now_ms >= self._ask_again_ms:
            self._asked = tuple({*self._asked, *wanted})
            self._ask_again_ms = now_ms + self._settings.again_ms
            change = IsrChange(self.placement.epoch, self.placement.version, tuple(wanted))
            self._effects.append(AskIsr(change))

    def _is_late(self, member: InSync, now_ms: int) -> bool:
        """Whether a replica in sync lacks what the log has had for too long."""
        lag_max_ms = self._settings.lag_max_ms
        if member.disk == self._me:
            return False
        heard = self._replicas.get(member.disk)
        if member.disk in self._absent or (heard is not None and heard.who.boot != member.boot):
            return True
        if now_ms - self._began_ms <= lag_max_ms:
            return False
        if heard is None:
            return True
        return any(
            self._stored(member, partition) < log.due(now_ms, lag_max_ms)
            for partition, log in self.partitions.items()
        )

    def _has_caught_up(self, member: InSync, heard: ReplicaHeard) -> bool:
        """Whether a follower has all that is, or may be, acknowledged: what is below the high
        watermark, and what the log had when this epoch began."""
        for partition, log in self.partitions.items():
            progress = heard.partitions.get(partition)
            begun = log.table.end_of(self.placement.epoch - 1, log.end)[1]
            if progress is None or not progress.agreed:
                return False
            if self._stored(member, partition) < max(log.high_watermark, begun):
                return False
        return True
