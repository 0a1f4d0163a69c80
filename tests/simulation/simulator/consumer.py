"""One consumer process: the real `ConsumerSession` in the shell that the Ray actor is.

Rules of this file, the same as the real shell's. Heartbeats, which wait for assignments, go on
while handlers run; one worker a partition handles one message at a time; what was handled is
committed by interval; a partition that drains is released when its worker has stopped. When its
lease is over, by its own clock, nothing is begun, read or committed until it is answered again. A
process that is told it is no member drops everything and joins again as a new incarnation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from pxrs_ray.config import GroupConfig
from pxrs_ray.config.scheduling import lane_rules
from pxrs_ray.consumer.session import ConsumerSession, SessionChanges
from pxrs_ray.errors import CoordinatorDeposed, Fenced, PxrsError
from pxrs_ray.group.events import (
    Assignment,
    Commit,
    Event,
    Heartbeat,
    Join,
    Leave,
    Prepared,
    Release,
    Reply,
)
from pxrs_ray.group.member_lease import MemberLease
from pxrs_ray.model import Epoch, Grant, Member, PartitionId
from pxrs_ray.processing.key_ordered import KeyLanes
from pxrs_ray.processing.scheduler import Item, Standing, Task
from tests.simulation.history import Begun, Failed, Obeyed, Processed
from tests.simulation.simulator.coordinator import Respond
from tests.simulation.simulator.log import WAIT_MS, Line, Served
from tests.simulation.simulator.worker import Worker
from tests.simulation.simulator.world import Action, Process, call

if TYPE_CHECKING:
    from tests.simulation.simulator.cluster import Cluster

BUFFERED_MAX = 12
LANES = lane_rules(GroupConfig(queue="q", attempts_max=0, backoff_ms=5, backoff_ms_max=50))
ANSWER_MS = 150
IDLE_MS = 60


class ConsumerProcess(Process):
    """A process that works for one member, as one incarnation after another."""

    role = "consumer"

    def __init__(self, cluster: Cluster, member: Member) -> None:
        super().__init__(cluster.world, member.member)
        self.cluster = cluster
        self.member = member
        self.coordinator = cluster.find_coordinator()
        self.session: ConsumerSession
        self.workers: dict[PartitionId, Worker]
        self.joined = False
        self.leaving = False
        self.hang_ms = 0
        self._releasing = False
        self._begin_anew()
        scenario = self.world.scenario
        self.repeat(self._heartbeat, scenario.lease_ms // 2, 1)
        self.every(scenario.commit_interval_ms, self._commit)
        self.repeat(self._fetch, 2 * WAIT_MS, 5)

    # --- membership -----------------------------------------------------------------------------

    def leave(self) -> None:
        """Hand everything back and end."""
        self.leaving = True
        session = self.session
        if session.leaving:
            return
        if self.joined:
            self._ask(Leave(self.name, session.incarnation), lambda _: None)
        # Until it is told that it leaves: the word may be lost.
        self.after(ANSWER_MS, self.leave)

    def _begin_anew(self) -> None:
        incarnation = self.cluster.next_incarnation(self.name)
        self.member = replace(self.member, incarnation=incarnation)
        self.session = ConsumerSession(self.name, incarnation, self)
        self.workers = {}
        self.joined = False
        self.lease = MemberLease(self.world.scenario.lease_ms / 1_000)

    def _is_over(self) -> bool:
        return self.lease.is_over(self.now().monotonic_ms / 1_000)

    def _heard(self, lease_ms: int, sent_ms: int) -> None:
        """What left at `sent_ms` was answered, and obeyed; what waited for that goes on."""
        was_over = self._is_over()
        self.lease.answered(sent_ms / 1_000, lease_ms / 1_000)
        if was_over and not self._is_over():
            for worker in list(self.workers.values()):
                self._work(worker)
            self._release()

    def _heartbeat(self, done: Action) -> None:
        """Join, or renew the lease with one request that is answered when there is news for us."""
        session, coordinator = self.session, self.coordinator
        sent_ms = self.now().monotonic_ms
        event: Heartbeat | Join = Join((self.member,))
        if self.joined:
            event = Heartbeat(self.name, session.incarnation, session.seen)
        answered = False

        def ask(respond: Respond) -> None:
            if isinstance(event, Heartbeat):
                coordinator.heartbeat(event, wait_ms, respond)
            else:
                coordinator.receive(event, respond)

        def known(answer: Reply | PxrsError) -> None:
            nonlocal answered
            answered = True
            if session is self.session:
                if isinstance(answer, Reply):
                    self.joined = True
                    self._obey(answer.assignment)
                    if isinstance(event, Heartbeat):
                        self._heard(answer.lease_ms, sent_ms)
                else:
                    self._refused(answer)
            done()

        def give_up() -> None:
            if not answered:
                self.coordinator = self.cluster.find_coordinator()

        wait_ms = int(self.lease.wait_s(sent_ms / 1_000) * 1_000)
        call(self, coordinator, ask, known)
        self.after(self.world.scenario.lease_ms // 2 - 1, give_up)

    def _refused(self, error: PxrsError) -> None:
        """We are no member any more, or never became one; or we asked one that leads no more."""
        if isinstance(error, CoordinatorDeposed):
            self.coordinator = self.cluster.newest_coordinator()
            return
        if not isinstance(error, Fenced):
            self.world.record(Failed(self.world.now_ms, f"{self.name} was refused", repr(error)))
            return
        self.session.drop_all()
        if self.leaving or (self.cluster.is_replaced(self) and self.world.chance(0.5)):
            self.crash()
        else:
            self._begin_anew()

    def _obey(self, assignment: Assignment | None) -> None:
        session = self.session
        if assignment is None:
            return
        seen = session.seen
        changes = session.assign(assignment)
        if session.seen == seen and changes == SessionChanges():
            return
        self.world.record(Obeyed(self.world.now_ms, assignment))
        self._drop(changes)
        for grant in changes.preparing:
            self._prepare(session, grant.partition)
        for grant in changes.started:
            self.workers[grant.partition] = self._worker(grant)
        for partition in changes.draining:
            worker = self.workers.get(partition)
            if worker is not None:
                worker.stopping = True
                if not worker.busy:
                    session.stopped(partition, worker.epoch)
        for worker in list(self.workers.values()):
            self._work(worker)
        self._release()

    def _worker(self, grant: Grant) -> Worker:
        standing = Standing(grant.checkpoint, grant.attempts, grant.detail)
        course = KeyLanes(standing, LANES) if self.world.scenario.lanes else None
        return Worker(grant.partition, grant.epoch, standing, course=course)

    def _prepare(self, session: ConsumerSession, partition: PartitionId) -> None:
        """Load for a while, and say so: once only, for a lost word is what the deadline is for."""

        def ready() -> None:
            if session is self.session and partition in session.preparing:
                event = Prepared(self.name, session.incarnation, (partition,))
                self._ask(event, lambda _: None)

        self.after(self.world.random.choice((5, 100, 900)), ready)

    def _drop(self, changes: SessionChanges) -> None:
        for partition in changes.dropped:
            self.workers.pop(partition, None)

    # --- messages -------------------------------------------------------------------------------

    def _fetch(self, done: Action) -> None:
        session, log = self.session, self.cluster.log
        positions = {} if self._is_over() else session.to_fetch(BUFFERED_MAX)
        if not positions:
            self.after(IDLE_MS, done)
            return

        def known(served: Served) -> None:
            if session is self.session and not self._is_over():
                for partition, (epoch, lines) in served.items():
                    self._take_in(partition, epoch, lines)
            done()

        call(
            self,
            log,
            lambda respond: log.fetch(self.name, session.incarnation, positions, respond),
            known,
        )

    def progress(self, partition: PartitionId, epoch: Epoch) -> Standing | None:
        """How far the work is: what the session asks."""
        worker = self.workers.get(partition)
        return worker.standing() if worker is not None and worker.epoch == epoch else None

    def queued_bytes(self, partition: PartitionId) -> int:
        """What waits for the handler; a message here is one byte."""
        worker = self.workers.get(partition)
        return len(worker.lines) if worker is not None else 0

    def _take_in(self, partition: PartitionId, epoch: Epoch, lines: list[Line]) -> None:
        if self.session.fetched(partition, epoch, lines[0].offset, len(lines)):
            worker = self.workers[partition]
            worker.lines.extend(lines)
            self._work(worker)

    def _work(self, worker: Worker) -> None:
        if self._is_over():
            return
        if worker.course is not None:
            self._work_lanes(worker, worker.course)
            return
        if worker.busy or worker.stopping or not worker.lines or self.session.paused:
            return
        worker.busy = 1
        line, session = worker.lines.popleft(), self.session
        self._begun(session, worker, line)
        self.after(self._takes_ms(), lambda: self._handled(session, worker, line))

    def _takes_ms(self) -> int:
        takes_ms = self.world.random.randint(1, 12)
        if self.world.chance(0.01):
            takes_ms = self.world.random.randint(50, 1_000)
        if self.hang_ms:
            takes_ms, self.hang_ms = self.hang_ms, 0
        return takes_ms

    def _work_lanes(self, worker: Worker, course: KeyLanes) -> None:
        """Begin what may begin beside each other: one message a key."""
        if (
            worker.stopping
            or self.session.paused
            or self.workers.get(worker.partition) is not worker
        ):
            return
        while worker.lines and course.has_room():
            line = worker.lines.popleft()
            course.offer([Item(line.offset, line.key, message=line, size_bytes=1)])
        now_ms, session = self.world.now_ms, self.session
        for task in course.take(now_ms, self.world.scenario.lanes - worker.busy):
            worker.busy += 1
            self._begun(session, worker, task.item.message)
            done = partial(self._handled_in_lane, session, worker, course, task)
            self.after(self._takes_ms(), done)
        due_ms = course.due_ms()
        if due_ms is not None:
            self.after(max(1, due_ms - now_ms), lambda: self._work(worker))

    def _handled_in_lane(
        self, session: ConsumerSession, worker: Worker, course: KeyLanes, task: Task
    ) -> None:
        worker.busy -= 1
        line = task.item.message
        failed = self.world.chance(0.03)
        if not failed:
            self._record(session, worker, line)
        course.ended(task, "failed" if failed else None, self.world.now_ms)
        self._go_on(session, worker)

    def _handled(self, session: ConsumerSession, worker: Worker, line: Line) -> None:
        """The handler is done: its side effects have happened, whoever owns the partition now."""
        worker.busy = 0
        if self.world.chance(0.03):
            worker.lines.appendleft(line)
            worker.at = Standing(line.offset, worker.at.attempts + 1)
        else:
            self._record(session, worker, line)
            worker.at = Standing(line.offset + 1)
        self._go_on(session, worker)

    def _begun(self, session: ConsumerSession, worker: Worker, line: Line) -> None:
        self.world.record(
            Begun(
                self.world.now_ms,
                worker.partition,
                worker.epoch,
                self.name,
                session.incarnation,
                line.offset,
            )
        )

    def _record(self, session: ConsumerSession, worker: Worker, line: Line) -> None:
        self.world.record(
            Processed(
                self.world.now_ms,
                worker.partition,
                worker.epoch,
                self.name,
                session.incarnation,
                line.offset,
                line.key,
                line.message,
            )
        )

    def _go_on(self, session: ConsumerSession, worker: Worker) -> None:
        if self.workers.get(worker.partition) is not worker:
            return
        if not worker.stopping:
            self._work(worker)
        elif not worker.busy:
            session.stopped(worker.partition, worker.epoch)
            self._release()

    # --- progress -------------------------------------------------------------------------------

    def _commit(self) -> None:
        session = self.session
        rows = session.to_commit()
        if not rows or not self.joined or self._is_over():
            return

        def known(answer: Reply | PxrsError) -> None:
            if session is not self.session:
                return
            if isinstance(answer, Reply):
                self._drop(session.committed(rows, answer.outcomes))
            else:
                self._refused(answer)

        self._ask(Commit(self.name, session.incarnation, rows), known)

    def _release(self) -> None:
        session = self.session
        rows = session.to_release()
        if not rows or self._releasing or self._is_over():
            return
        self._releasing = True

        def known(answer: Reply | PxrsError) -> None:
            if session is not self.session:
                return
            if isinstance(answer, Reply):
                session.released(rows)
                for row in rows:
                    worker = self.workers.get(row.partition)
                    if worker is not None and worker.epoch == row.epoch:
                        del self.workers[row.partition]
            else:
                self._refused(answer)

        def again() -> None:
            self._releasing = False
            self._release()

        self._ask(Release(self.name, session.incarnation, rows), known)
        self.after(ANSWER_MS, again)

    # --- calls ----------------------------------------------------------------------------------

    def _ask(self, event: Event, on_answer: Callable[[Reply | PxrsError], None]) -> None:
        """Send an event to the coordinator we know; ask who it is now, if there is no answer."""
        coordinator = self.coordinator
        answered = False

        def known(answer: Reply | PxrsError) -> None:
            nonlocal answered
            answered = True
            on_answer(answer)

        def give_up() -> None:
            if not answered:
                self.coordinator = self.cluster.find_coordinator()

        call(self, coordinator, lambda respond: coordinator.receive(event, respond), known)
        self.after(ANSWER_MS, give_up)
