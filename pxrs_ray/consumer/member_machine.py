"""`MemberMachine`: everything that one member of a group decides. Pure, sans-io.

Rules of this file. Who runs it asks `next` on each channel, carries what it says, and feeds the
answer in; time is given in, by one monotonic clock, in seconds. After each call there may be
effects: `take_effect` until there is none. Nothing here waits, sends, or calls a handler.

While the coordinator is away, fetching and working go on for as long as the lease lasts (see
`pxrs_ray.group.member_lease`) and commits wait; when it is over nothing is begun, read, committed
or released. The next answer then says whether we go on where we stopped. Losing membership drops
everything at once, whichever channel notices it, and the member joins again once, as a new
incarnation. What is answered to a former incarnation is ignored.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from pxrs_ray.consumer.fence_reports import FenceReports
from pxrs_ray.consumer.fetch_plan import FetchPlan
from pxrs_ray.consumer.member_effects import (
    Ask,
    BeginWork,
    DrainWork,
    DropWork,
    Fetch,
    JoinAgain,
    Joined,
    LeaseRenewed,
    LostMembership,
    MemberAnswer,
    MemberChannel,
    MemberEffect,
    MemberEnded,
    MemberOptions,
    PartRead,
    PartRefused,
    Prepare,
    ReportFenced,
    Rest,
    Unprepare,
    WakeChannel,
    WentOn,
)
from pxrs_ray.consumer.member_progress import AGAIN_S, MemberProgress
from pxrs_ray.consumer.session import ConsumerSession, SessionChanges, WorkProgress
from pxrs_ray.errors import DeadlineExceeded, NotFound, PxrsError, UnknownMember
from pxrs_ray.group.events import Assignment, Commit, Heartbeat, Leave, Prepared, Release, Response
from pxrs_ray.group.member_lease import WAIT_PART, MemberLease
from pxrs_ray.model import Epoch, Grant, Incarnation, MemberId, PartitionId


class MemberMachine:
    """One member, as one incarnation after the other. One caller at a time, `holds` excepted."""

    def __init__(
        self,
        session: ConsumerSession,
        work: WorkProgress,
        options: MemberOptions,
        buffers: int,
        lease_s: float,
    ) -> None:
        self.session = session
        self.lease = MemberLease(lease_s)
        self.options = options
        self.failed: BaseException | None = None
        self.ended = False
        self.lost = False  # its membership: only joining is left to do
        self._work = work
        self._channels = MemberChannel.FETCH + buffers
        self._effects: deque[MemberEffect] = deque()
        self._heartbeat_s = float("-inf")
        self._join_s = float("-inf")
        # Why it leaves, if it does; whether that was heard; when to say it again.
        self._leave_cause: str | None = None
        self._leave_heard = False
        self._leave_s = float("-inf")
        self._had_work = False
        # What is under way on these channels.
        self._committing: Commit | None = None
        self._releasing: Release | None = None
        self.progress = MemberProgress(self._effects.append)
        self._reports = FenceReports()
        self._next = {
            MemberChannel.HEARTBEAT: self._heartbeat,
            MemberChannel.JOIN: self._join,
            MemberChannel.COMMIT: self._commit,
            MemberChannel.RELEASE: self._release,
            MemberChannel.REPORT: self._report,
            MemberChannel.LEAVE: self._leave,
        }
        self._plan = FetchPlan(buffers, self._effects.append, self._fenced)

    # --- life -------------------------------------------------------------------------------------

    def start(self, assignment: Assignment | None, now_s: float) -> None:
        """Begin with the assignment that joining brought.

        Nobody knows here when that was decided: the lease begins with the first answer.
        """
        if assignment is not None:
            self._assigned(assignment, now_s)

    def take_effect(self) -> MemberEffect | None:
        """What is to be done next, at once; None when that is nothing."""
        return self._effects.popleft() if self._effects else None

    def end(self, error: BaseException | None = None) -> None:
        """Nothing more comes of this member."""
        if self.failed is None:
            self.failed = error
        self.ended = True
        self._effects.append(MemberEnded())

    def reconfigure(self, options: MemberOptions) -> None:
        """Go on with other options of the group."""
        self.options = options
        self.progress.commit_soon()
        self.wake_reading()

    def leave(self, cause: str) -> None:
        """Ask to leave, again where a new coordinator does not know it.

        Who loses its membership from here on is not a member again.
        """
        self._leave_cause = cause
        self._wake(MemberChannel.LEAVE)

    @property
    def has_left(self) -> bool:
        """Whether it was heard that it leaves, and nothing has to be handed back any more."""
        if self.ended:
            return True
        leaves = self.session.leaving or (self._leave_heard and not self._had_work)
        return leaves and not self.session.holdings

    def _as(self) -> tuple[MemberId, Incarnation]:
        return (self.session.member, self.session.incarnation)

    def holds(
        self, session: ConsumerSession, partition: PartitionId, epoch: Epoch, now_s: float
    ) -> bool:
        """Whether a partition is surely ours under this epoch now. From any thread."""
        return session.holds(partition, epoch) and not self.lease.is_over(now_s)

    # --- what is next -----------------------------------------------------------------------------

    def next(self, channel: MemberChannel, now_s: float) -> Ask | Rest:
        """What is to be asked of the coordinator now, or when to look again.

        Whatever was asked on this channel before is over, answered or not.
        """
        if self.ended or self.lost != (channel == MemberChannel.JOIN):
            return Rest()
        return self._next[channel](now_s)

    def next_fetch(self, buffer: int, now_s: float) -> Fetch | Rest:
        """What is to be read from this buffer now, or when to look again."""
        if self.ended or self.lost:
            return Rest()
        is_over = self.lease.is_over(now_s)
        return self._plan.next(buffer, self.session, self.options.pull_bytes_max, is_over, now_s)

    def _commit(self, now_s: float) -> Ask | Rest:
        interval_s, is_over = self.options.commit_interval_s, self.lease.is_over(now_s)
        found = self.progress.next_commit(self.session, interval_s, is_over, now_s)
        self._committing = found if isinstance(found, Commit) else None
        wait_s = self.lease.asking_s(now_s)
        return Ask(self.session, found, now_s, wait_s) if isinstance(found, Commit) else found

    def _release(self, now_s: float) -> Ask | Rest:
        found = self.progress.next_release(self.session, self.lease.is_over(now_s), now_s)
        self._releasing = found if isinstance(found, Release) else None
        wait_s = self.lease.asking_s(now_s)
        return Ask(self.session, found, now_s, wait_s) if isinstance(found, Release) else found

    def _heartbeat(self, now_s: float) -> Ask | Rest:
        """Always one request: it renews the lease, and is answered when there is news for us."""
        if now_s < self._heartbeat_s:
            return Rest(self._heartbeat_s)
        request = Heartbeat(*self._as(), self.session.seen)
        hold_ms = int(self.lease.wait_s(now_s) * 1_000)
        return Ask(self.session, request, now_s, self.lease.length_s / 2, hold_ms)

    def _join(self, now_s: float) -> Ask | Rest:
        if now_s < self._join_s:
            return Rest(self._join_s)
        if self._leave_cause is not None:
            self.end()
            return Rest()
        return Ask(self.session, JoinAgain(*self._as()), now_s)

    def _leave(self, now_s: float) -> Ask | Rest:
        if self._leave_cause is None or self.session.leaving:
            return Rest()
        if now_s < self._leave_s:
            return Rest(self._leave_s)
        return Ask(self.session, Leave(*self._as(), self._leave_cause), now_s)

    def _report(self, now_s: float) -> Ask | Rest:
        due_s = self._reports.due_s
        if due_s is None or now_s < due_s:
            return Rest(due_s)
        return Ask(self.session, ReportFenced(*self._as(), self._reports.take()), now_s)

    # --- answers of the coordinator ---------------------------------------------------------------

    def _is_ours(self, session: ConsumerSession) -> bool:
        """Whether an answer is for who we are now."""
        return session is self.session and not self.lost and not self.ended

    def answered(self, ask: Ask, answer: MemberAnswer, now_s: float) -> None:
        """The coordinator has answered."""
        request = ask.request
        if isinstance(request, JoinAgain):
            assert isinstance(answer, Joined)
            self._joined(ask, answer, now_s)
        elif not self._is_ours(ask.session):
            return
        elif isinstance(request, Heartbeat):
            assert isinstance(answer, Response)
            self._heard(ask, answer, now_s)
        elif isinstance(request, Commit):
            assert isinstance(answer, tuple)
            changes = self.session.committed(request.rows, answer)
            if request is self._committing:  # one that comes late ends no later round
                self.progress.committed(self.options.commit_interval_s, now_s)
            self._apply(changes, now_s)
        elif isinstance(request, Release):
            self.session.released(request.rows)
            if request is self._releasing:
                self.progress.released(now_s)
        elif isinstance(request, ReportFenced):
            self._reports.told(request.epochs)
        elif isinstance(request, Leave):
            # The assignment that says so is under way, unless its coordinator is replaced.
            self._leave_heard, self._leave_s = True, now_s + self.lease.length_s

    def _heard(self, ask: Ask, reply: Response, now_s: float) -> None:
        was_over = self.lease.is_over(now_s)
        if reply.assignment is not None:
            self._assigned(reply.assignment, now_s)
        # Obeyed: another lease begins, when this left and not when it was answered.
        self.lease.answered(ask.sent_s, reply.lease_ms / 1_000)
        self._effects.append(LeaseRenewed())
        if was_over and not self.lease.is_over(now_s):
            # Whatever waited for that goes on.
            self._wake(MemberChannel.COMMIT)
            self._wake(MemberChannel.RELEASE)
            self.wake_reading()

    def refused(self, ask: Ask, error: PxrsError, now_s: float) -> bool:
        """The coordinator was not heard in time (DeadlineExceeded), or has refused.

        False: that is nothing that a member lives with, but a fault of who carries its requests.
        """
        request = ask.request
        if isinstance(error, NotFound):
            self.end(error)  # the group was removed
        elif isinstance(request, JoinAgain):
            self._not_joined(ask, error, now_s)
        elif isinstance(error, UnknownMember):
            self._lose_membership(ask.session)
        elif not isinstance(error, DeadlineExceeded):
            return False
        elif isinstance(request, Heartbeat):
            # Not heard. Whatever refuses us at once is not asked without a pause.
            self._heartbeat_s = ask.sent_s + self.lease.length_s * WAIT_PART
        elif isinstance(request, Commit):
            self.progress.commit_unheard(now_s)
        elif isinstance(request, Release):
            self.progress.release_unheard(now_s)
        elif isinstance(request, ReportFenced):
            self._reports.unheard(now_s)
        elif isinstance(request, Leave):
            self._leave_s = now_s + AGAIN_S
        return True

    # --- membership -------------------------------------------------------------------------------

    def _lose_membership(self, lost: ConsumerSession) -> None:
        """Drop what the lost membership held, and join again, once for all channels that notice."""
        if not self._is_ours(lost):
            return
        self._effects.extend(DropWork(partition) for partition in lost.drop_all())
        self._had_work = False
        if lost.leaving or self._leave_cause is not None:
            self.end()
            return
        self.lost = True
        self._join_s = float("-inf")
        self._effects.append(LostMembership())
        self._wake(MemberChannel.JOIN)

    def _not_joined(self, ask: Ask, error: PxrsError, now_s: float) -> None:
        if not isinstance(error, DeadlineExceeded):
            self.end(error)
        else:
            self._join_s = max(now_s, ask.sent_s + self.lease.length_s * WAIT_PART)

    def _joined(self, ask: Ask, answer: Joined, now_s: float) -> None:
        if ask.session is not self.session or not self.lost or self.ended:
            return
        self.session = ConsumerSession(self.session.member, answer.incarnation, self._work)
        self.lost = self._leave_heard = False
        self._heartbeat_s = self._leave_s = float("-inf")
        self._effects.append(WentOn(answer.incarnation))
        if answer.assignment is not None:
            self._assigned(answer.assignment, now_s)
        for channel in range(self._channels):
            self._wake(channel)

    # --- ownership --------------------------------------------------------------------------------

    def _assigned(self, assignment: Assignment, now_s: float) -> None:
        paused, leaving = self.session.paused, self.session.leaving
        self._apply(self.session.assign(assignment), now_s)
        if paused != self.session.paused:
            self.wake_reading()
        if leaving and not self.session.leaving:  # a new coordinator, which was told nothing
            self._leave_s = float("-inf")
            self._wake(MemberChannel.LEAVE)

    def _apply(self, changes: SessionChanges, now_s: float) -> None:
        effects = self._effects
        effects.extend(DropWork(partition) for partition in changes.dropped)
        effects.extend(Unprepare(partition) for partition in changes.unprepared)
        effects.extend(Prepare(grant) for grant in changes.preparing)
        effects.extend(BeginWork(grant) for grant in changes.started)
        effects.extend(DrainWork(partition) for partition in changes.draining)
        # A read that waits goes on where only less is wanted: what is lost is refused as it comes.
        self.wake_reading([grant.partition for grant in changes.started])
        if changes.dropped or changes.started or changes.draining:
            self._had_work = True
            self.progress.release_soon(now_s)

    def prepared(self, partition: PartitionId, now_s: float) -> Ask | None:
        """A coming partition is loaded: say so once, if it still comes.

        Its deadline ends the wait for us just as well.
        """
        if self.lost or partition not in self.session.preparing:
            return None
        return Ask(self.session, Prepared(*self._as(), (partition,)), now_s)

    def _fenced(self, partition: PartitionId, epoch: Epoch, now_s: float) -> None:
        """Drop one partition whose epoch is over, whatever our assignment says, and report it."""
        if self.session.lost(partition, epoch):
            self._effects.append(DropWork(partition))
            self._reports.note(partition, epoch, now_s)
            self._wake(MemberChannel.REPORT)

    def stopped(self, partition: PartitionId, epoch: Epoch, now_s: float) -> None:
        """The work on a partition is over: nothing of it is in flight."""
        self.session.stopped(partition, epoch)
        self.progress.release_soon(now_s)

    def begin_again(self, partition: PartitionId, epoch: Epoch) -> Grant | None:
        """How to begin a partition anew whose worker is gone; None when that is not ours to do."""
        grant = self.session.begin_again(partition, epoch)
        self.wake_reading([partition])
        return grant

    # --- reading ----------------------------------------------------------------------------------

    def fetched(self, fetch: Fetch, parts: Sequence[PartRead | PartRefused], now_s: float) -> None:
        """The buffer has answered."""
        self._plan.answered(fetch)
        # What comes when the lease is over is read again, by whoever is the owner then.
        is_over = self.lease.is_over(now_s)
        if self._is_ours(fetch.session) and not self.session.paused and not is_over:
            self._plan.take(fetch, parts, now_s)

    def fetch_failed(self, fetch: Fetch, error: Exception, now_s: float) -> None:
        """It failed, at the buffer that lives or on the way back."""
        if self._is_ours(fetch.session):
            self._plan.failed(fetch, error, now_s)

    def fetch_away(self, fetch: Fetch, now_s: float) -> None:
        """No buffer has served it."""
        self._plan.away(fetch, now_s)

    def fetch_unanswered(self, fetch: Fetch, now_s: float) -> None:
        """It was given up: something else is to be read, or its time is over."""
        self._plan.unanswered(fetch, now_s)

    def cannot_read(self, partition: PartitionId, error: Exception, now_s: float) -> None:
        """What was read of a partition is no good."""
        self._plan.cannot_read(partition, error, now_s)

    def wake_reading(self, partitions: Sequence[PartitionId] | None = None) -> None:
        """What is to be fetched of these partitions (None: of all) has changed."""
        buffers = self._channels - MemberChannel.FETCH
        wanted = range(buffers) if partitions is None else partitions if buffers else ()
        for buffer in sorted({partition % buffers for partition in wanted}):
            self._wake(MemberChannel.FETCH + buffer)

    def _wake(self, channel: int) -> None:
        self._effects.append(WakeChannel(channel))
