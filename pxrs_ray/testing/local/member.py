"""`LocalMember`: one consumer of a group: the real session and lease, in a shell of one thread.

Rules of this file, those of the consumers on Ray. Nothing is begun, read or committed while the
lease is over. A partition that drains is released when nothing of it is in hand. A commit that is
refused means that the partition is lost. A member that is *cut off* hears and says nothing; one
that has *ended* does nothing any more, and what its handler still returns does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from pxrs_ray.config import Ordered
from pxrs_ray.config.scheduling import scheduler_for
from pxrs_ray.consumer.delivery import DeliveredBatch, Delivery, DeliveryContext
from pxrs_ray.consumer.handler_shape import HandlerShape
from pxrs_ray.consumer.session import ConsumerSession, SessionChanges
from pxrs_ray.errors import Fenced
from pxrs_ray.group.events import (
    Assignment,
    Commit,
    Heartbeat,
    PartitionProgress,
    Prepared,
    Release,
)
from pxrs_ray.group.member_lease import MemberLease, Title
from pxrs_ray.model import (
    Epoch,
    Grant,
    Incarnation,
    MemberId,
    Message,
    Outcome,
    PartitionId,
    Progress,
)
from pxrs_ray.processing.key_ordered import KeyLanes
from pxrs_ray.processing.retry_rules import FailurePolicy
from pxrs_ray.processing.suspects import HandlerCall
from pxrs_ray.supervision.supervisor import LoopThread
from pxrs_ray.testing.local.crashed import ConsumerCrashed
from pxrs_ray.testing.local.work import InOrderWork, PartitionWork, ScheduledWork

if TYPE_CHECKING:
    from pxrs_ray.testing.local.group import LocalGroup


class LocalMember:
    """See the rules at the head of this file."""

    def __init__(
        self, group: LocalGroup, member: MemberId, incarnation: Incarnation, shape: HandlerShape
    ) -> None:
        self.group = group
        self.config = group.config
        self.session = ConsumerSession(member, incarnation, self)
        self.lease = MemberLease(self.config.lease_ms / 1_000)
        self.works: dict[PartitionId, PartitionWork] = {}
        self.cut_off = False
        self.ended = False
        self.crashes_at_commit = False
        self.wants_batch = shape.wants_batch
        self.calls: list[HandlerCall] = []
        self._shape = shape
        self._loop: LoopThread | None = None
        self._dirty_since_ms: int | None = None
        self._uncommitted = 0

    @property
    def name(self) -> MemberId:
        """Its name in the group."""
        return self.session.member

    def now_ms(self) -> int:
        """The present moment."""
        return self.group.clock.now().monotonic_ms

    def holds(self, partition: PartitionId, epoch: Epoch) -> bool:
        """Whether the partition is surely ours now: what a delivery's context answers."""
        return not self.ended and not self.is_over() and self.session.holds(partition, epoch)

    def is_over(self) -> bool:
        """Whether others may own by now what was ours."""
        return self.lease.is_over(self.now_ms() / 1_000)

    # --- membership -------------------------------------------------------------------------------

    def heartbeat(self) -> None:
        """Say that we are alive, and obey what is new."""
        if self.cut_off or self.ended:
            return
        session = self.session
        reply = self.group.ask(Heartbeat(session.member, session.incarnation, session.seen))
        if reply is None:
            return
        if reply.assignment is not None:
            self.obey(reply.assignment)
        self.answered(reply.lease_ms)

    def answered(self, lease_ms: int) -> None:
        """The coordinator has answered at this moment: another lease begins."""
        self.lease.answered(self.now_ms() / 1_000, lease_ms / 1_000)

    def obey(self, assignment: Assignment) -> None:
        """Make an assignment the truth."""
        if self.cut_off or self.ended:
            return
        changes = self.session.assign(assignment)
        self._drop(changes)
        for grant in changes.preparing:
            self._prepare(grant)
        for partition in changes.unprepared:
            self.notify("on_revoked", partition)
        for grant in changes.started:
            self._start(grant)
        for partition in changes.draining:
            self._drain(partition)
        self.release()

    def _prepare(self, grant: Grant) -> None:
        self.notify("on_prepare", grant.partition, grant.checkpoint)
        session = self.session
        ready = Prepared(session.member, session.incarnation, (grant.partition,))
        self.group.later(lambda: self.group.ask(ready) if not self.ended else None)

    def _start(self, grant: Grant) -> None:
        session, partition, epoch = self.session, grant.partition, grant.epoch
        shared = DeliveryContext(
            self.group.queue.name,
            self.group.name,
            session.member,
            session.incarnation,
            partition,
            epoch,
            grant.attempts + 1,
            topology_id=self.group.topology_id,
            title=Title(lambda: self.holds(partition, epoch)),
            replier=self.group.queue.reply,
        )
        progress = grant.progress
        scheduler = scheduler_for(self.config, progress, wants_batch=self.wants_batch)
        if isinstance(scheduler, KeyLanes):
            for key in self.group.failed.keys_of(partition):
                scheduler.park(key)
        self.works[partition] = (
            InOrderWork(grant, shared, self.config, self)
            if scheduler is None
            else ScheduledWork(grant, shared, self.config, self, scheduler)
        )
        self.notify("on_assigned", partition, grant.checkpoint)

    def _drain(self, partition: PartitionId) -> None:
        work = self.works.get(partition)
        if work is not None:
            work.stopping = True
            self._stopped_if_idle(work)

    def _stopped_if_idle(self, work: PartitionWork) -> None:
        if work.stopping and not work.busy and self.works.get(work.partition) is work:
            self.notify("on_revoked", work.partition)
            self.session.stopped(work.partition, work.epoch)

    def _drop(self, changes: SessionChanges) -> None:
        for partition in changes.dropped:
            work = self.works.pop(partition, None)
            if work is not None:
                work.stopping = True
                self.notify("on_revoked", partition)

    def release(self) -> None:
        """Hand back what is asked for and not in hand."""
        rows = self.session.to_release()
        if not rows or self.cut_off or self.ended or self.is_over():
            return
        release = Release(self.name, self.session.incarnation, rows)
        for row in rows:
            self.works.pop(row.partition, None)
        self.session.released(rows)
        self.group.ask(release)

    def end(self) -> None:
        """Do nothing any more."""
        self.ended = True
        if self._loop is not None and not self.calls:
            self._loop.close()
            self._loop = None

    def close(self) -> None:
        """As a consumer that ends gracefully: the handler gives back what it holds."""
        if not self.ended:
            self.notify("close")
        self.end()

    # --- messages ---------------------------------------------------------------------------------

    def step(self) -> bool:
        """Do the next thing that may be done; False when there is nothing to do now."""
        if self.ended or self.cut_off or self.calls or self.is_over() or self.session.paused:
            return False
        self._fetch()
        for work in sorted(self.works.values(), key=self.group.turn):
            if self._step(work):
                self.group.had_a_turn(work)
                return True
        return False

    def _step(self, work: PartitionWork) -> bool:
        did = work.step()
        self.went_on(work)
        return did

    def went_on(self, work: PartitionWork) -> None:
        """Take note of how far a work is, and commit where the commit mode says so."""
        if self.ended or self.works.get(work.partition) is not work:
            return
        if self._dirty_since_ms is None and self.session.to_commit():
            self._dirty_since_ms = self.now_ms()
        self._stopped_if_idle(work)
        mode = self._commit_mode()
        ended = isinstance(work, InOrderWork) and work.batch_ended
        if mode == "message" or (mode == "batch" and ended) or self._is_full():
            self.commit()
        self.release()

    def _commit_mode(self) -> str:
        mode = self.config.processing
        return mode.commit_mode if isinstance(mode, Ordered) else "interval"

    def _is_full(self) -> bool:
        if self._commit_mode() != "interval":
            return False
        held = self.session.holdings
        rows = self.session.to_commit()
        before = sum(held[row.partition].committed.checkpoint for row in rows)
        return sum(row.progress.checkpoint for row in rows) - before >= self.config.commit_records

    def progress(self, partition: PartitionId, epoch: Epoch) -> Progress | None:
        """How far the work on a partition is."""
        work = self.works.get(partition)
        return work.progress() if work is not None and work.epoch == epoch else None

    def queued_bytes(self, partition: PartitionId) -> int:
        """How much waits for the handler."""
        return self.works[partition].queued_bytes

    def _fetch(self) -> None:
        session, group = self.session, self.group
        bytes_max = self.config.pull_bytes_max
        wanted = session.to_fetch(2 * bytes_max)
        for partition, (epoch, offset) in wanted.items():
            at = offset
            try:
                found, after = group.queue.read(group.name, partition, epoch, at, bytes_max)
            except Fenced:
                session.lost(partition, epoch)
                self._drop(SessionChanges(dropped=(partition,)))
                continue
            work = self.works[partition]
            for batch in found:
                if batch.base_offset > at and session.skip(partition, epoch, at, batch.base_offset):
                    work.skip(batch.base_offset)
                size = int(batch.payloads.nbytes)
                if session.fetched(partition, epoch, batch.base_offset, len(batch)):
                    work.put(batch, size)
                at = batch.end_offset
            if after > at and session.skip(partition, epoch, at, after):
                work.skip(after)

    def call(
        self,
        argument: Delivery | DeliveredBatch,
        messages: Sequence[Message],
        due_ms: int | None = None,
    ) -> BaseException | None:
        """Call the handler; answers what it raised. Raises ConsumerCrashed when that ended us."""
        context = argument.context
        first, end = messages[0].offset, messages[-1].offset + 1
        self.calls.append(HandlerCall(context.partition, context.epoch, first, end))
        try:
            call = partial(self._call, argument)
            return self.group.called(self, context, messages, call, due_ms)
        finally:
            self.calls.pop()
            if self.cut_off and not self.calls:
                self.group.later(lambda: self.group.thaw(self))
            elif self.ended:
                self.end()

    def _call(self, argument: Any) -> None:
        if not self._shape.is_async:
            self._shape.function(argument)
            return
        if self._loop is None:
            self._loop = LoopThread(f"pxrs-test-{self.name}")
        self._loop.begin(self._shape.function(argument)).result()

    def notify(self, name: str, *arguments: object) -> None:
        """Call a further method of the handler, where it has that one."""
        method: Callable[..., Any] | None = getattr(self._shape.target, name, None)
        if method is not None:
            found = method(*arguments)
            if hasattr(found, "__await__"):
                if self._loop is None:
                    self._loop = LoopThread(f"pxrs-test-{self.name}")
                self._loop.begin(found).result()

    def give_up(
        self,
        shared: DeliveryContext,
        attempts: int,
        error: str,
        policy: FailurePolicy,
        of: Iterable[Message],
    ) -> None:
        """Keep what is not tried again."""
        self.group.failed.give_up(shared, attempts, error, policy, of)

    # --- progress ---------------------------------------------------------------------------------

    def commit_due_ms(self) -> int | None:
        """When an interval commit is due; None when there is nothing to commit."""
        if self._dirty_since_ms is None or self.cut_off or self.ended:
            return None
        return self._dirty_since_ms + self.config.commit_interval_ms

    def commit(self) -> None:
        """Commit everything that is done."""
        rows = self.session.to_commit()
        self._dirty_since_ms = None
        if not rows or self.cut_off or self.ended or self.is_over():
            return
        if self.crashes_at_commit:
            self.group.crash(self, "crashed before its commit")
            raise ConsumerCrashed
        self.send_commit(rows)

    def send_commit(self, rows: tuple[PartitionProgress, ...]) -> None:
        """Send a commit, whatever we may believe; what is refused is lost."""
        reply = self.group.ask(Commit(self.name, self.session.incarnation, rows))
        outcomes = reply.outcomes if reply is not None else (Outcome.FENCED,) * len(rows)
        self._drop(self.session.committed(rows, outcomes))
        for row, outcome in zip(rows, outcomes, strict=True):
            if outcome is Outcome.FENCED:
                self.group.refused.append((row.partition, row.epoch, row.progress.checkpoint))
            else:
                self.group.queue.passed(self.group.name, row.partition, row.progress.checkpoint)
