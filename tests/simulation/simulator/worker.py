"""The work of one simulated consumer: a worker a partition, and handlers that take their time.

Rules of this file. One worker a partition handles one message at a time, or one a key where keys
are worked in parallel. It asks before each whether the lease lasts; when it does not, it waits for
the next answer. It decides nothing of the group: the machine says what is begun, drained, dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pxrs_ray.config import GroupConfig
from pxrs_ray.config.scheduling import lane_rules
from pxrs_ray.consumer.session import ConsumerSession
from pxrs_ray.model import Epoch, Grant, Offset, PartitionId, Progress
from pxrs_ray.processing.key_ordered import KeyLanes
from pxrs_ray.processing.scheduler import Item, Task
from tests.simulation.history import Begun, Processed
from tests.simulation.simulator.frames import Line
from tests.simulation.simulator.world import Process

# Messages that wait for one worker: no more are fetched for it then.
QUEUED_MAX = 12
LANES = lane_rules(GroupConfig(queue="q", attempts_max=0, backoff_ms=5, backoff_ms_max=50))


@dataclass(slots=True)
class Worker:
    """Handles the messages of one partition under one epoch, for one incarnation."""

    partition: PartitionId
    epoch: Epoch
    session: ConsumerSession
    at: Progress
    lines: deque[Line] = field(default_factory=deque)
    busy: int = 0
    stopping: bool = False
    scheduler: KeyLanes | None = None

    def progress(self) -> Progress:
        """How far it is."""
        return self.at if self.scheduler is None else self.scheduler.progress()


class Work:
    """The workers of one process. `may_begin` is the lease's gate; `stopped` hears of each end,
    `done` of each message, `room` when more can be taken, `moved` of whatever may be committed."""

    def __init__(
        self,
        process: Process,
        may_begin: Callable[[], bool],
        stopped: Callable[[Worker], None],
        done: Callable[[Worker], None],
        room: Callable[[], None],
        moved: Callable[[], None],
    ) -> None:
        self.hang_ms = 0
        self._process = process
        self._world = process.world
        self._may_begin = may_begin
        self._stopped = stopped
        self._done = done
        self._room = room
        self._moved = moved
        # Whether any progress may have changed; who looks at it takes this back.
        self.changed = True
        self._workers: dict[PartitionId, Worker] = {}
        # Whether somebody waits for the lease.
        self._waits = False

    # --- what the session asks --------------------------------------------------------------------

    def progress(self, partition: PartitionId, epoch: Epoch) -> Progress | None:
        """How far the work is."""
        worker = self._workers.get(partition)
        return worker.progress() if worker is not None and worker.epoch == epoch else None

    def queued_bytes(self, partition: PartitionId) -> int:
        """What waits for the handler; a message here is one byte."""
        worker = self._workers.get(partition)
        return len(worker.lines) if worker is not None else 0

    # --- what the machine says --------------------------------------------------------------------

    def begin(self, session: ConsumerSession, grant: Grant) -> None:
        """Put a worker on the partition."""
        progress = grant.progress
        scheduler = KeyLanes(progress, LANES) if self._world.scenario.lanes else None
        self._workers[grant.partition] = Worker(
            grant.partition, grant.epoch, session, progress, scheduler=scheduler
        )
        self._change()

    def take_in(self, partition: PartitionId, epoch: Epoch, batch: Any, size_bytes: int) -> None:
        """Messages came."""
        self._take_in(partition, epoch, batch.lines)

    def _take_in(self, partition: PartitionId, epoch: Epoch, lines: list[Line]) -> None:
        worker = self._workers.get(partition)
        if worker is not None and worker.epoch == epoch:
            worker.lines.extend(lines)
            self._go_on(worker)

    def skip(self, partition: PartitionId, epoch: Epoch, to: Offset) -> None:
        """The log has nothing before `to` any more; behind what came before, in its order."""
        self._take_in(partition, epoch, [Line(to, b"", "")])

    def drain(self, partition: PartitionId) -> None:
        """Stop after what is in hand."""
        worker = self._workers.get(partition)
        if worker is not None:
            worker.stopping = True
            self._go_on(worker)

    def drop(self, partition: PartitionId) -> None:
        """It is lost; what is in hand is finished, and counts for nothing."""
        self._workers.pop(partition, None)

    def leave(self, then: Callable[[], None]) -> None:
        """Nothing has to be done before it leaves."""
        then()

    def round_over(self) -> None:
        """Nobody here waits for a round of commits."""

    def leased(self) -> None:
        """The lease was renewed: whoever waited for that goes on."""
        if self._waits and self._may_begin():
            self._waits = False
            self.go_on()

    def go_on(self) -> None:
        """Begin what may begin."""
        for worker in list(self._workers.values()):
            self._go_on(worker)

    # --- work -------------------------------------------------------------------------------------

    def _go_on(self, worker: Worker) -> None:
        if self._workers.get(worker.partition) is not worker:
            return
        if worker.stopping:
            if not worker.busy:
                self._stopped(worker)
                if self._workers.get(worker.partition) is worker:
                    del self._workers[worker.partition]
        elif worker.lines or worker.scheduler is not None:
            self._begin_next(worker)

    def _begin_next(self, worker: Worker) -> None:
        if not self._may_begin():
            self._waits = True
        elif worker.scheduler is not None:
            self._work_lanes(worker, worker.scheduler)
        elif not worker.busy:
            line = worker.lines.popleft()
            if not line.message:
                worker.at = Progress(line.offset)
                self._tell_room(worker, len(worker.lines) + 1)
                self._over(worker, failed=False)
                return
            worker.busy = 1
            self._begun(worker, line)
            self._process.after(self._takes_ms(), partial(self._handled, worker, line))
            self._tell_room(worker, len(worker.lines) + 1)

    def _tell_room(self, worker: Worker, before: int) -> None:
        """Say so when there is room for more, and was none."""
        if before >= QUEUED_MAX > len(worker.lines):
            self._room()

    def _takes_ms(self) -> int:
        takes_ms = 1 + int(self._world.random.random() * 12)
        if self._world.chance(0.01):
            takes_ms = self._world.random.randint(50, 1_000)
        if self.hang_ms:
            takes_ms, self.hang_ms = self.hang_ms, 0
        return takes_ms

    def _work_lanes(self, worker: Worker, scheduler: KeyLanes) -> None:
        """Begin what may begin beside each other: one message a key."""
        before = len(worker.lines)
        while worker.lines and scheduler.has_room():
            line = worker.lines.popleft()
            if not line.message:
                scheduler.skip(line.offset)
                self._change()
                continue
            scheduler.offer([Item(line.offset, line.key, message=line, size_bytes=1)])
        self._tell_room(worker, before)
        now_ms = self._world.now_ms
        for task in scheduler.take(now_ms, self._world.scenario.lanes - worker.busy):
            worker.busy += 1
            self._begun(worker, task.item.message)
            done = partial(self._handled_in_lane, worker, scheduler, task)
            self._process.after(self._takes_ms(), done)
        due_ms = scheduler.due_ms()
        if due_ms is not None:
            self._process.after(max(1, due_ms - now_ms), partial(self._go_on, worker))

    def _handled_in_lane(self, worker: Worker, scheduler: KeyLanes, task: Task) -> None:
        worker.busy -= 1
        failed = self._world.chance(0.03)
        if not failed:
            self._processed(worker, task.item.message)
        scheduler.ended(task, "failed" if failed else None, self._world.now_ms)
        self._over(worker, failed)

    def _handled(self, worker: Worker, line: Line) -> None:
        """The handler is done: its side effects have happened, whoever owns the partition now."""
        worker.busy = 0
        failed = self._world.chance(0.03)
        if failed:
            worker.lines.appendleft(line)
            worker.at = Progress(line.offset, worker.at.attempts + 1)
        else:
            self._processed(worker, line)
            worker.at = Progress(line.offset + 1)
        self._over(worker, failed)

    def _change(self) -> None:
        if not self.changed:
            self.changed = True
            self._moved()

    def _over(self, worker: Worker, failed: bool) -> None:
        self._change()
        if not failed and self._workers.get(worker.partition) is worker:
            self._done(worker)
        self._go_on(worker)

    def _begun(self, worker: Worker, line: Line) -> None:
        session = worker.session
        self._world.record(
            Begun(
                self._world.now_ms,
                worker.partition,
                worker.epoch,
                session.member,
                session.incarnation,
                line.offset,
            )
        )

    def _processed(self, worker: Worker, line: Line) -> None:
        session = worker.session
        self._world.record(
            Processed(
                self._world.now_ms,
                worker.partition,
                worker.epoch,
                session.member,
                session.incarnation,
                line.offset,
                line.key,
                line.message,
            )
        )
