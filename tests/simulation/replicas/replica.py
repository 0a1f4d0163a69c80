"""One process of a replica: the product's `SlotReplica` and its logs, on a simulated disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from pxrs_ray.data.batch import Batch
from pxrs_ray.data.frame import frames_in, producer_id
from pxrs_ray.data.log_limits import Durability
from pxrs_ray.data.protocol import Appended
from pxrs_ray.errors import DiskFull, LeaseOver, LogAway, LogError, NotFound
from pxrs_ray.log.buffer_calls import AppendCall
from pxrs_ray.log.disk_life import DiskLife
from pxrs_ray.log.log_manager import LogManager
from pxrs_ray.log.partition_log import PartitionLog
from pxrs_ray.log.refusals import RefusedAppends
from pxrs_ray.log.replica_log import ReplicaLog
from pxrs_ray.replication.leader_effects import (
    Advanced,
    AskIsr,
    ReplicationSettings,
    SteppedDown,
)
from pxrs_ray.replication.peer_messages import Follower, LogKey, ToFollower, ToLeader
from pxrs_ray.replication.peer_wire import pack_peer
from pxrs_ray.replication.placement import IsrChange, Placement, ReplicaSeen
from pxrs_ray.replication.retirement import Retirement, may_drop_damaged
from pxrs_ray.replication.slot_replica import SlotReplica, ToPeer
from tests.settings import log_limits
from tests.simulation.replicas.kept import (
    AGAIN_MS,
    FRAMES_BYTES,
    TICK_MS,
    Entry,
    ReplicaDisk,
    Wanted,
)
from tests.simulation.simulator.disk import ProcessFiles
from tests.simulation.simulator.world import Process, call, send

if TYPE_CHECKING:
    from tests.simulation.replicas.group import ReplicaGroup

INTERVAL = log_limits(segment_bytes_max=3_000, tail_bytes_max=600, index_interval_bytes=400)
ALWAYS = replace(INTERVAL, durability=Durability.ALWAYS)


class ReplicaProcess(Process):
    """One process of a disk. When a log fails it ends, and another one is started."""

    def __init__(self, group: ReplicaGroup, disk: ReplicaDisk) -> None:
        """Raises what its logs raise when they are opened."""
        super().__init__(group.world, disk.name)
        self.role = disk.name
        self.group = group
        self.disk = disk
        self.files = ProcessFiles(disk.files)
        try:
            life = DiskLife(self.files, Path(f"/{disk.name}/.replica"), lock_wait_ms=0)
        except BaseException:
            self.files.end()
            raise
        self.life = life.number
        self.who = Follower(disk.name, disk.files.boot_id(), self.life)
        rules = group.rules
        settings = ReplicationSettings(
            *(rules.min_isr, rules.synced_only, rules.lag_max_ms),
            again_ms=AGAIN_MS,
            catch_up_bytes_per_s=rules.catch_up_bytes_per_s,
        )
        self.retirement = Retirement()
        # What it has found to be so.
        self.damaged: set[LogKey] = set()
        try:
            found = {key: self._opened(key) for key in group.keys}
            logs = {key: log for key, log in found.items() if log is not None}
        except BaseException:
            self.files.end()
            raise
        self.replica = SlotReplica(self.who, logs, settings, FRAMES_BYTES, self._wall_ms)
        self.waiting: dict[Wanted, tuple[AppendCall, Callable[[int | None], None]]] = {}
        self._counts: Counter[str] = Counter()
        self.every(TICK_MS, partial(self._do, self._tick))
        self.every(5 if rules.synced_only else 60, partial(self._do, self._sync))

    def _wall_ms(self) -> int:
        return self.now().wall_ms

    def _opened(self, key: LogKey, *, make: bool = False) -> ReplicaLog | None:
        """None where it is lost here, and is not to be made anew."""
        queue, partition = key
        log = ReplicaLog.open(
            Path(f"/{self.disk.name}/{queue}/p{partition:05d}"),
            queue,
            partition,
            ALWAYS if self.group.rules.synced_only else INTERVAL,
            now_ms=self._wall_ms(),
            files=self.files,
            boot=self.files.boot_id(),
            lock_wait_ms=0,
        )
        if log.state == "waiting":
            if log.is_absent and key in self.disk.made and not make:
                self.disk.emptied.add(key)
                log.abandon()
                return None
            log.confirm(0, self._wall_ms(), make=make or key not in self.disk.made)
        self.disk.made.add(key)
        self.disk.emptied.discard(key)
        return log

    def open_more(self) -> None:
        """Open the logs of queues that were made since."""
        for key in self.group.keys:
            if key not in self.replica.logs:
                self._open(key)

    def _open(self, key: LogKey, *, make: bool = False) -> None:
        log = self._opened(key, make=make)
        if log is not None:
            self.replica.opened(key, log, self.monotonic_ms())

    def _tick(self) -> None:
        self.replica.tick(self.monotonic_ms())
        if self.world.random.random() < 0.1:
            self.damaged |= self.disk.rotten & self.replica.logs.keys()
            self.open_more()
            for key in [key for key in self.replica.logs if key not in self.group.keys]:
                log = self.replica.logs[key]
                self.replica.closed(key)
                log.abandon()

    @property
    def is_whole(self) -> bool:
        """Whether nothing of its logs is lost or damaged."""
        lacks = (self.disk.emptied | self.damaged).intersection(self.group.keys)
        return (
            self.disk.whole
            and not lacks
            and all(log.state == "open" for log in self.replica.logs.values())
        )

    def crash(self) -> None:
        super().crash()
        self.files.end()

    def _do(self, action: Callable[[], None]) -> None:
        """What may fail for its disk: then it ends."""
        if not self.alive:
            return
        try:
            action()
            self._carry_out()
        except (LogError, DiskFull, OSError):
            self.group.failed(self)

    # --- who leads --------------------------------------------------------------------------------

    def pinged(
        self,
        generation: int,
        asked_ms: int,
        placement: Placement,
        absent: frozenset[str] | None,
        min_isr: int,
        respond: Callable[[ReplicaSeen], None],
    ) -> None:
        """The coordinator says what stands in the registry and who is away, and asks whether we
        live."""
        self.retirement.looked_at(generation, asked_ms)
        self.placed(placement)
        catch_up = self.group.rules.catch_up_bytes_per_s
        self._do(lambda: self.replica.needs(min_isr, catch_up, self.monotonic_ms()))
        self._do(partial(self._make_anew, placement))
        if absent is not None:
            self._do(lambda: self.replica.absent(absent, self.monotonic_ms()))
        known = self.replica_version <= placement.version
        if self.damaged and known and may_drop_damaged(self.disk.name, placement, absent):
            self.group.dropped(self)
        if self.alive:
            respond(ReplicaSeen(self.life, self.who.boot, self.is_whole))

    @property
    def replica_version(self) -> int:
        """The newest placement that it has heard of."""
        return self.replica._version

    def _make_anew(self, placement: Placement) -> None:
        """What is lost here is made anew once this replica counts as in sync no longer."""
        if placement.in_sync(self.disk.name) is None:
            for key in self.disk.emptied.intersection(self.group.keys):
                if key not in self.replica.logs:
                    self._open(key, make=True)

    def retire(self, generation: int, asked_ms: int) -> None:
        """This disk has no replica of the slot any more."""
        if self.retirement.may_go(generation, asked_ms):
            self.group.retired(self)

    def placed(self, placement: Placement) -> None:
        """A placement that stands in the registry."""
        self._do(lambda: self.replica.placed(placement, self.monotonic_ms()))

    # --- what clients ask -------------------------------------------------------------------------

    def append(self, wanted: Wanted, respond: Callable[[int | None], None]) -> None:
        """Append once; answered when it is acknowledged, with its offset, or None: ask again."""
        self._do(partial(self._append, wanted, respond))

    def _append(self, wanted: Wanted, respond: Callable[[int | None], None]) -> None:
        batch = Batch.of_few([b"k"], [b"%d" % wanted.value], 1)
        frame = batch.to_wire(producer_id(wanted.producer), 0, wanted.sequence)
        queue, partition = wanted.key
        door = cast(LogManager, Door(self.replica.logs))
        call = AppendCall(door, self._counts, _over, queue, [(partition, *frame)])
        self._try(wanted, call, respond)

    def _try(self, wanted: Wanted, call: AppendCall, respond: Callable[[int | None], None]) -> None:
        """A round of an append; what is not on all in sync yet has another one later."""
        if call.begin(self.replica.takes, self._term):
            ends = {log: log.end_offset for log in call.logs.values()}
            call.run(self._wall_ms())
            for log, end in ends.items():
                if log.state == "failed":
                    raise LogAway("a log failed")
                if log.end_offset > end:
                    self.replica.grown(wanted.key, self.monotonic_ms())
            call.end({}, self.replica.takes, self._term)
        found = call.answer(final=not self.replica.takes)
        if found is None:
            self.waiting[wanted] = call, respond
        else:
            [answer] = found
            respond(answer.base_offset if isinstance(answer, Appended) else None)

    @property
    def _term(self) -> int:
        return self.replica.leader.placement.epoch if self.replica.leader is not None else 0

    def _try_again(self, keys: Collection[LogKey]) -> None:
        for wanted in [wanted for wanted in self.waiting if wanted.key in keys]:
            self._try(wanted, *self.waiting.pop(wanted))

    def read(
        self, key: LogKey, back: int, respond: Callable[[list[tuple[int, int]]], None]
    ) -> None:
        """What may be read, at whoever leads or follows, from so far back on: offsets, values."""

        def read() -> None:
            log = self.replica.logs.get(key)
            if log is None:
                return
            run = log.read(max(log.start_offset, log.visible_end - back))
            respond([(e.offset, e.value) for chunk in run.chunks for e in entries_in(chunk)])

        self._do(read)

    def drop(self, key: LogKey, before: int) -> None:
        """Retention lets go of all but so much of what may be read, where this leads."""
        self._do(partial(self._drop, key, before))

    def _drop(self, key: LogKey, left: int) -> None:
        log = self.replica.logs.get(key)
        if self.replica.leader is not None and log is not None:
            start = log.visible_end - left
            if start > log.start_offset:
                log.truncate_before(start, self._wall_ms(), force=True)
                self.replica.grown(key, self.monotonic_ms())

    def entries(self, key: LogKey) -> list[Entry]:
        """All that a log has."""
        log = self.replica.logs[key]
        found, at = [], log.start_offset
        while (run := log.read_unsettled(at, 1 << 20)).next_offset > at:
            at = run.next_offset
            found += [entry for chunk in run.chunks for entry in entries_in(chunk)]
        return found

    # --- replication ------------------------------------------------------------------------------

    def told(self, message: ToLeader | ToFollower) -> None:
        """Another replica says something."""
        self._do(lambda: self.replica.heard(message, self.monotonic_ms()))

    def _sync(self) -> None:
        for key, log in self.replica.logs.items():
            if log.dirty:
                log.sync()
                self.replica.grown(key, self.monotonic_ms())

    def _carry_out(self) -> None:
        while (effect := self.replica.take_effect()) is not None:
            match effect:
                case ToPeer():
                    # By its disk: what comes late finds the process that lives then.
                    door = self.group.doors.get(effect.to)
                    if door is not None:
                        data = pack_peer(effect.to, effect.message)
                        send(self, door, partial(self.group.tell, data))
                case AskIsr():
                    self._ask_isr(effect.change)
                case Advanced():
                    self._try_again([effect.key])
                case SteppedDown():
                    self._try_again(self.group.keys)

    def _ask_isr(self, change: IsrChange) -> None:
        coordinator = self.group.coordinator
        call(self, coordinator, partial(coordinator.isr_asked, change), self.placed)


class Door:
    """The logs of a process, as those find them who append."""

    def __init__(self, logs: Mapping[LogKey, PartitionLog]) -> None:
        self._logs = logs
        self.producers = self
        self.refused_appends = RefusedAppends()

    def log(self, queue: str, partition: int) -> PartitionLog:
        """Raises NotFound."""
        if (queue, partition) not in self._logs:
            raise NotFound("no such log here")
        return self._logs[queue, partition]

    def check(self, queue: str, header: bytes) -> None:
        """Nobody is fenced."""


def _over() -> LeaseOver:
    return LeaseOver("it does not lead")


def entries_in(chunk: object) -> list[Entry]:
    """The messages of a run of frames, of one each."""
    return [
        Entry(
            header.base_offset,
            header.producer_id,
            header.sequence,
            int(next(iter(Batch.from_frame(-1, header, body))).payload),
        )
        for header, body in frames_in(chunk)
    ]
