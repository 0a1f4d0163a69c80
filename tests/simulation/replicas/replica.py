"""One process of a replica: the machines of leader and follower on a model of a disk."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

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
    Follower,
    Frames,
    Position,
    Stored,
    ToFollower,
    ToLeader,
)
from pxrs_ray.replication.placement import (
    IsrChange,
    Placement,
    ReplicaSeen,
)
from pxrs_ray.replication.slot_follower import (
    CutLog,
    FollowedPartition,
    FollowerEffect,
    Say,
    SlotFollower,
    StoreFrames,
)
from pxrs_ray.replication.slot_leader import LedPartition, SlotLeader
from tests.simulation.replicas.kept import (
    AGAIN_MS,
    ENTRIES_MAX,
    TICK_MS,
    Entry,
    ReplicaDisk,
    Wanted,
)
from tests.simulation.simulator.world import Process, call, send

if TYPE_CHECKING:
    from tests.simulation.replicas.group import ReplicaGroup


class ReplicaProcess(Process):
    """One process of a replica: it follows, or leads."""

    def __init__(self, group: ReplicaGroup, disk: ReplicaDisk) -> None:
        super().__init__(group.world, disk.name)
        self.role = disk.name
        self.group = group
        self.disk = disk
        disk.lives += 1
        self.life = disk.lives
        self.who = Follower(disk.name, f"boot {disk.boot}", self.life)
        self.version = 0
        self.leader: SlotLeader | None = None
        self.followers = {p: self._followed(p) for p in range(group.rules.partitions)}
        self.follower = SlotFollower(self.who, self.followers, AGAIN_MS)
        self.waiting: dict[int, list[tuple[int, Callable[[int | None], None]]]] = {}
        self.every(TICK_MS, self._tick)
        self.every(5 if group.rules.synced_only else 60, self._sync)

    def _followed(self, partition: int) -> FollowedPartition:
        entries = self.disk.logs.setdefault(partition, [])
        table = EpochTable()
        for offset, entry in enumerate(entries):
            table.begin(entry.epoch, offset)
        return FollowedPartition(len(entries), self.disk.synced.get(partition, 0), table)

    # --- who leads --------------------------------------------------------------------------------

    def pinged(
        self,
        placement: Placement,
        absent: frozenset[str] | None,
        respond: Callable[[ReplicaSeen], None],
    ) -> None:
        """The coordinator says what stands in the registry and who is away, and asks whether we
        live."""
        self.placed(placement)
        if self.leader is not None and absent is not None:
            self.leader.absent(absent, self.monotonic_ms())
            self._carry_out()
        respond(ReplicaSeen(self.life, self.who.boot, self.disk.whole))

    def placed(self, placement: Placement) -> None:
        """A placement that stands in the registry."""
        if placement.version < self.version:
            return
        self.version = placement.version
        now_ms = self.monotonic_ms()
        if self.leader is not None:
            self.leader.placed(placement, now_ms)
            self._carry_out()
        leads = (placement.leader, placement.life) == (self.disk.name, self.life)
        if leads and self.leader is None and placement.epoch > self.follower.epoch:
            self.follower.epoch = placement.epoch
            logs = {
                p: LedPartition(one.end, one.synced, one.table, one.high_watermark)
                for p, one in self.followers.items()
            }
            rules = self.group.rules
            settings = ReplicationSettings(
                rules.min_isr, rules.synced_only, rules.lag_max_ms, again_ms=AGAIN_MS
            )
            self.leader = SlotLeader(self.disk.name, placement, logs, settings, now_ms)
            self._carry_out()
        elif not leads and self.leader is None and placement.leader != self.disk.name:
            self.follower.follow(placement.epoch, placement.leader, now_ms)
            self._carry_out()

    def _step_down(self) -> None:
        assert self.leader is not None
        for partition, log in self.leader.partitions.items():
            followed = self.followers[partition]
            followed.end, followed.synced, followed.table = log.end, log.synced, log.table
            followed.high_watermark = log.high_watermark
        self.leader = None
        for waiting in self.waiting.values():
            for _, respond in waiting:
                respond(None)
        self.waiting.clear()

    # --- what clients ask -------------------------------------------------------------------------

    def append(self, wanted: Wanted, respond: Callable[[int | None], None]) -> None:
        """Append once; answered when it is acknowledged, with its offset, or None: ask again."""
        leader = self.leader
        if leader is None or not leader.takes:
            respond(None)
            return
        entries = self.disk.logs[wanted.partition]
        mine = [
            (entry.sequence, offset)
            for offset, entry in enumerate(entries)
            if entry.producer == wanted.producer
        ]
        known = dict(mine)
        if wanted.sequence not in known:
            if wanted.sequence != (mine[-1][0] + 1 if mine else 0):
                respond(None)
                return
            known[wanted.sequence] = len(entries)
            entries.append(Entry(leader.placement.epoch, *wanted[1:]))
            self._grown(wanted.partition)
        offset = known[wanted.sequence]
        if leader.partitions[wanted.partition].high_watermark > offset:
            respond(offset)
        else:
            self.waiting.setdefault(wanted.partition, []).append((offset, respond))

    def read(self, partition: int, first: int, respond: Callable[[list[Entry]], None]) -> None:
        """What may be read from an offset on, at a leader or at a follower."""
        log = self.leader.partitions[partition] if self.leader else self.followers[partition]
        respond(self.disk.logs[partition][first : log.high_watermark])

    # --- replication ------------------------------------------------------------------------------

    def told(self, message: ToLeader | ToFollower) -> None:
        """Another replica says something."""
        now_ms = self.monotonic_ms()
        if isinstance(message, Position | Stored):
            if self.leader is not None:
                self.leader.heard(message, now_ms)
        elif self.leader is None:
            self.follower.heard(message, now_ms)
        self._carry_out()

    def _tick(self) -> None:
        if self.leader is not None:
            self.leader.tick(self.monotonic_ms())
        else:
            self.follower.tick(self.monotonic_ms())
        self._carry_out()

    def _sync(self) -> None:
        for partition, entries in self.disk.logs.items():
            if self.disk.synced.get(partition, 0) != len(entries):
                self.disk.synced[partition] = len(entries)
                self._grown(partition)
        self._carry_out()

    def _grown(self, partition: int) -> None:
        end, synced = len(self.disk.logs[partition]), self.disk.synced.get(partition, 0)
        if self.leader is not None:
            self.leader.appended(partition, end, synced, self.monotonic_ms())
            self._carry_out()
        else:
            self.follower.stored(partition, synced)

    def _carry_out(self) -> None:
        while True:
            machine = self.follower if self.leader is None else self.leader
            effect: LeaderEffect | FollowerEffect | None = machine.take_effect()
            match effect:
                case None:
                    return
                case Ship():
                    self._ship(effect)
                case Tell() | Say():
                    self._say(effect.to, effect.message)
                case AskIsr():
                    self._ask_isr(effect.change)
                case Advanced():
                    self._advanced(effect)
                case SteppedDown():
                    self._step_down()
                case CutLog():
                    self._cut(effect)
                case StoreFrames():
                    self._store(effect.frames)

    def _ship(self, ship: Ship) -> None:
        assert self.leader is not None
        log = self.leader.partitions[ship.partition]
        entries = tuple(self.disk.logs[ship.partition][ship.first : ship.first + ENTRIES_MAX])
        end = ship.first + len(entries)
        epochs = log.table.epochs_in(ship.first, end)
        epoch, high_watermark = self.leader.placement.epoch, log.high_watermark
        frames = Frames(epoch, ship.partition, ship.first, end, epochs, high_watermark, entries)
        self._say(ship.to, frames)
        self.leader.shipped(ship, end, self.monotonic_ms())

    def _say(self, to: str, message: ToLeader | ToFollower) -> None:
        target = self.group.processes.get(to)
        if target is not None:
            send(self, target, partial(target.told, message))

    def _ask_isr(self, change: IsrChange) -> None:
        coordinator = self.group.coordinator
        call(self, coordinator, partial(coordinator.isr_asked, change), self.placed)

    def _advanced(self, advanced: Advanced) -> None:
        waiting = self.waiting.pop(advanced.partition, [])
        for offset, respond in waiting:
            if offset < advanced.to:
                respond(offset)
            else:
                self.waiting.setdefault(advanced.partition, []).append((offset, respond))

    def _cut(self, cut: CutLog) -> None:
        del self.disk.logs[cut.partition][cut.end :]
        synced = self.disk.synced.get(cut.partition, 0)
        self.disk.synced[cut.partition] = min(synced, cut.end)

    def _store(self, frames: Frames) -> None:
        entries = self.disk.logs[frames.partition]
        assert len(entries) == frames.first, "frames are stored at the end of the log"
        entries.extend(frames.data)
        self.follower.stored(frames.partition, self.disk.synced.get(frames.partition, 0))
