"""`GroupMember`: the loops that keep one member going, around a `ConsumerSession`.

Rules of this file. Everything here runs on one event loop and never blocks it; the work itself is
done behind `MemberCallbacks` (worker threads of a consumer actor, the user's own loop of a pull
consumer). While the coordinator is away, fetching and working go on for as long as the lease lasts
(see `pxrs_ray.group.member_lease`) and commits wait; when it is over nothing is begun, read or
committed. The next answer then says whether we go on where we stopped. Losing membership drops
everything at once, and the member joins again as a new incarnation.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from pxrs_ray.actors.cluster.coordinator_client import CoordinatorClient
from pxrs_ray.actors.consumer.fence_reports import FenceReports
from pxrs_ray.actors.consumer.fetcher import Fetcher
from pxrs_ray.actors.consumer.lease_view import MemberLeaseView
from pxrs_ray.actors.consumer.member_callbacks import MemberCallbacks
from pxrs_ray.actors.consumer.member_requests import (
    CommitProgress,
    JoinGroup,
    LeaveGroup,
    MemberRequest,
    ReleasePartitions,
    ReportPrepared,
    ReportRefused,
    SendHeartbeat,
)
from pxrs_ray.actors.consumer.source_fetcher import SourceFetcher
from pxrs_ray.actors.consumer.specs import GroupSpec
from pxrs_ray.consumer.session import ConsumerSession, SessionChanges
from pxrs_ray.errors import DeadlineExceeded, NotFound, PxrsError, UnknownMember
from pxrs_ray.group.events import Assignment, Reply
from pxrs_ray.group.member_lease import WAIT_PART
from pxrs_ray.model import Epoch, Grant, Incarnation, MemberId, PartitionId
from pxrs_ray.supervision.restart_rules import RestartRules, told
from pxrs_ray.supervision.supervisor import Supervisor, within

A = TypeVar("A")

logger = logging.getLogger(__name__)

RELEASE_GATHER_S = 0.002
# A loop that failed begins again; after so many faults in a row the member is given up.
LOOPS = RestartRules(pause_first_s=0.05, pause_most_s=1.0, faults_max=8, quiet_s=10.0)


class GroupMember:
    """One live member of a group. Make it, `start` it, and `close` it on one event loop."""

    def __init__(
        self,
        spec: GroupSpec,
        member: MemberId,
        incarnation: Incarnation,
        token: str,
        hooks: MemberCallbacks,
    ) -> None:
        self.spec = spec
        self.session = ConsumerSession(member, incarnation, hooks)
        self.failed: BaseException | None = None
        self._token = token
        self._hooks = hooks
        self._link = CoordinatorClient(spec.topology)
        self.name = f"{spec.group}/{member}/{incarnation}"
        self.reading: Fetcher | SourceFetcher = (
            Fetcher(self, hooks) if spec.source is None else SourceFetcher(self, hooks, spec.source)
        )
        self.lease = MemberLeaseView(spec.config.lease_ttl_seconds)
        self._commit_wake = asyncio.Event()
        self._release_wake = asyncio.Event()
        self._committed = asyncio.Condition()
        self._commit_rounds = 0
        self._committing = False
        self._rejoining = asyncio.Lock()
        self._idle = asyncio.Event()
        self._idle.set()
        self.supervisor = Supervisor(self.name, LOOPS)
        self.ended = asyncio.Event()
        self._refusals = FenceReports(self._tell_refused, self.ended)

    # --- life -----------------------------------------------------------------------------------

    def start(self, assignment: Assignment | None) -> None:
        """Begin with the assignment that joining brought.

        Nobody knows here when that was decided: the lease begins with the first answer.
        """
        if assignment is not None:
            self._assigned(assignment)
        loops: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
            "heartbeat": self._heartbeat_loop,
            "commit": self._commit_loop,
            "release": self._release_loop,
            "refusals": self._refusals.loop,
        }
        for index in range(self.spec.buffers):
            loops[f"reading of buffer {index}"] = partial(self.reading.loop, index)
        for place, loop in loops.items():
            self.supervisor.keep(place, loop, self._fail)

    def reconfigure(self, spec: GroupSpec) -> None:
        """Go on with other options of the group."""
        self.spec = spec
        self.commit_soon()
        self.reading.wake()

    async def leave(self, cause: str, timeout_s: float) -> bool:
        """Hand everything back and leave; False when that was not over in time."""
        session = self.session
        await self._call(LeaveGroup(*self._as(session), cause), timeout_s)
        try:
            await within(timeout_s, self._idle.wait())
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """End every loop. What was not committed or released stays so."""
        self.ended.set()
        await self.supervisor.close()

    def _fail(self, error: BaseException) -> None:
        """A loop fails again and again: better a new member than a lame one."""
        self.failed = error
        self.ended.set()

    def problems(self) -> list[str]:
        """What is wrong with this member now."""
        failed = [told(self.failed)] if self.failed is not None else []
        reading = [self.reading.problem] if self.reading.problem else []
        return [*failed, *reading, *self.supervisor.problems()]

    async def _call(self, request: MemberRequest[A], wait_s: float | None = None) -> A:
        """Make a request of the group; one that was removed ends this member."""
        try:
            return await self._link.call(request, wait_s)
        except NotFound as error:
            self._fail(error)
            raise

    def _as(self, session: ConsumerSession) -> tuple[str, MemberId, Incarnation]:
        """Who makes a request: of which group, by what name, in which life."""
        return self.spec.group, session.member, session.incarnation

    # --- ownership ------------------------------------------------------------------------------

    def _assigned(self, assignment: Assignment) -> None:
        paused = self.session.paused
        self._apply(self.session.assign(assignment))
        if paused != self.session.paused:
            self.reading.wake()

    def _apply(self, changes: SessionChanges) -> None:
        for partition in changes.dropped:
            self._hooks.dropped(partition)
        for partition in changes.unprepared:
            self._hooks.unprepared(partition)
        for grant in changes.preparing:
            self._hooks.preparing(grant)
        for grant in changes.started:
            self._hooks.started(grant)
        for partition in changes.draining:
            self._hooks.draining(partition)
        # A read that waits goes on where only less is wanted: what is lost is refused as it comes.
        if changes.started:
            self.reading.wake(grant.partition for grant in changes.started)
        if changes.dropped or changes.started or changes.draining:
            self._release_wake.set()
        self._note_idle()

    async def prepared(self, partition: PartitionId) -> None:
        """A coming partition is loaded; its owner may be asked for it now."""
        session = self.session
        if partition not in session.preparing:
            return
        try:
            await self._call(ReportPrepared(*self._as(session), [partition]))
        except PxrsError as error:
            # Its deadline ends the wait for us just as well.
            logger.warning("%s is ready for partition %d, untold: %s", self.name, partition, error)

    def lose(self, partition: PartitionId, epoch: Epoch) -> None:
        """Drop one partition whose epoch is over, whatever our assignment says, and report it."""
        if self.session.lost(partition, epoch):
            self._hooks.dropped(partition)
            self._note_idle()
            self._refusals.note(partition, epoch)

    async def _tell_refused(self, epochs: list[tuple[PartitionId, Epoch]]) -> None:
        await self._call(ReportRefused(*self._as(self.session), epochs))

    def _note_idle(self) -> None:
        if self.session.holdings:
            self._idle.clear()
        elif self.session.leaving or self.ended.is_set():
            self._idle.set()

    async def _heartbeat_loop(self) -> None:
        """Always one request: it renews the lease, and is answered when there is news for us."""
        while not self.ended.is_set():
            session, sent_s = self.session, time.monotonic()
            try:
                reply = await self._heartbeat(session)
            except UnknownMember:
                await self._rejoin(session)
            except DeadlineExceeded:
                pass
            else:
                if session is self.session:
                    if reply.assignment is not None:
                        self._assigned(reply.assignment)
                    # Obeyed: another lease begins, when this left and not when it was answered.
                    self.lease.answered(sent_s, reply.lease_ms / 1_000)
                continue
            if session is self.session:
                # Not heard. Whatever refuses us at once is not asked without a pause.
                pause_s = sent_s + self.lease.length_s * WAIT_PART - time.monotonic()
                await asyncio.sleep(max(0.0, pause_s))

    async def _heartbeat(self, session: ConsumerSession) -> Reply:
        wait_ms = int(self.lease.wait_s() * 1_000)
        heartbeat = SendHeartbeat(*self._as(session), session.seen, wait_ms)
        return await self._call(heartbeat, self.lease.length_s / 2)

    def holds(self, session: ConsumerSession, partition: PartitionId, epoch: Epoch) -> bool:
        """Whether a partition is surely ours under this epoch now. From any thread."""
        return session.holds(partition, epoch) and not self.lease.is_over()

    async def _rejoin(self, lost: ConsumerSession) -> None:
        """Drop what the lost membership held, and join again, once for all loops that notice."""
        async with self._rejoining:
            if lost is not self.session or self.ended.is_set():
                return
            for partition in lost.drop_all():
                self._hooks.dropped(partition)
            self._idle.set()
            if lost.leaving:
                self.ended.set()
                return
            logger.warning("%s lost its membership, joins again", self.name)
            try:
                again = JoinGroup(self.spec.group, lost.member, self._token, lost.incarnation)
                incarnation, assignment = await self._call(again)
            except DeadlineExceeded:
                return  # the next loop that notices tries again
            except PxrsError as error:
                self.failed = error
                self.ended.set()
                return
            self.session = ConsumerSession(lost.member, incarnation, self._hooks)
            self.name = f"{self.spec.group}/{lost.member}/{incarnation}"
            self._hooks.rejoined(incarnation)
            if assignment is not None:
                self._assigned(assignment)

    # --- progress -------------------------------------------------------------------------------

    def commit_soon(self) -> None:
        """Commit without waiting for the interval."""
        self._commit_wake.set()

    async def commit_now(self) -> None:
        """Return when everything that was done before this call is committed or lost."""
        async with self._committed:
            wanted = self._commit_rounds + 1
            # A round that is under way may have read the progress before this call.
            if self._commit_wake.is_set() or self._committing:
                wanted += 1
            self._commit_wake.set()
            while self._commit_rounds < wanted and not self.ended.is_set():
                # Again each time: the round before has cleared it.
                self._commit_wake.set()
                await self._committed.wait()

    def stopped(self, partition: PartitionId, epoch: Epoch) -> None:
        """The work on a partition is over: nothing of it is in flight."""
        self.session.stopped(partition, epoch)
        self._release_wake.set()

    def begin_again(self, partition: PartitionId, epoch: Epoch) -> Grant | None:
        """How to begin a partition anew whose worker is gone; None when that is not ours to do."""
        grant = self.session.begin_again(partition, epoch)
        self.reading.wake([partition])
        return grant

    async def _commit_loop(self) -> None:
        while not self.ended.is_set():
            try:
                interval_s = self.spec.config.commit_interval_ms / 1_000
                await within(interval_s, self._commit_wake.wait())
            except TimeoutError:
                pass
            self._commit_wake.clear()
            self._committing = True
            try:
                await self._commit()
            finally:
                self._committing = False
            async with self._committed:
                self._commit_rounds += 1
                self._committed.notify_all()

    async def _commit(self) -> None:
        """Commit what is done; waits for as long as the coordinator is away, or the lease over."""
        session = self.session
        rows = session.to_commit()
        if not rows:
            return
        while session is self.session and not self.ended.is_set():
            if self.lease.is_over():
                await self.lease.renewal()
                continue
            try:
                outcomes = await self._call(CommitProgress(*self._as(session), rows))
            except DeadlineExceeded:
                continue
            except UnknownMember:
                await self._rejoin(session)
                return
            self._apply(session.committed(rows, outcomes))
            return

    async def _release_loop(self) -> None:
        while not self.ended.is_set():
            await self._release_wake.wait()
            # Workers that are told to stop together end almost together: one call for all.
            await asyncio.sleep(RELEASE_GATHER_S)
            self._release_wake.clear()
            session = self.session
            rows = session.to_release()
            if not rows:
                continue
            # Until it is answered it is to be made again, whatever ends this loop meanwhile.
            self._release_wake.set()
            if self.lease.is_over():
                await self.lease.renewal()
                continue
            try:
                await self._call(ReleasePartitions(*self._as(session), rows))
            except DeadlineExceeded:
                continue
            except UnknownMember:
                await self._rejoin(session)
            else:
                session.released(rows)
            self._note_idle()
