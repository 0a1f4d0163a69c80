"""One process of a replica: the product's `SlotReplica` and its logs, on a simulated disk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pxrs_ray.data.batch import Batch
from pxrs_ray.data.frame import frames_in, producer_id
from pxrs_ray.data.log_limits import Durability
from pxrs_ray.errors import DiskFull, LogError, PxrsError
from pxrs_ray.log.replica_log import ReplicaLog
from pxrs_ray.replication.leader_effects import (
    Advanced,
    AskIsr,
    ReplicationSettings,
    SteppedDown,
)
from pxrs_ray.replication.peer_messages import Follower, LogKey, ToFollower, ToLeader
from pxrs_ray.replication.placement import IsrChange, Placement, ReplicaSeen
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
        disk.lives += 1
        self.life = disk.lives
        self.files = ProcessFiles(disk.files)
        self.who = Follower(disk.name, disk.files.boot_id(), self.life)
        rules = group.rules
        settings = ReplicationSettings(
            rules.min_isr, rules.synced_only, rules.lag_max_ms, again_ms=AGAIN_MS
        )
        try:
            logs = {key: self._opened(key) for key in group.keys}
        except BaseException:
            self.files.end()
            raise
        self.replica = SlotReplica(self.who, logs, settings, FRAMES_BYTES, self._wall_ms)
        self.waiting: dict[LogKey, list[tuple[int, Callable[[int | None], None]]]] = {}
        self.every(TICK_MS, partial(self._do, self._tick))
        self.every(5 if rules.synced_only else 60, partial(self._do, self._sync))

    def _wall_ms(self) -> int:
        return self.now().wall_ms

    def _opened(self, key: LogKey) -> ReplicaLog:
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
            log.confirm(0, self._wall_ms(), make=key not in self.disk.made)
        self.disk.made.add(key)
        return log

    def open_more(self) -> None:
        """Open the logs of queues that were made since."""
        for key in self.group.keys:
            if key not in self.replica.logs:
                log = self._opened(key)
                self.replica.opened(key, log, self.monotonic_ms())

    def _tick(self) -> None:
        self.replica.tick(self.monotonic_ms())
        if self.world.random.random() < 0.1:
            self.open_more()

    @property
    def is_whole(self) -> bool:
        """Whether nothing of its logs is lost or damaged."""
        return self.disk.whole and all(log.state == "open" for log in self.replica.logs.values())

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
        placement: Placement,
        absent: frozenset[str] | None,
        respond: Callable[[ReplicaSeen], None],
    ) -> None:
        """The coordinator says what stands in the registry and who is away, and asks whether we
        live."""
        self.placed(placement)
        if absent is not None:
            self._do(lambda: self.replica.absent(absent, self.monotonic_ms()))
        if self.alive:
            respond(ReplicaSeen(self.life, self.who.boot, self.is_whole))

    def placed(self, placement: Placement) -> None:
        """A placement that stands in the registry."""
        self._do(lambda: self.replica.placed(placement, self.monotonic_ms()))

    # --- what clients ask -------------------------------------------------------------------------

    def append(self, wanted: Wanted, respond: Callable[[int | None], None]) -> None:
        """Append once; answered when it is acknowledged, with its offset, or None: ask again."""
        self._do(partial(self._append, wanted, respond))

    def _append(self, wanted: Wanted, respond: Callable[[int | None], None]) -> None:
        log = self.replica.logs.get(wanted.key)
        if log is None or not self.replica.takes:
            respond(None)
            return
        batch = Batch.of_few([b"k"], [b"%d" % wanted.value], 1)
        frame = batch.to_wire(producer_id(wanted.producer), 0, wanted.sequence)
        try:
            answer = log.append(*frame, self._wall_ms())
        except (LogError, DiskFull):
            raise
        except PxrsError:
            respond(None)  # it skips ahead, of what was cut
            return
        if not answer.repeated:
            self.replica.grown(wanted.key, self.monotonic_ms())
        assert answer.base_offset is not None, "the log remembers more answers than are under way"
        # A repeat may be of what was dropped since: it was acknowledged.
        if log.high_watermark > answer.base_offset:
            respond(answer.base_offset)
        else:
            waiting = self.waiting.setdefault(wanted.key, [])
            waiting.append((answer.base_offset, respond))

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
                        send(self, door, partial(self.group.tell, effect.to, effect.message))
                case AskIsr():
                    self._ask_isr(effect.change)
                case Advanced():
                    self._advanced(effect)
                case SteppedDown():
                    self._step_down()

    def _ask_isr(self, change: IsrChange) -> None:
        coordinator = self.group.coordinator
        call(self, coordinator, partial(coordinator.isr_asked, change), self.placed)

    def _advanced(self, advanced: Advanced) -> None:
        waiting = self.waiting.pop(advanced.key, [])
        for offset, respond in waiting:
            if offset < advanced.to:
                respond(offset)
            else:
                self.waiting.setdefault(advanced.key, []).append((offset, respond))

    def _step_down(self) -> None:
        for waiting in self.waiting.values():
            for _, respond in waiting:
                respond(None)
        self.waiting.clear()


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
