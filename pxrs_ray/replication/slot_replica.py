"""`SlotReplica`: one process's replica of a slot: its logs, which it leads or follows.

    replica.placed(placement, now_ms)         # what stands in the registry
    replica.heard(message, now_ms)            # what another replica says
    replica.grown(key, now_ms)                # it was appended to, more is synced, or some dropped
    while (effect := replica.take_effect()) is not None: ...

Rules of this file. The machines of leader and follower decide; what they want done to a log is done
here, in the order in which they want it, and what they want said is handed on. So its calls read
and write files: who runs it calls them where that may be done, one at a time. What a log raises
goes on to the caller, and then this replica is over: another life of it finds out anew how far its
logs are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.log.replica_log import ReplicaLog
from pxrs_ray.replication.epoch_table import EpochTable
from pxrs_ray.replication.leader_effects import (
    Advanced,
    AskIsr,
    HaveBegin,
    ReplicationSettings,
    Ship,
    SteppedDown,
    Tell,
)
from pxrs_ray.replication.led_log import LedLog
from pxrs_ray.replication.peer_messages import (
    BeginAt,
    Follower,
    Frames,
    LogKey,
    Position,
    Stored,
    ToFollower,
    ToLeader,
)
from pxrs_ray.replication.placement import Disk, Placement
from pxrs_ray.replication.slot_follower import (
    BeginLog,
    CutLog,
    FollowedLog,
    Say,
    SlotFollower,
    StoreFrames,
)
from pxrs_ray.replication.slot_leader import SlotLeader


@dataclass(frozen=True, slots=True)
class ToPeer:
    """Say this to another replica. It may be late, lost or doubled."""

    to: Disk
    message: ToLeader | ToFollower


ReplicaEffect = ToPeer | AskIsr | Advanced | SteppedDown


class SlotReplica:
    """See the rules at the head of this file. It follows nobody, and leads nothing, at first.

    `frame_bytes`: so many bytes of frames go in one message, or one frame. `wall_ms` is the time
    that logs are told.
    """

    def __init__(
        self,
        who: Follower,
        logs: Mapping[LogKey, ReplicaLog],
        settings: ReplicationSettings,
        frame_bytes: int,
        wall_ms: Callable[[], int],
    ) -> None:
        self.who = who
        self.logs = dict(logs)
        self.leader: SlotLeader | None = None
        self._settings = settings
        self._frame_bytes = frame_bytes
        self._wall_ms = wall_ms
        self._version = 0
        self._effects: deque[ReplicaEffect] = deque()
        followed = {key: self._followed(log) for key, log in self.logs.items()}
        self._follower = SlotFollower(who, followed, settings.again_ms)

    def _followed(self, log: ReplicaLog) -> FollowedLog:
        table = EpochTable.of_log(log.epochs())
        first, ends = log.first_offset, (log.end_offset, log.durable_offset)
        return FollowedLog(*ends, table, log.high_watermark, first)

    # --- who leads --------------------------------------------------------------------------------

    def placed(self, placement: Placement, now_ms: int) -> None:
        """A placement that stands in the registry; an older one than was heard means nothing.

        Raises what the logs raise, as every call here.
        """
        if placement.version < self._version:
            return
        is_newer, self._version = placement.version > self._version, placement.version
        if self.leader is not None:
            self.leader.placed(placement, now_ms)
            self._carry_out(now_ms)
        if self.leader is not None:
            return
        if (placement.leader, placement.life) == (self.who.disk, self.who.life):
            # One life leads under one epoch, once.
            if placement.epoch > self._follower.epoch:
                self._lead(placement, now_ms)
        elif placement.leader != self.who.disk:
            self._follower.follow(placement.epoch, placement.leader, now_ms)
            if is_newer and placement.in_sync(self.who.disk) is None:
                # It may have been let go of and placed again since: then its leader has forgotten
                # that the logs agree.
                self._follower.ask_anew(now_ms)
        self._carry_out(now_ms)

    def _lead(self, placement: Placement, now_ms: int) -> None:
        self._follower.epoch = placement.epoch
        led = {key: self._led(key, placement) for key in self.logs}
        self.leader = SlotLeader(self.who.disk, placement, led, self._settings, now_ms)

    def _led(self, key: LogKey, placement: Placement) -> LedLog:
        log = self.logs[key]
        log.begin_epoch(placement.epoch, self._wall_ms())
        ends = log.end_offset, log.durable_offset
        return LedLog(*ends, self._follower.logs[key].table, log.high_watermark)

    def needs(self, min_isr: int, catch_up_bytes_per_s: int, now_ms: int) -> None:
        """From now on, whoever leads, so many replicas must be in sync, and those that are not are
        sent so much at the most."""
        before = self._settings
        self._settings = replace(before, min_isr=min_isr, catch_up_bytes_per_s=catch_up_bytes_per_s)
        if self.leader is not None and self._settings != before:
            self.leader.needs(min_isr, catch_up_bytes_per_s)
            self._carry_out(now_ms)

    def opened(self, key: LogKey, log: ReplicaLog, now_ms: int) -> None:
        """The slot has one more log."""
        self.logs[key] = log
        self._follower.opened(key, self._followed(log), now_ms)
        if self.leader is not None:
            self.leader.opened(key, self._led(key, self.leader.placement), now_ms)
        self._carry_out(now_ms)

    def closed(self, key: LogKey) -> None:
        """A queue was removed, and with it this log. Nothing that is said of it is heard."""
        self.logs.pop(key, None)
        self._follower.closed(key)
        if self.leader is not None:
            self.leader.closed(key)

    def _step_down(self) -> None:
        self.leader = None
        for key, log in self.logs.items():
            self._follower.logs[key] = self._followed(log)
        self._effects.append(SteppedDown())

    def absent(self, disks: Collection[Disk], now_ms: int) -> None:
        """The coordinator sees no process of these, and one of all others."""
        if self.leader is not None:
            self.leader.absent(disks, now_ms)
            self._carry_out(now_ms)

    @property
    def takes(self) -> bool:
        """Whether an append may begin here now."""
        return self.leader is not None and self.leader.takes

    # --- what happens -----------------------------------------------------------------------------

    def grown(self, key: LogKey, now_ms: int) -> None:
        """A log has grown, or was shortened, where this leads; or more of it is synced."""
        log = self.logs[key]
        if self.leader is not None:
            self.leader.shortened(key, log.first_offset, log.start_offset)
            self.leader.appended(key, log.end_offset, log.durable_offset, now_ms)
        else:
            self._follower.stored(key, log.durable_offset)
        self._carry_out(now_ms)

    def heard(self, message: ToLeader | ToFollower, now_ms: int) -> None:
        """Another replica says something."""
        if isinstance(message, Position | Stored):
            if self.leader is not None and message.key in self.logs:
                log = self.logs[message.key]
                self.leader.shortened(message.key, log.first_offset, log.start_offset)
                self.leader.heard(message, now_ms)
        elif self.leader is None:
            self._follower.heard(message, now_ms)
        self._carry_out(now_ms)
        if self.leader is None and not isinstance(message, Position | Stored):
            self._show(message.key)

    def tick(self, now_ms: int) -> None:
        """Time has passed."""
        if self.leader is not None:
            self.leader.tick(now_ms)
        else:
            for key, log in self.logs.items():
                # Who drops, or begins an epoch, syncs what there is.
                if log.durable_offset > self._follower.logs[key].synced:
                    self._follower.stored(key, log.durable_offset)
            self._follower.tick(now_ms)
        self._carry_out(now_ms)

    def take_effect(self) -> ReplicaEffect | None:
        """What is to be done outside of here next; None when that is nothing."""
        return self._effects.popleft() if self._effects else None

    # --- what is wanted of the logs ---------------------------------------------------------------

    def _carry_out(self, now_ms: int) -> None:
        while True:
            machine = self._follower if self.leader is None else self.leader
            effect = machine.take_effect()
            match effect:
                case None:
                    return
                case Ship():
                    self._ship(effect, now_ms)
                case HaveBegin():
                    self._have_begin(effect)
                case Tell() | Say():
                    self._effects.append(ToPeer(effect.to, effect.message))
                case Advanced():
                    self.logs[effect.key].advance(effect.to)
                    self._effects.append(effect)
                case AskIsr():
                    self._effects.append(effect)
                case SteppedDown():
                    self._step_down()
                case CutLog():
                    self.logs[effect.key].cut(effect.end, self._wall_ms())
                case BeginLog():
                    log = self.logs[effect.key]
                    log.begin_at(effect.at, effect.producers, self._wall_ms())
                case StoreFrames():
                    self._store(effect.frames)

    def _ship(self, ship: Ship, now_ms: int) -> None:
        assert self.leader is not None
        led, log = self.leader.logs[ship.key], self.logs[ship.key]
        self.leader.shortened(ship.key, log.first_offset, log.start_offset)
        if ship.first < led.first:
            self.leader.leave_behind(ship.to, ship.key, now_ms)
            return
        run = log.read_unsettled(ship.first, self._frame_bytes)
        end = run.next_offset
        frames = Frames(
            self.leader.placement.epoch,
            ship.key,
            ship.first,
            end,
            led.table.epochs_in(ship.first, end),
            led.high_watermark,
            led.start,
            b"".join(run.chunks),
        )
        self._effects.append(ToPeer(ship.to, frames))
        self.leader.shipped(ship, end, now_ms, len(frames.data))

    def _have_begin(self, wanted: HaveBegin) -> None:
        assert self.leader is not None
        at, producers = self.logs[wanted.key].beginning()
        epoch, life = self.leader.placement.epoch, wanted.life
        told = BeginAt(epoch, wanted.key, life, wanted.number, at, producers)
        self._effects.append(ToPeer(wanted.to, told))

    def _store(self, frames: Frames) -> None:
        log = self.logs[frames.key]
        log.append_replicated(frames.first, frames.data, frames.epochs, self._wall_ms())
        self._follower.stored(frames.key, log.durable_offset)

    def _show(self, key: LogKey) -> None:
        """Let readers of a follower see what its leader says is safe, and drop what it dropped."""
        followed = self._follower.logs.get(key)
        if followed is not None:
            log = self.logs[key]
            log.advance(followed.high_watermark)
            if log.follow_start(followed.start, self._wall_ms()):
                followed.first = log.first_offset
                followed.table.forget_before(followed.first)
