"""One incarnation of the coordinator: the `GroupRuntime` that ships, over a simulated store.

Rules of this file. Nothing is decided here. Requests, answers of the store and time are brought to
the runtime, and what it leaves is carried over the network. What it takes, answers and decides is
written down.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pxrs_ray.clock import Instant
from pxrs_ray.errors import CoordinatorDeposed, PxrsError, StoreUnavailable, UnknownMember
from pxrs_ray.group.events import (
    Commit,
    Decision,
    Dismiss,
    Event,
    FenceReaders,
    Heartbeat,
    Leave,
    Prepared,
    Release,
    Response,
)
from pxrs_ray.group.group_coordinator import GroupCoordinator
from pxrs_ray.group.group_runtime import GroupRuntime
from pxrs_ray.group.group_state import GroupSettings
from pxrs_ray.group.rebalance import sharing_members
from pxrs_ray.group.runtime_effects import (
    Deposed,
    Faulted,
    GroupAnswer,
    LeadAgain,
    LoadAgain,
    Output,
    Refusal,
    RenewLeases,
    StoreCall,
    TrimHistory,
    WriteRecords,
)
from pxrs_ray.group.write_queue import WriteQueue
from pxrs_ray.model import MemberId, PartitionId, Snapshot
from pxrs_ray.supervision.registry_watch import RegistryWatch
from tests.simulation.history import Answered, Decided, Failed, Refused, Told
from tests.simulation.simulator.store import GROUP, store_call
from tests.simulation.simulator.world import Process, once

if TYPE_CHECKING:
    from tests.simulation.simulator.cluster import Cluster

Respond = Callable[[Response | PxrsError], None]

RETRY_MS = 30
# A store's driver gives a call up after so long, and what became of it is not known.
CALL_DEADLINE_MS = 250
HISTORY_KEEP = 40


class BrokenOnPurpose(Exception):
    """Something of the group failed that chaos made fail."""


class CoordinatorProcess(Process):
    """A process that leads the group, from `boot` until it crashes or is deposed."""

    role = "coordinator"

    def __init__(self, cluster: Cluster, number: int) -> None:
        super().__init__(cluster.world, f"coordinator-{number}")
        self.cluster = cluster
        self.leads = False
        self._registry = RegistryWatch()
        self.runtime = GroupRuntime(GROUP, self._registry, HISTORY_KEEP, self._recorded)
        self.runtime.writer.batch_records_max = self.world.scenario.write_records_max
        self._alarm_ms: int | None = None
        self._lead()

    @property
    def core(self) -> GroupCoordinator | None:
        """Who decides; None until this process leads."""
        return self.runtime.core if self.leads else None

    @property
    def queue(self) -> WriteQueue:
        """What is decided and not durable."""
        return self.runtime.queue

    def crash(self) -> None:
        """End; whoever waits for it hears so."""
        super().crash()
        self.cluster.coordinator_ended(self)

    # --- starting ---------------------------------------------------------------------------------

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
        self.leads = True
        self.runtime.begin(answer, self.cluster.settings, self.now())
        self._carry_out()

    def _recorded(
        self, snapshot: Snapshot, settings: GroupSettings, now: Instant
    ) -> GroupCoordinator:
        return _Recorded(self, snapshot, settings, now)

    # --- requests ---------------------------------------------------------------------------------

    def receive(self, event: Event, respond: Respond) -> None:
        """Decide `event`; the reply leaves when what it rests on is durable."""
        if self.leads:
            self.runtime.submit(event, (event, respond), self.now())
            self._carry_out()

    def report_fenced(self, respond: Respond) -> None:
        """A member says that logs have refused it. They are right: no registry is lost here."""
        if self.core is not None:
            respond(Response(self.core.state.generation))

    def heartbeat(self, heartbeat: Heartbeat, wait_ms: int, respond: Respond) -> None:
        """Renew a lease; answer when the member has an assignment that it has not seen."""
        if self.leads:
            self.runtime.heartbeat(heartbeat, wait_ms, (heartbeat, respond), self.now())
            self._carry_out()

    def break_group(self) -> None:
        """Something of the group fails: it is loaded again."""
        if self.leads:
            self.runtime.failed(BrokenOnPurpose(), self.now())
            self._carry_out()

    # --- what the runtime wants done --------------------------------------------------------------

    def _carry_out(self) -> None:
        outputs = self.runtime.outputs
        while outputs and self.alive:
            self._do(outputs.pop(0))
        self._set_alarm()

    def _do(self, output: Output) -> None:
        match output:
            case GroupAnswer((event, respond), reply):
                assert reply is not None
                self._answer(event, reply, respond)
            case Refusal((event, respond), error):
                self._refuse(event, error, respond)
            case FenceReaders(epochs):
                self.cluster.fence(self, epochs)
            case Dismiss():
                self.cluster.dismiss(self, output)
            case Deposed():
                self.crash()
            # A store that is away while a broken group is loaded again makes that fail too.
            case Faulted(error) if not isinstance(error, BrokenOnPurpose | StoreUnavailable):
                self.fail("in its group", error)
            case WriteRecords() | LoadAgain() | LeadAgain() | RenewLeases() | TrimHistory():
                self._call(output)

    def _answer(self, event: Event, reply: Response, respond: Respond) -> None:
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

    def _refuse(self, event: Event, error: BaseException, respond: Respond) -> None:
        if isinstance(error, UnknownMember):
            assert isinstance(event, Heartbeat | Commit | Release | Prepared | Leave)
            generation = self.runtime.core.state.generation
            self.world.record(
                Refused(self.world.now_ms, generation, event.member, event.incarnation)
            )
        assert isinstance(error, PxrsError), f"{event} was refused with {error!r}"
        respond(error.with_traceback(None))  # with it, it would keep everybody

    def fail(self, where: str, error: BaseException) -> None:
        """Record what should never happen, and end."""
        text = f"{type(error).__name__}: {error}"
        self.world.record(Failed(self.world.now_ms, f"{self.name} {where}", text))
        self.crash()

    # --- the store --------------------------------------------------------------------------------

    def _call(self, call: StoreCall) -> None:
        """Make a call of the store; it has one answer, at its deadline if no other came."""
        self._registry.asked(self.now().monotonic_ms)
        answer: list[Any] = []

        def tell() -> None:
            self._heard_store(answer[0])
            self.runtime.answered(call, answer[0], self.now())
            self._carry_out()

        tell_once = once(tell)

        def known(given: Any) -> None:
            answer.append(given)
            tell_once()

        store_call(self, self._made(call), known, self.world.scenario.write_latency_ms)
        self.after(CALL_DEADLINE_MS, lambda: known(StoreUnavailable("no answer in time")))

    def _made(self, call: StoreCall) -> Callable[[], Any]:
        store = self.cluster.store
        match call:
            case WriteRecords(generation, batch):
                return lambda: store.write(GROUP, generation, batch.records)
            case LoadAgain():
                return lambda: store.load(GROUP)
            case LeadAgain():
                return self._lead_again
            case RenewLeases(generation, members, lease_ms):
                return lambda: store.renew(GROUP, generation, members, lease_ms)
            case TrimHistory(generation, keep):
                return lambda: store.trim_changes(GROUP, generation, keep)

    def _lead_again(self) -> Snapshot:
        """As the shell does: unless a newer coordinator leads."""
        generation = self.runtime.core.state.generation
        found = self.cluster.store.load(GROUP)
        if found is not None and found.generation > generation:
            raise CoordinatorDeposed("a newer coordinator leads")
        return self.cluster.store.lead(GROUP, self.world.scenario.partitions, self.name)

    def _heard_store(self, answer: object) -> None:
        """Learn from how a call has ended whether the registry is there."""
        if isinstance(answer, StoreUnavailable):
            self._registry.failed(self.now().monotonic_ms)
        else:
            self._registry.answered()

    # --- time -------------------------------------------------------------------------------------

    def _set_alarm(self) -> None:
        wake_ms = self.runtime.wake_ms()
        if wake_ms is None or (self._alarm_ms is not None and self._alarm_ms <= wake_ms):
            return
        self._alarm_ms = wake_ms
        self.after(max(1, wake_ms - self.now().monotonic_ms), lambda: self._wake(wake_ms))

    def _wake(self, alarm_ms: int) -> None:
        if self._alarm_ms == alarm_ms:
            self._alarm_ms = None
            self.runtime.wake(self.now())
            self._carry_out()


class _Recorded(GroupCoordinator):
    """A coordinator whose decisions are written down, with what they were measured against."""

    def __init__(
        self, process: CoordinatorProcess, snapshot: Snapshot, settings: GroupSettings, now: Instant
    ) -> None:
        super().__init__(snapshot, settings, now)
        self._process = process

    def start(self, now: Instant) -> Decision:
        before = _expected_owners(self)
        return self._record(None, super().start(now), before, now)

    def handle(self, event: Event, now: Instant) -> Decision:
        # Neither moves anything, and they are most of what comes.
        moves = not isinstance(event, Commit | Heartbeat)
        before = _expected_owners(self) if moves else {}
        return self._record(event, super().handle(event, now), before, now)

    def _record(
        self,
        event: Event | None,
        decision: Decision,
        before: dict[PartitionId, MemberId],
        now: Instant,
    ) -> Decision:
        world = self._process.world
        world.record(
            Decided(
                world.now_ms,
                now.monotonic_ms,
                self.state.generation,
                event,
                decision.records,
                tuple(sharing_members(self.state)),
                self.settings.assignor,
                before,
                dict(self.state.target),
                frozenset(self.state.revoking),
                frozenset(self.state.seeks),
                self.settings.lease_ms,
                self.settings.revoke_deadline_ms,
            )
        )
        return decision


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
