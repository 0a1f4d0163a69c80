"""One incarnation of the coordinator: the real core in the shell that the Ray actor is.

Rules of this file, the same as the real shell's. A decision's records go to the `WriteQueue`; one
batch is written at a time, and repeated until its outcome is known; whatever a decision says to
anybody waits until `durable` has reached its `after`. A refusal is settled by reading again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from pxrs_ray.errors import (
    CoordinatorDeposed,
    Fenced,
    NotFound,
    PxrsError,
    StoreUnavailable,
    UnknownMember,
    UsageError,
)
from pxrs_ray.group.decision import refusal_after
from pxrs_ray.group.events import (
    AssignmentChanged,
    Commit,
    Decision,
    Dismiss,
    Event,
    FenceReaders,
    Heartbeat,
    Leave,
    Prepared,
    Release,
    Reply,
    Tick,
)
from pxrs_ray.group.group_coordinator import GroupCoordinator
from pxrs_ray.group.rebalance import sharing_members
from pxrs_ray.group.write_queue import WriteBatch, WriteQueue, check_stored
from pxrs_ray.model import MemberId, Outcome, PartitionId, Snapshot
from pxrs_ray.supervision.registry_watch import RegistryWatch, notice_ms
from tests.simulation.history import Answered, Decided, Failed, Refused, Told
from tests.simulation.simulator.store import GROUP, store_call
from tests.simulation.simulator.world import Action, Process

if TYPE_CHECKING:
    from tests.simulation.simulator.cluster import Cluster

Respond = Callable[[Reply | PxrsError], None]

RETRY_MS = 30
WRITE_DEADLINE_MS = 250


class CoordinatorProcess(Process):
    """A process that leads the group, from `boot` until it crashes or is deposed."""

    role = "coordinator"

    def __init__(self, cluster: Cluster, number: int) -> None:
        super().__init__(cluster.world, f"coordinator-{number}")
        self.cluster = cluster
        self.core: GroupCoordinator | None = None
        self.queue = WriteQueue()
        self._registry = RegistryWatch()
        self._waiting: deque[tuple[int, Action]] = deque()
        self._heartbeats: dict[MemberId, list[Action]] = {}
        self._attempt = 0
        self._lead()

    # --- starting -------------------------------------------------------------------------------

    def _lead(self) -> None:
        store, scenario = self.cluster.store, self.world.scenario
        store_call(
            self,
            lambda: store.lead(GROUP, scenario.partitions, self.name),
            self._led,
            scenario.write_latency_ms,
        )

    def _led(self, answer: Snapshot | PxrsError) -> None:
        if isinstance(answer, PxrsError):
            self.after(RETRY_MS, self._lead)
            return
        self.core = GroupCoordinator(answer, self.cluster.settings, self.now())
        self._decide(None, lambda core: core.start(self.now()))
        self.every(max(10, self.world.scenario.lease_ms // 10), self._tick)
        self.every(self.world.scenario.lease_ms, self._renew)

    def _tick(self) -> None:
        now_ms, notice = self.now().monotonic_ms, notice_ms(self.cluster.settings.lease_ms)
        tick = Tick(registry_away=self._registry.away_ms(now_ms, notice) is not None)
        self._decide(tick, lambda core: core.handle(tick, self.now()))

    def _heard_store(self, answer: object) -> None:
        """Learn from how a call has ended whether the registry is there."""
        if isinstance(answer, StoreUnavailable):
            self._registry.failed(self.now().monotonic_ms)
        else:
            self._registry.answered()

    def _renew(self) -> None:
        """Keep the store's leases. One that may not any more has been replaced, and ends."""
        core, store = self.core, self.cluster.store
        assert core is not None
        generation = core.state.generation
        members = [(s.member.member, s.member.incarnation) for s in core.state.members.values()]

        def known(answer: list[Outcome] | PxrsError) -> None:
            self._heard_store(answer)
            if isinstance(answer, list) and (not members or Outcome.FENCED in answer):
                store_call(self, lambda: store.load(GROUP), look, 1)

        def look(answer: Snapshot | PxrsError | None) -> None:
            if isinstance(answer, Snapshot) and answer.generation > generation:
                self.crash()

        store_call(
            self,
            lambda: store.renew(GROUP, generation, members, core.settings.lease_ms),
            known,
            self.world.scenario.write_latency_ms,
        )

    # --- events ---------------------------------------------------------------------------------

    def receive(self, event: Event, respond: Respond) -> None:
        """Decide `event`; the reply leaves when what it rests on is durable."""
        if self.core is None:
            return
        decision = self._decide(event, lambda core: core.handle(event, self.now()), respond)
        if decision is None:
            return
        reply = decision.reply
        assert reply is not None
        self._later(decision.after, lambda: self._answer(event, reply, respond))

    def heartbeat(self, heartbeat: Heartbeat, wait_ms: int, respond: Respond) -> None:
        """Renew a lease; answer when the member has an assignment that it has not seen.

        After `wait_ms` it is answered without one, also where the newest is not durable.
        """
        core = self.core
        if core is None:
            return
        decision = self._decide(heartbeat, lambda core: core.handle(heartbeat, self.now()), respond)
        if decision is None:
            return
        assert decision.reply is not None
        heard = replace(decision.reply, assignment=None)
        answered = False

        def answer(reply: Reply) -> None:
            nonlocal answered
            if not answered:
                answered = True
                self._answer(heartbeat, reply, respond)

        def take(reply: Reply, after: int) -> None:
            if reply.assignment is not None:
                self._later(after, lambda: answer(reply))
            else:
                self._heartbeats.setdefault(heartbeat.member, []).append(look)

        def look() -> None:
            if answered:
                return
            try:
                news = core.news(heartbeat, heard.lease_ms)
            except Fenced as refused:
                self._refuse(heartbeat, refused, respond)
                return
            assert news.reply is not None
            take(news.reply, news.after)

        take(decision.reply, decision.after)
        self.after(wait_ms, lambda: answer(heard))

    def _decide(
        self,
        event: Event | None,
        decide: Callable[[GroupCoordinator], Decision],
        respond: Respond | None = None,
    ) -> Decision | None:
        """Let the core decide; what it refuses goes back, what it never should raise is recorded.

        A crash of the core is a crash of the process, as with a real one.
        """
        core = self.core
        assert core is not None
        before = _expected_owners(core)
        try:
            decision = decide(core)
        except (Fenced, UsageError, NotFound) as refused:
            if respond is None:
                raise
            self._refuse(event, refused, respond)
            return None
        except (AssertionError, PxrsError) as error:
            self.fail(f"handling {event}", error)
            return None
        self._record(event, decision, before)
        self.queue.push(decision.records)
        if decision.effects:
            self._later(decision.after, lambda: self._carry_out(decision))
        self._write_next()
        return decision

    def _refuse(self, event: Event | None, refused: PxrsError, respond: Respond) -> None:
        """A refusal rests on what was decided before, as an answer does."""
        core = self.core
        assert core is not None

        def tell() -> None:
            if isinstance(refused, UnknownMember):
                assert isinstance(event, Heartbeat | Commit | Release | Prepared | Leave)
                self.world.record(
                    Refused(
                        self.world.now_ms, core.state.generation, event.member, event.incarnation
                    )
                )
            respond(refused)

        self._later(refusal_after(refused, core.records_emitted), tell)

    def _record(
        self, event: Event | None, decision: Decision, before: dict[PartitionId, MemberId]
    ) -> None:
        core, now = self.core, self.now()
        assert core is not None
        self.world.record(
            Decided(
                self.world.now_ms,
                now.monotonic_ms,
                core.state.generation,
                event,
                decision.records,
                tuple(sharing_members(core.state)),
                core.settings.assignor,
                before,
                dict(core.state.target),
                frozenset(core.state.revoking),
                frozenset(core.state.seeks),
                core.settings.lease_ms,
                core.settings.revoke_deadline_ms,
            )
        )

    def fail(self, where: str, error: BaseException) -> None:
        """Record what should never happen, and end."""
        text = f"{type(error).__name__}: {error}"
        self.world.record(Failed(self.world.now_ms, f"{self.name} {where}", text))
        self.crash()

    # --- what leaves ----------------------------------------------------------------------------

    def _later(self, after: int, do: Action) -> None:
        if after <= self.queue.durable:
            do()
        else:
            self._waiting.append((after, do))

    def _answer(self, event: Event, reply: Reply, respond: Respond) -> None:
        if isinstance(event, Commit | Release):
            self.world.record(
                Answered(
                    self.world.now_ms,
                    reply.generation,
                    event.member,
                    event.incarnation,
                    event.rows,
                    reply.outcomes,
                    isinstance(event, Release),
                )
            )
        if reply.assignment is not None:
            self.world.record(Told(self.world.now_ms, reply.assignment))
        respond(reply)

    def _carry_out(self, decision: Decision) -> None:
        for effect in decision.effects:
            match effect:
                case FenceReaders():
                    self.cluster.fence(self, effect.epochs)
                case Dismiss():
                    self.cluster.dismiss(self, effect)
                    self._wake(effect.member)
                case AssignmentChanged():
                    self._wake(effect.member)

    def _wake(self, member: MemberId) -> None:
        for look in self._heartbeats.pop(member, []):
            look()

    # --- the store ------------------------------------------------------------------------------

    def _write_next(self) -> None:
        batch = self.queue.take(self.world.scenario.write_records_max)
        if batch is not None:
            self._write(batch)

    def _write(self, batch: WriteBatch) -> None:
        """Write until the outcome is known; a late answer to an earlier try is not waited for."""
        core, store = self.core, self.cluster.store
        assert core is not None
        generation = core.state.generation
        self._attempt += 1
        attempt = self._attempt
        self._registry.asked(self.now().monotonic_ms)

        def known(answer: list[Outcome] | PxrsError) -> None:
            if attempt != self._attempt:
                return
            self._heard_store(answer)
            if isinstance(answer, StoreUnavailable):
                self._attempt += 1
                self.after(RETRY_MS, lambda: self._write(batch))
            elif isinstance(answer, PxrsError):
                self.fail("writing", answer)
            elif all(outcome is Outcome.APPLIED for outcome in answer):
                self._written()
            else:
                self._read_again(batch)

        store_call(
            self,
            lambda: store.write(GROUP, generation, batch.records),
            known,
            self.world.scenario.write_latency_ms,
        )
        self.after(WRITE_DEADLINE_MS, lambda: known(StoreUnavailable("no answer in time")))

    def _read_again(self, batch: WriteBatch) -> None:
        core, store = self.core, self.cluster.store
        assert core is not None
        generation = core.state.generation
        self._attempt += 1

        def known(answer: Snapshot | PxrsError | None) -> None:
            if isinstance(answer, PxrsError):
                self.after(RETRY_MS, lambda: self._read_again(batch))
                return
            try:
                check_stored(batch, answer, generation)
            except CoordinatorDeposed:
                self.crash()
            except PxrsError as error:
                self.fail("reading again", error)
            else:
                self._written()

        store_call(self, lambda: store.load(GROUP), known, self.world.scenario.write_latency_ms)

    def _written(self) -> None:
        self._attempt += 1
        self.queue.done()
        while self._waiting and self._waiting[0][0] <= self.queue.durable:
            self._waiting.popleft()[1]()
        self._write_next()


def _expected_owners(core: GroupCoordinator) -> dict[PartitionId, MemberId]:
    """Who has, or is about to get, each partition: what a new target is measured against."""
    state = core.state
    expected = {}
    for row in state.rows:
        moving = row.partition in state.revoking or row.partition in state.preparing
        settled = row.owner is not None and not moving
        holder = row.owner if settled else state.target.get(row.partition)
        if holder is not None:
            expected[row.partition] = holder
    return expected
