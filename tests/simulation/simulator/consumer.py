"""One consumer process: the real `MemberMachine`, over a network that does what it likes.

Rules of this file, the same as `GroupMember`'s: what the machine asks is carried, what is answered
is fed in, its effects are carried out, and nothing is decided. An answer that comes after its time
is fed in too: no real one is, but nothing may come of it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from pxrs_ray.consumer.member_effects import (
    Ask,
    BeginWork,
    DrainWork,
    DropWork,
    Fetch,
    JoinAgain,
    Joined,
    LeaseRenewed,
    MemberChannel,
    MemberEffect,
    MemberEnded,
    MemberOptions,
    Prepare,
    ReportFenced,
    Rest,
    RoundOver,
    SkipTo,
    TakeIn,
    WakeChannel,
)
from pxrs_ray.consumer.member_machine import MemberMachine
from pxrs_ray.consumer.session import ConsumerSession
from pxrs_ray.errors import DeadlineExceeded, Fenced, PxrsError
from pxrs_ray.group.events import Commit, Heartbeat, Join, Prepared, Release, Response
from pxrs_ray.model import Epoch, Incarnation, Member, Offset, PartitionId
from tests.simulation.history import Asked, Failed, Obeyed, Unserved
from tests.simulation.simulator.asking import CoordinatorLink, Hears
from tests.simulation.simulator.buffer import WAIT_MS, Found
from tests.simulation.simulator.coordinator import CoordinatorProcess, Respond
from tests.simulation.simulator.promises import Promises
from tests.simulation.simulator.puller import PullWork
from tests.simulation.simulator.reading import part_of
from tests.simulation.simulator.worker import QUEUED_MAX, Work
from tests.simulation.simulator.world import Process, call

if TYPE_CHECKING:
    from tests.simulation.simulator.cluster import Cluster

ANSWER_MS = 150
# The share of pulling callers that always say up to where they have worked.
SAY_OFFSETS = 0.5
READING = int(MemberChannel.FETCH)
COMMITTING = int(MemberChannel.COMMIT)
CHANNELS = tuple(MemberChannel)


class ConsumerProcess(Process):
    """A process that works for one member, as one incarnation after another."""

    role = "consumer"

    def __init__(self, cluster: Cluster, member: Member) -> None:
        super().__init__(cluster.world, member.member)
        self.cluster = cluster
        self.member = member
        self.link = CoordinatorLink(self, cluster)
        scenario = self.world.scenario
        # Of dice of its own: other draws stay what they were.
        dice = random.Random(f"pulls {self.name} {self._clock_base_ms}")
        self.work: Work | PullWork
        if dice.random() < scenario.pulling:
            self.work = PullWork(
                self,
                self,
                QUEUED_MAX // 2,
                self._may_begin,
                self._changed,
                says_offsets=dice.random() < SAY_OFFSETS,
            )
        else:
            self.work = Work(self, self, self._may_begin, self._changed)
        self.machine = MemberMachine(
            ConsumerSession(self.name, 0, self.work),
            self.work,
            MemberOptions(scenario.commit_interval_ms / 1_000, QUEUED_MAX // 2),
            1,
            scenario.lease_ms / 1_000,
        )
        # Which incarnation it is, or asks to be. It joins as one does that has lost its membership.
        self.incarnation: Incarnation = cluster.next_incarnation(self.name)
        self.machine.lost = True
        # What is under way on each channel, and how often it was looked at.
        self._asked: list[Ask | Fetch | None] = [None] * (READING + 1)
        self._looks = [0] * (READING + 1)
        self._woken: dict[int, None] = {}
        # When commits were to be looked at, where nothing has changed for them since the last look.
        self._commits_s: float | None = None
        self._carrying = False
        self._promises = Promises(self.world, self.name)
        self.leaving = False
        for channel in range(READING + 1):
            self._look(channel)
        self.carry_out()

    @property
    def joined(self) -> bool:
        """Whether it is a member, as far as it knows."""
        return not self.machine.lost

    def leave(self) -> None:
        """Hand everything back and end."""
        self.leaving = True
        self.work.leave(self._leave)

    def _leave(self) -> None:
        self.machine.leave("left")
        self.carry_out()

    def _now_s(self) -> float:
        return self.monotonic_ms() / 1_000

    # --- channels ---------------------------------------------------------------------------------

    def _look(self, channel: int) -> None:
        """Carry what is next on this channel."""
        self._looks[channel] += 1
        now_s, machine = self._now_s(), self.machine
        rounds = machine.progress.rounds
        if channel == COMMITTING:
            self._commits_s = None
        found: Ask | Fetch | Rest
        if channel == READING:
            found = machine.next_fetch(0, now_s)
        else:
            found = machine.next(CHANNELS[channel], now_s)
        if isinstance(found, Rest):
            self._asked[channel] = None
            if found.until_s is None:
                return
            if channel == COMMITTING and machine.progress.rounds > rounds:
                # It has found nothing, and would again after every interval: see `_changed`.
                self._commits_s, self.work.changed = found.until_s, False
            else:
                self._look_later(channel, found.until_s - now_s)
            return
        self._asked[channel] = found
        if isinstance(found, Fetch):
            self._fetch(found)
        else:
            self._ask(found, channel)

    def _look_later(self, channel: int, wait_s: float) -> None:
        wait_ms = max(1, math.ceil(wait_s * 1_000))
        self.after(wait_ms, partial(self._look_again, channel, self._looks[channel]))

    def _changed(self) -> None:
        """There may be something to commit: look when that was due anyway."""
        if self._commits_s is not None:
            wait_s, self._commits_s = self._commits_s - self._now_s(), None
            interval_s = self.machine.options.commit_interval_s
            self._look_later(COMMITTING, wait_s if wait_s > 0 else wait_s % interval_s)

    def _look_again(self, channel: int, look: int) -> None:
        """Look, unless that was done meanwhile."""
        if look == self._looks[channel]:
            self._look(channel)
            self.carry_out()

    def _over(self, channel: int, asked: Ask | Fetch) -> None:
        """What was asked is over: do what is next, and what follows from it."""
        if asked is self._asked[channel]:
            self._look(channel)
        self.carry_out()

    def _wake(self, channel: int) -> None:
        asked = self._asked[channel]
        if isinstance(asked, Ask):
            return
        if asked is not None:
            if not asked.wait_ms:
                return
            self.machine.fetch_unanswered(asked, self._now_s())
        self._look(channel)

    # --- asking the coordinator -------------------------------------------------------------------

    def _ask(self, ask: Ask, channel: int) -> None:
        if isinstance(ask.request, JoinAgain) and self.incarnation == ask.request.lost:
            self.incarnation = self.cluster.next_incarnation(self.name)
        known = partial(self._known, ask, channel, self.incarnation)
        self._send(ask, known, partial(self._give_up, ask, channel))

    def _known(
        self, ask: Ask, channel: int, incarnation: Incarnation, answer: Response | PxrsError
    ) -> None:
        if isinstance(ask.request, JoinAgain) and incarnation != self.incarnation:
            # It is another one by now that joins: this answer is none.
            self._give_up(ask, channel)
            return
        if isinstance(ask.request, JoinAgain) and isinstance(answer, Fenced):
            self._refused_to_join(ask)
        else:
            self._told(ask, answer)
        self._over(channel, ask)

    def _give_up(self, ask: Ask, channel: int) -> None:
        if ask is self._asked[channel]:
            self._told(ask, DeadlineExceeded("not heard"))
            self._over(channel, ask)

    def _send(self, ask: Ask, known: Hears, unanswered: Callable[[], None]) -> None:
        request, join = ask.request, None
        if isinstance(request, JoinAgain):
            join = Join((replace(self.member, incarnation=self.incarnation),))

        def make(coordinator: CoordinatorProcess, respond: Respond) -> None:
            if isinstance(request, Heartbeat):
                coordinator.heartbeat(request, ask.hold_ms, respond)
            elif isinstance(request, ReportFenced):
                coordinator.report_fenced(respond)
            elif isinstance(request, JoinAgain):
                assert join is not None
                coordinator.receive(join, respond)
            else:
                coordinator.receive(request, respond)

        def leaves() -> None:
            if isinstance(request, Commit | Release):
                partitions = tuple(row.partition for row in request.rows)
                self._record_asked(request.incarnation, type(request).__name__, partitions)

        if isinstance(request, Prepared):
            self._record_asked(request.incarnation, "Prepared", request.partitions)
        self.link.ask(_wait_ms(ask), make, known, unanswered, leaves)

    def _told(self, ask: Ask, answer: Response | PxrsError) -> None:
        """Feed it in; what it makes of it is carried out by who calls."""
        machine, now_s, request = self.machine, self._now_s(), ask.request
        if isinstance(answer, PxrsError):
            if not machine.refused(ask, answer, now_s):
                text = f"{self.name} was refused"
                self.world.record(Failed(self.world.now_ms, text, repr(answer)))
            return
        session, seen = machine.session, machine.session.seen
        if isinstance(request, JoinAgain):
            machine.answered(ask, Joined(self.incarnation, answer.assignment), now_s)
        elif isinstance(request, Commit):
            machine.answered(ask, answer.outcomes, now_s)
        else:
            machine.answered(ask, answer, now_s)
        changed = machine.session is not session or machine.session.seen != seen
        if changed and machine.session.seen != (0, 0):
            assert answer.assignment is not None
            self.world.record(Obeyed(self.world.now_ms, answer.assignment))

    def _refused_to_join(self, ask: Ask) -> None:
        """It is too old to join; another one may have taken its place."""
        if self.joined or ask.session is not self.machine.session:
            return
        if self.cluster.is_replaced(self) and self.world.chance(0.5):
            self._told(ask, Fenced("it was replaced"))
        else:
            self.incarnation = self.cluster.next_incarnation(self.name)

    # --- reading ----------------------------------------------------------------------------------

    def _fetch(self, fetch: Fetch) -> None:
        log, incarnation = self.cluster.find_log(), fetch.session.incarnation
        self._record_asked(incarnation, "fetch", tuple(fetch.positions))
        call(
            self,
            log,
            lambda respond: log.fetch(self.name, incarnation, fetch.positions, respond),
            partial(self._served, fetch),
        )
        # A line that is broken is noticed after a while.
        self.after(2 * WAIT_MS, partial(self._unserved, fetch))

    def _served(self, fetch: Fetch, found: Found) -> None:
        if found is None:
            self._unserved(fetch)
            return
        parts = [part_of(part, fetch.positions) for part in found]
        self.machine.fetched(fetch, parts, self._now_s())
        self._over(READING, fetch)

    def _unserved(self, fetch: Fetch) -> None:
        if fetch is self._asked[READING]:
            incarnation = fetch.session.incarnation
            self.world.record(Unserved(self.world.now_ms, self.name, incarnation))
            self.machine.fetch_away(fetch, self._now_s())
            self._over(READING, fetch)

    def _record_asked(
        self, incarnation: Incarnation, what: str, partitions: tuple[PartitionId, ...]
    ) -> None:
        asked = Asked(self.world.now_ms, self.name, incarnation, what, partitions)
        self.world.record(asked)

    # --- effects ----------------------------------------------------------------------------------

    def carry_out(self) -> None:
        """Do what the machine wants done here, and look at the channels that it wakes."""
        if self._carrying:
            return
        self._carrying = True
        try:
            while True:
                while (effect := self.machine.take_effect()) is not None:
                    if isinstance(effect, WakeChannel):
                        self._woken[effect.channel] = None
                    else:
                        self._do(effect)
                if not self._woken or not self.alive:
                    return
                channel = next(iter(self._woken))
                del self._woken[channel]
                self._wake(channel)
        finally:
            self._carrying = False

    def _do(self, effect: MemberEffect) -> None:
        match effect:
            case TakeIn():
                batch, size_bytes = effect.batch, effect.size_bytes
                self.work.take_in(effect.partition, effect.epoch, batch, size_bytes)
            case SkipTo():
                self.work.skip(effect.partition, effect.epoch, effect.to)
            case LeaseRenewed():
                self.work.leased()
            case RoundOver():
                self._promises.check(self.machine)
                self.work.round_over()
            case BeginWork():
                self.work.begin(self.machine.session, effect.grant)
            case DrainWork():
                self.work.drain(effect.partition)
            case DropWork():
                self.work.drop(effect.partition)
            case Prepare():
                loads_ms = self.world.random.choice((5, 100, 900))
                self.after(loads_ms, partial(self._prepared, effect.grant.partition))
            case MemberEnded():
                self.crash()

    def _prepared(self, partition: PartitionId) -> None:
        """It is loaded, whoever we are by now."""
        ask = self.machine.prepared(partition, self._now_s())
        if ask is not None:
            self._send(ask, lambda _: None, lambda: None)

    # --- what workers say -------------------------------------------------------------------------

    def _may_begin(self) -> bool:
        return not self.machine.lease.is_over(self._now_s())

    def promise(
        self, round_: int, partition: PartitionId, epoch: Epoch, checkpoint: Offset
    ) -> None:
        """When this round of commits is over, so much is committed, if it is still ours."""
        self._promises.add(round_, self.machine.session, partition, epoch, checkpoint)

    def die(self) -> None:
        """A handler has ended its process."""
        self.cluster.crash_consumer(self, by_itself=True)


def _wait_ms(ask: Ask) -> int:
    """For how long it is asked. No coordinator of a simulation takes as long as one may take."""
    if isinstance(ask.request, Heartbeat) and ask.wait_s is not None:
        return int(ask.wait_s * 1_000)
    return ANSWER_MS if ask.wait_s is None else min(ANSWER_MS, int(ask.wait_s * 1_000))
