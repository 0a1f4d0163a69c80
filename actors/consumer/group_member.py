"""`GroupMember`: carries what a `MemberMachine` asks for, and feeds the answers in.

Rules of this file. No decision is made here: see `pxrs_ray.consumer.member_machine`. Everything
runs on one event loop and never blocks it; the work itself is done behind `MemberCallbacks` (worker
threads of a consumer actor, the user's own loop of a pull consumer). Each channel of the machine
has a loop, which begins again after a fault; one that fails too often in a row gives the member up.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from pxrs_ray.actors.cluster.coordinator_client import CoordinatorClient
from pxrs_ray.actors.consumer.channel_wake import ChannelWake
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
from pxrs_ray.consumer.member_effects import (
    Ask,
    BeginWork,
    DrainWork,
    DropWork,
    ForgetBuffer,
    JoinAgain,
    Joined,
    LeaseRenewed,
    LostMembership,
    MemberChannel,
    MemberEffect,
    MemberEnded,
    MemberOptions,
    Prepare,
    ReadingFails,
    ReadingWorks,
    ReportFenced,
    Rest,
    RoundOver,
    SkipTo,
    TakeIn,
    Unprepare,
    WakeChannel,
    WentOn,
)
from pxrs_ray.consumer.member_machine import MemberMachine
from pxrs_ray.consumer.session import ConsumerSession
from pxrs_ray.errors import PxrsError
from pxrs_ray.group.events import Assignment, Commit, Heartbeat, Leave, Prepared, Release
from pxrs_ray.model import Epoch, Grant, Incarnation, MemberId, PartitionId
from pxrs_ray.supervision.restart_rules import RestartRules, told
from pxrs_ray.supervision.supervisor import Supervisor, within

A = TypeVar("A")

logger = logging.getLogger(__name__)

# A loop that failed begins again; after so many faults in a row the member is given up.
LOOPS = RestartRules(pause_first_s=0.05, pause_most_s=1.0, faults_max=8, quiet_s=10.0)
ASKED = (
    MemberChannel.HEARTBEAT,
    MemberChannel.JOIN,
    MemberChannel.COMMIT,
    MemberChannel.RELEASE,
    MemberChannel.REPORT,
    MemberChannel.LEAVE,
)


def _options(spec: GroupSpec) -> MemberOptions:
    return MemberOptions(spec.config.commit_interval_ms / 1_000, spec.config.pull_bytes_max)


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
        # An external queue is read as one.
        self._reads = spec.buffers if spec.source is None else 1
        self.machine = MemberMachine(
            ConsumerSession(member, incarnation, hooks),
            hooks,
            _options(spec),
            self._reads,
            spec.config.lease_ttl_seconds,
        )
        self._token = token
        self._hooks = hooks
        self._link = CoordinatorClient(spec.topology)
        self.name = f"{spec.group}/{member}/{incarnation}"
        self.reading: Fetcher | SourceFetcher = (
            Fetcher(self) if spec.source is None else SourceFetcher(self, hooks, spec.source)
        )
        self.lease = MemberLeaseView(self.machine.lease)
        self._wakes = [ChannelWake() for _ in range(MemberChannel.FETCH + self._reads)]
        self._round_over = asyncio.Event()
        self._left = asyncio.Event()
        self.supervisor = Supervisor(self.name, LOOPS)
        self.ended = asyncio.Event()

    # --- life -----------------------------------------------------------------------------------

    def start(self, assignment: Assignment | None) -> None:
        """Begin with the assignment that joining brought."""
        self.machine.start(assignment, time.monotonic())
        self.carry_out()
        for channel in ASKED:
            self.supervisor.keep(channel.name.lower(), partial(self._run, channel), self._fail)
        for index in range(self._reads):
            place = f"reading of buffer {index}"
            self.supervisor.keep(place, partial(self.reading.loop, index), self._fail)

    @property
    def session(self) -> ConsumerSession:
        """What this member may do, as its present incarnation."""
        return self.machine.session

    @property
    def failed(self) -> BaseException | None:
        """What has ended this member, if that was a failure."""
        return self.machine.failed

    def reconfigure(self, spec: GroupSpec) -> None:
        """Go on with other options of the group."""
        self.spec = spec
        self.machine.reconfigure(_options(spec))
        self.carry_out()

    async def leave(self, cause: str, timeout_s: float) -> bool:
        """Hand everything back and leave; False when that was not over in time."""
        self.machine.leave(cause)
        self.carry_out()
        try:
            await within(timeout_s, self._left.wait())
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """End every loop. What was not committed or released stays so."""
        self.machine.end()
        self.carry_out()
        await self.supervisor.close()

    def _fail(self, error: BaseException) -> None:
        """A loop fails again and again: better a new member than a lame one."""
        self.machine.end(error)
        self.carry_out()

    def problems(self) -> list[str]:
        """What is wrong with this member now."""
        failed = [told(self.failed)] if self.failed is not None else []
        reading = [self.reading.problem] if self.reading.problem else []
        return [*failed, *reading, *self.supervisor.problems()]

    # --- channels -------------------------------------------------------------------------------

    def wake_of(self, channel: int) -> ChannelWake:
        """What is set when a channel is to be looked at."""
        return self._wakes[channel]

    async def rest(self, wake: asyncio.Event, until_s: float | None) -> None:
        """Return at that time, or when the channel is woken."""
        wait_s = None if until_s is None else max(0.0, until_s - time.monotonic())
        with suppress(TimeoutError):
            await within(wait_s, wake.wait())

    async def _run(self, channel: MemberChannel) -> None:
        """Do what is next, again and again."""
        wake = self._wakes[channel]
        while not self.ended.is_set():
            wake.clear()
            found = self.machine.next(channel, time.monotonic())
            self.carry_out()
            if isinstance(found, Rest):
                await self.rest(wake, found.until_s)
            else:
                await self._ask(found)

    async def _ask(self, ask: Ask) -> None:
        try:
            answer = await self._call(self._request(ask), ask.wait_s)
        except PxrsError as error:
            if not self.machine.refused(ask, error, time.monotonic()):
                raise
        else:
            if isinstance(ask.request, JoinAgain):
                answer = Joined(*answer)
            self.machine.answered(ask, answer, time.monotonic())
        self.carry_out()

    async def _call(self, request: MemberRequest[A], wait_s: float | None = None) -> A:
        """Make a request of the group."""
        return await self._link.call(request, wait_s)

    def _request(self, ask: Ask) -> MemberRequest[Any]:
        """The request as the coordinator takes it."""
        group, request = self.spec.group, ask.request
        match request:
            case JoinAgain():
                return JoinGroup(group, request.member, self._token, request.lost)
            case Heartbeat():
                return SendHeartbeat(group, *_who(request), request.seen, ask.hold_ms)
            case Commit():
                return CommitProgress(group, *_who(request), request.rows)
            case Release():
                return ReleasePartitions(group, *_who(request), request.rows)
            case Prepared():
                return ReportPrepared(group, *_who(request), request.partitions)
            case ReportFenced():
                return ReportRefused(group, *_who(request), request.epochs)
            case Leave():
                return LeaveGroup(group, *_who(request), request.cause)

    # --- effects --------------------------------------------------------------------------------

    def carry_out(self) -> None:
        """Do what the machine wants done here."""
        while (effect := self.machine.take_effect()) is not None:
            self._carry_out(effect)
        if self.machine.has_left:
            self._left.set()

    def _carry_out(self, effect: MemberEffect) -> None:
        hooks = self._hooks
        match effect:
            case WakeChannel():
                self._wakes[effect.channel].set()
            case TakeIn():
                self._take_in(effect)
            case RoundOver():
                self._tell_round_over()
            case LeaseRenewed():
                self.lease.renewed()
            case BeginWork():
                hooks.started(effect.grant)
            case DrainWork():
                hooks.draining(effect.partition)
            case DropWork():
                hooks.dropped(effect.partition)
            case Prepare():
                hooks.preparing(effect.grant)
            case Unprepare():
                hooks.unprepared(effect.partition)
            case SkipTo():
                told_as = "partition %d of %s: offsets %d to %d are gone from the log"
                ends = (effect.offset, effect.to - 1)
                logger.error(told_as, effect.partition, self.spec.queue, *ends)
                hooks.skipped(effect.partition, effect.epoch, effect.to)
            case _:
                self._note(effect)

    def _note(
        self,
        effect: ForgetBuffer | ReadingFails | ReadingWorks | LostMembership | WentOn | MemberEnded,
    ) -> None:
        match effect:
            case ForgetBuffer():
                self.reading.forget(effect.buffer)
            case ReadingFails():
                self.supervisor.note(f"reading of partition {effect.partition}", effect.error)
            case ReadingWorks():
                self.supervisor.over(f"reading of partition {effect.partition}")
            case LostMembership():
                logger.warning("%s lost its membership, joins again", self.name)
            case WentOn():
                self.name = f"{self.spec.group}/{self.session.member}/{effect.incarnation}"
                self._hooks.rejoined(effect.incarnation)
            case MemberEnded():
                self.ended.set()
                self._tell_round_over()

    def _take_in(self, effect: TakeIn) -> None:
        try:
            self._hooks.received(effect.partition, effect.epoch, effect.batch, effect.size_bytes)
        except Exception as error:  # noqa: BLE001 - one partition's bytes are no other's
            self.machine.cannot_read(effect.partition, error, time.monotonic())

    def _tell_round_over(self) -> None:
        self._round_over.set()
        self._round_over = asyncio.Event()

    # --- what workers say and want --------------------------------------------------------------

    async def prepared(self, partition: PartitionId) -> None:
        """A coming partition is loaded; its owner may be asked for it now."""
        ask = self.machine.prepared(partition, time.monotonic())
        if ask is None:
            return
        try:
            await self._call(self._request(ask))
        except PxrsError as error:
            logger.warning("%s is ready for partition %d, untold: %s", self.name, partition, error)

    def holds(self, session: ConsumerSession, partition: PartitionId, epoch: Epoch) -> bool:
        """Whether a partition is surely ours under this epoch now. From any thread."""
        return self.machine.holds(session, partition, epoch, time.monotonic())

    def commit_soon(self) -> None:
        """Commit without waiting for the interval."""
        self.machine.progress.commit_soon()
        self.carry_out()

    async def commit_now(self) -> None:
        """Return when everything that was done before this call is committed or lost."""
        wanted = self.machine.progress.commit_all()
        self.carry_out()
        while self.machine.progress.rounds < wanted and not self.ended.is_set():
            await self._round_over.wait()

    def stopped(self, partition: PartitionId, epoch: Epoch) -> None:
        """The work on a partition is over: nothing of it is in flight."""
        self.machine.stopped(partition, epoch, time.monotonic())
        self.carry_out()

    def begin_again(self, partition: PartitionId, epoch: Epoch) -> Grant | None:
        """How to begin a partition anew whose worker is gone; None when that is not ours to do."""
        grant = self.machine.begin_again(partition, epoch)
        self.carry_out()
        return grant

    def read_on(self) -> None:
        """There is room for more of what is read."""
        self.machine.wake_reading()
        self.carry_out()


def _who(
    request: Heartbeat | Commit | Release | Prepared | ReportFenced | Leave,
) -> tuple[MemberId, Incarnation]:
    """Who makes a request: by what name, in which life."""
    return request.member, request.incarnation
