"""`SlotReplica`: one process's replica of a slot: its logs, which it leads or follows.

    replica.placed(placement, now_ms)         # what stands in the registry
    replica.heard(message, now_ms)            # what another replica says
    replica.grown(partition, now_ms)          # it was appended to, or more of it is synced
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
from dataclasses import dataclass

from pxrs_ray.log.replica_log import ReplicaLog
from pxrs_ray.model import PartitionId
from pxrs_ray.replication.epoch_table import EpochTable
from pxrs_ray.replication.leader_effects import (
    Advanced,
    AskIsr,
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
from pxrs_ray.replication.placement import Disk, Placement
from pxrs_ray.replication.slot_follower import (
    CutLog,
    FollowedPartition,
    Say,
    SlotFollower,
    StoreFrames,
)
from pxrs_ray.replication.slot_leader import LedPartition, SlotLeader


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
        logs: Mapping[PartitionId, ReplicaLog],
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
        followed = {partition: self._followed(log) for partition, log in self.logs.items()}
        self._follower = SlotFollower(who, followed, settings.again_ms)

    def _followed(self, log: ReplicaLog) -> FollowedPartition:
        table = EpochTable.of_log(log.epochs())
        return FollowedPartition(log.end_offset, log.durable_offset, table, log.high_watermark)

    # --- who leads --------------------------------------------------------------------------------

    def placed(self, placement: Placement, now_ms: int) -> None:
        """A placement that stands in the registry; an older one than was heard means nothing.

        Raises what the logs raise, as every call here.
        """
        if placement.version < self._version:
            return
        self._version = placement.version
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
        self._carry_out(now_ms)

    def _lead(self, placement: Placement, now_ms: int) -> None:
        self._follower.epoch = placement.epoch
        led = {}
        for partition, log in self.logs.items():
            log.begin_epoch(placement.epoch, self._wall_ms())
            followed = self._follower.partitions[partition]
            ends = log.end_offset, log.durable_offset
            led[partition] = LedPartition(*ends, followed.table, log.high_watermark)
        self.leader = SlotLeader(self.who.disk, placement, led, self._settings, now_ms)

    def _step_down(self) -> None:
        self.leader = None
        for partition, log in self.logs.items():
            self._follower.partitions[partition] = self._followed(log)
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

    def grown(self, partition: PartitionId, now_ms: int) -> None:
        """A log has grown, where this leads; or more of it is synced."""
        log = self.logs[partition]
        if self.leader is not None:
            self.leader.appended(partition, log.end_offset, log.durable_offset, now_ms)
        else:
            self._follower.stored(partition, log.durable_offset)
        self._carry_out(now_ms)

    def heard(self, message: ToLeader | ToFollower, now_ms: int) -> None:
        """Another replica says something."""
        if isinstance(message, Position | Stored):
            if self.leader is not None:
                self.leader.heard(message, now_ms)
        elif self.leader is None:
            self._follower.heard(message, now_ms)
        self._carry_out(now_ms)
        if self.leader is None and not isinstance(message, Position | Stored):
            self._show(message.partition)

    def tick(self, now_ms: int) -> None:
        """Time has passed."""
        if self.leader is not None:
            self.leader.tick(now_ms)
        else:
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
                case Tell() | Say():
                    self._effects.append(ToPeer(effect.to, effect.message))
                case Advanced():
                    self.logs[effect.partition].advance(effect.to)
                    self._effects.append(effect)
                case AskIsr():
                    self._effects.append(effect)
                case SteppedDown():
                    self._step_down()
                case CutLog():
                    self.logs[effect.partition].cut(effect.end, self._wall_ms())
                case StoreFrames():
                    self._store(effect.frames)

    def _ship(self, ship: Ship, now_ms: int) -> None:
        assert self.leader is not None
        led = self.leader.partitions[ship.partition]
        run = self.logs[ship.partition].read_unsettled(ship.first, self._frame_bytes)
        end = run.next_offset
        frames = Frames(
            self.leader.placement.epoch,
            ship.partition,
            ship.first,
            end,
            led.table.epochs_in(ship.first, end),
            led.high_watermark,
            b"".join(run.chunks),
        )
        self._effects.append(ToPeer(ship.to, frames))
        self.leader.shipped(ship, end, now_ms)

    def _store(self, frames: Frames) -> None:
        log = self.logs[frames.partition]
        log.append_replicated(frames.first, frames.data, frames.epochs, self._wall_ms())
        self._follower.stored(frames.partition, log.durable_offset)

    def _show(self, partition: PartitionId) -> None:
        """Let readers of a follower see what its leader says is safe."""
        followed = self._follower.partitions.get(partition)
        if followed is not None:
            self.logs[partition].advance(followed.high_watermark)
