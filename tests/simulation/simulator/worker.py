"""The room of one simulated consumer: its workers, their gate, and what is in hand when it dies.

Rules of this file. Which worker has a partition says the `WorkerRoster` that ships; what waits for
it and how it ends, `WorkQueue` and `WorkEnd`; what an ordered one does next, `InOrder`; who may go
alone, `AloneGate`. Here they are carried on virtual time, with handlers that take their time, fail,
hang, and end their process. Nothing is decided of the group.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from pxrs_ray.config import GroupConfig
from pxrs_ray.config.scheduling import retry_rules
from pxrs_ray.consumer.member_machine import MemberMachine
from pxrs_ray.consumer.worker_roster import WorkerRoster
from pxrs_ray.errors import StoreCorrupted
from pxrs_ray.model import Epoch, Grant, Offset, PartitionId, Progress
from pxrs_ray.processing.alone_gate import AloneGate, Turn
from pxrs_ray.processing.commit_wait import CommitWait, CommitWaits
from pxrs_ray.processing.suspects import EXITED_ITSELF, Death, HandlerCall, Suspect
from tests.simulation.history import HandlersDied
from tests.simulation.simulator.frames import Line
from tests.simulation.simulator.in_order_worker import InOrderWorker
from tests.simulation.simulator.lane_worker import LaneWorker
from tests.simulation.simulator.worker_base import QUEUED_MAX as QUEUED_MAX
from tests.simulation.simulator.worker_base import SimulatedWorker
from tests.simulation.simulator.world import Process

# How often a worker waits until what it has done is committed.
COMMITS_NOW = 0.02
COMMIT_LOOK_MS = 100
EXIT_CODE = 3

Call = tuple[PartitionId, Epoch, Offset, Offset, int]


@dataclass(frozen=True, slots=True, eq=False)
class _Waits:
    """A worker waits until this round of commits is over."""

    round: int
    then: Callable[[], None]


class WorkMember(Protocol):
    """What the workers need of their process."""

    machine: MemberMachine

    def carry_out(self) -> None:
        """Do what the machine wants done."""

    def promise(
        self, round_: int, partition: PartitionId, epoch: Epoch, checkpoint: Offset
    ) -> None:
        """When this round of commits is over, so much is committed."""

    def die(self) -> None:
        """End at once; somebody may notice."""


class Work:
    """The workers of one process. `may_begin` is the lease's gate; `moved` hears of whatever may be
    committed."""

    def __init__(
        self,
        process: Process,
        member: WorkMember,
        may_begin: Callable[[], bool],
        moved: Callable[[], None],
    ) -> None:
        self.hang_ms = 0
        # Whether any progress may have changed; who looks at it takes this back.
        self.changed = True
        self.process, self.world, self.member = process, process.world, member
        self.may_begin, self._moved = may_begin, moved
        self.roster: WorkerRoster[SimulatedWorker] = WorkerRoster(self)
        self.gate = AloneGate()
        # What the handlers are called with, and since when: what is read of a dead process.
        self.in_hand: dict[object, Call] = {}
        self.waits_for_lease = False
        self.config = GroupConfig(
            queue="q",
            attempts_max=self.world.scenario.attempts_max,
            backoff_ms=5,
            backoff_ms_max=50,
            failure_policy="skip",
        )
        self.rules = retry_rules(self.config)
        self._turns: dict[object, Turn | None] = {}
        self._rests: dict[PartitionId, object] = {}
        self._commits: list[_Waits] = []

    def now_s(self) -> float:
        """The time by this process's monotonic clock."""
        return self.process.monotonic_ms() / 1_000

    # --- what the session asks --------------------------------------------------------------------

    def progress(self, partition: PartitionId, epoch: Epoch) -> Progress | None:
        """How far the work is."""
        worker = self.roster.find(partition, epoch)
        if worker is None:
            return None
        self.roster.told_progress(worker)
        return worker.progress()

    def queued_bytes(self, partition: PartitionId) -> int:
        """What waits for the handler; a message here is one byte."""
        worker = self.roster.find(partition)
        return worker.queue.queued_bytes if worker is not None else 0

    # --- what the machine says --------------------------------------------------------------------

    def begin(self, session: object, grant: Grant) -> None:
        """Put a worker on the partition."""
        self.roster.begin(grant)
        self.change()

    def take_in(self, partition: PartitionId, epoch: Epoch, batch: Any, size_bytes: int) -> None:
        """Messages came."""
        worker = self.roster.find(partition, epoch)
        if worker is not None:
            worker.queue.put(batch, size_bytes)
            worker.go_on()

    def skip(self, partition: PartitionId, epoch: Epoch, to: Offset) -> None:
        """The log has nothing before `to` any more; behind what came before, in its order."""
        worker = self.roster.find(partition, epoch)
        if worker is not None:
            worker.queue.skip(to)
            worker.go_on()

    def drain(self, partition: PartitionId) -> None:
        """Stop after what is in hand."""
        self.roster.stop(partition, self)

    def drop(self, partition: PartitionId) -> None:
        """It is lost; what is in hand is finished, and counts for nothing."""
        self.roster.stop(partition, self)

    def leave(self, then: Callable[[], None]) -> None:
        """Nothing has to be done before it leaves."""
        then()

    def leased(self) -> None:
        """The lease was renewed: whoever waited for that goes on."""
        if self.waits_for_lease and self.may_begin():
            self.waits_for_lease = False
            self.go_on()

    def go_on(self) -> None:
        """Begin what may begin."""
        for worker in self.roster:
            worker.go_on()

    def renew(self) -> None:
        """The options have changed: every worker is made anew."""
        for worker in self.roster:
            worker.end.renew()
            worker.go_on()

    # --- the roster: makes workers, and waits -----------------------------------------------------

    def make(self, grant: Grant, before: SimulatedWorker | None) -> SimulatedWorker | None:
        """A worker that has started; None where that failed."""
        try:
            kind = LaneWorker if self.world.scenario.lanes else InOrderWorker
            worker = kind(self, grant)
        except StoreCorrupted as error:
            self.roster.cannot_begin(grant, repr(error), self.now_s())
            return None
        worker.start(before)
        return worker

    def rest(self, partition: PartitionId, epoch: Epoch, pause_s: float, failure: Any) -> None:
        """Let the partition rest."""
        mark = self._rests[partition] = object()

        def rested() -> None:
            if self._rests.get(partition) is mark:
                del self._rests[partition]
                self.roster.rested(partition, self)
                self.change()

        self.process.after(1 + int(pause_s * 1_000), rested)

    def call_off(self, partition: PartitionId) -> None:
        """The partition rests no more."""
        self._rests.pop(partition, None)

    def begin_again(self, partition: PartitionId, epoch: Epoch) -> Grant | None:
        """As the owner of the workers: how to begin a partition anew."""
        grant = self.member.machine.begin_again(partition, epoch)
        # As an event loop does: what follows comes after the worker was replaced.
        self.process.after(0, self.member.carry_out)
        return grant

    def stopped(self, partition: PartitionId, epoch: Epoch) -> None:
        """As the owner of the workers: nothing of a partition is in flight."""
        self.member.machine.stopped(partition, epoch, self.now_s())
        self.member.carry_out()

    def ended(self, worker: SimulatedWorker) -> None:
        """A worker has come to its end."""
        self.give_up_turn(worker)
        self.in_hand.pop(worker, None)
        self.roster.ended(worker, self, self.now_s())

    # --- what workers say and want ----------------------------------------------------------------

    def room(self) -> None:
        """A worker that was full can take more."""
        self.member.machine.wake_reading()
        self.member.carry_out()

    def commit_soon(self) -> None:
        """So much is done that it is to be committed."""
        self.member.machine.progress.commit_soon()
        self.process.after(0, self.member.carry_out)

    def change(self) -> None:
        """Some progress may have changed."""
        if not self.changed:
            self.changed = True
            self._moved()

    def done(self, worker: SimulatedWorker) -> None:
        """A message is done; now and then somebody waits until that is committed."""
        if self.world.chance(COMMITS_NOW):
            self._promise(worker)
            self.member.carry_out()

    def _promise(self, worker: SimulatedWorker) -> int:
        round_ = self.member.machine.progress.commit_all()
        if worker.session is self.member.machine.session:
            done = worker.progress().checkpoint
            self.member.promise(round_, worker.partition, worker.epoch, done)
        return round_

    def await_commit(self, worker: SimulatedWorker, then: Callable[[], None]) -> None:
        """Do `then` when what is done now is committed, or lost; look at the wait now and then."""
        waiting = CommitWait(self.now_s())
        waits = _Waits(self._promise(worker), then)
        self._commits.append(waits)
        self.change()
        self.process.after(0, self.member.carry_out)
        self.process.after(COMMIT_LOOK_MS, partial(self._look, worker, waits, waiting))

    def _look(self, worker: SimulatedWorker, waits: _Waits, waiting: CommitWait) -> None:
        if waits not in self._commits:
            return
        try:
            told_to_stop = worker.end.told_to_stop
            found = waiting.look(self.now_s(), is_over=False, told_to_stop=told_to_stop)
        except TimeoutError:  # it ends the worker's thread
            self._commits.remove(waits)
            return
        if found is CommitWaits.LEAVE:
            self._commits.remove(waits)
            self.process.after(0, waits.then)
        else:
            self.process.after(COMMIT_LOOK_MS, partial(self._look, worker, waits, waiting))

    def round_over(self) -> None:
        """A round of commits is over."""
        rounds = self.member.machine.progress.rounds
        over = [one for one in self._commits if one.round <= rounds]
        self._commits = [one for one in self._commits if one.round > rounds]
        for one in over:
            self.process.after(0, one.then)

    def is_void(self, worker: SimulatedWorker) -> bool:
        """Whether the partition may be somebody else's: then a failure says nothing."""
        session = self.member.machine.session
        holds = worker.session is session and session.holds(worker.partition, worker.epoch)
        return not (holds and self.may_begin())

    # --- handlers, and what is in hand ------------------------------------------------------------

    def takes_ms(self) -> int:
        """How long the next call takes."""
        takes_ms = 1 + int(self.world.roll() * 12)
        if self.world.chance(0.01):
            takes_ms = self.world.random.randint(50, 1_000)
        if self.hang_ms:
            takes_ms, self.hang_ms = self.hang_ms, 0
        return takes_ms

    def enter(
        self, who: SimulatedWorker | object, first: Offset, end: Offset, suspect: Suspect | None
    ) -> bool:
        """Note that a call begins, as a record's slot does; False: not now, ask again."""
        now_s, place = self.now_s(), self._place(who)
        call = (*place, first, end, self.process.monotonic_ms())
        if suspect is None or not suspect.isolated:
            if not self.gate.is_open(now_s):
                return False
            self.in_hand[who] = call
            return True
        alone_s = suspect.alone_ms / 1_000
        if who not in self._turns:
            self._turns[who] = self.gate.line_up(suspect.age_ms)
        turn = self._turns[who]
        if turn is not None:
            if not self.gate.go_in(turn, who, alone_s, now_s):
                return False
            self._turns[who] = None
        if not self.gate.may_begin(alone_s, others=bool(self.in_hand), now_s=now_s):
            return False
        del self._turns[who]
        self.in_hand[who] = call
        return True

    def _place(self, who: Any) -> tuple[PartitionId, Epoch]:
        return (who.partition, who.epoch)

    def give_up_turn(self, who: object) -> None:
        if who in self._turns:
            turn = self._turns.pop(who)
            if turn is not None:
                self.gate.give_up(turn)
        self.gate.leave(who)

    def call_over(self, who: object) -> None:
        """The call has ended."""
        self.in_hand.pop(who, None)
        self.gate.leave(who)

    def kills(self, line: Line) -> bool:
        """Whether the call with this message ends its process."""
        if line.message not in self.world.deadly:
            return False
        self.member.die()
        return True

    def death(self, *, by_itself: bool) -> Death:
        """What is read of this process once it is dead."""
        now_ms = self.process.monotonic_ms()
        calls = tuple(
            HandlerCall(partition, epoch, first, end, max(0, now_ms - since_ms))
            for partition, epoch, first, end, since_ms in self.in_hand.values()
        )
        places = tuple((call.partition, call.first, call.end) for call in calls)
        self.world.record(HandlersDied(self.world.now_ms, self.process.name, places))
        return Death(calls, EXITED_ITSELF + EXIT_CODE if by_itself else 0)
