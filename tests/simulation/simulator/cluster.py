"""Everybody of one simulated group, and who replaces whom."""

from __future__ import annotations

from collections.abc import Mapping

from pxrs_ray.group.events import Died, Dismiss, Event
from pxrs_ray.model import Epoch, Incarnation, Member, MemberId, PartitionId
from pxrs_ray.testing.faults import FaultyStore
from tests.settings import group_settings
from tests.simulation.history import Ended
from tests.simulation.simulator.asking import OperatorProcess
from tests.simulation.simulator.buffer import BufferProcess
from tests.simulation.simulator.buffer_lives import Witness
from tests.simulation.simulator.consumer import ConsumerProcess
from tests.simulation.simulator.coordinator import CoordinatorProcess
from tests.simulation.simulator.disk import SimulatedDisk
from tests.simulation.simulator.keeper import KeeperProcess
from tests.simulation.simulator.producer import ProducerProcess
from tests.simulation.simulator.store import GROUP, RecordingStore
from tests.simulation.simulator.world import Action, Process, World, forget, send

SUPERVISE_MS = 40


class Cluster(Process):
    """The machines: they start processes, notice deaths, and know names."""

    role = "cluster"

    def __init__(self, world: World, seed: int) -> None:
        super().__init__(world, "cluster")
        scenario = world.scenario
        self.settings = group_settings(
            lease_ms=scenario.lease_ms,
            revoke_deadline_ms=scenario.revoke_deadline_ms,
            prepare_ms=scenario.prepare_ms,
        )
        self.registry = RecordingStore(world)
        self.store = FaultyStore(self.registry, seed)
        witness = Witness(scenario.partitions)
        disk = SimulatedDisk(seed, scenario.disk_bytes, tears=scenario.framed)
        self.log = BufferProcess(world, disk, witness)
        # Who had its name before, and is not ended yet.
        self.former_logs: list[BufferProcess] = []
        self.keeper = KeeperProcess(self)
        self.coordinators: list[CoordinatorProcess] = []
        self.consumers: list[ConsumerProcess] = []
        # The newest life of each name; `lives` are all that there were.
        self.producers: list[ProducerProcess] = []
        self.lives: list[ProducerProcess] = []
        self.wanted: dict[MemberId, Member] = {}
        self._incarnations: dict[MemberId, Incarnation] = {}
        self._members_made = 0
        self.calm = False
        self.operator = OperatorProcess(self)
        self.start_coordinator()
        for _ in range(scenario.members):
            self.add_member()
        for number in range(scenario.producers):
            self.producers.append(self.start_producer(f"producer-{number}"))
        self.every(SUPERVISE_MS, self._supervise)

    # --- who is who -----------------------------------------------------------------------------

    def newest_coordinator(self) -> CoordinatorProcess:
        """Who answers to the coordinator's name."""
        return self.coordinators[-1]

    def find_coordinator(self) -> CoordinatorProcess:
        """Who a client finds under the coordinator's name: sometimes, still an older one."""
        older = [c for c in self.coordinators[:-1] if c.alive]
        if older and not self.calm and self.world.chance(self.world.scenario.stale_name):
            return self.world.random.choice(older)
        return self.newest_coordinator()

    def coordinator_ended(self, coordinator: CoordinatorProcess) -> None:
        """A coordinator's process has ended: its callers hear so."""
        for consumer in self.live_consumers():
            consumer.link.ended(coordinator)
        self.operator.link.ended(coordinator)

    def next_incarnation(self, member: MemberId) -> Incarnation:
        """A number above every one that was given to this id."""
        self._incarnations[member] = self._incarnations.get(member, 0) + 1
        return self._incarnations[member]

    def live_consumers(self) -> list[ConsumerProcess]:
        """The consumer processes that have not ended."""
        return [consumer for consumer in self.consumers if consumer.alive]

    def is_replaced(self, consumer: ConsumerProcess) -> bool:
        """Whether a younger process works for the same member as this live one."""
        youngest = next(c for c in reversed(self.consumers) if c.alive and c.name == consumer.name)
        return youngest is not consumer

    def find_log(self) -> BufferProcess:
        """Whom a client reaches as the buffer: sometimes, still a process that was replaced."""
        former = [log for log in self.former_logs if log.alive]
        if former and not self.calm and self.world.chance(0.5):
            return former[-1]
        return self.log

    # --- starting and ending --------------------------------------------------------------------

    def start_coordinator(self) -> CoordinatorProcess:
        """Start a coordinator, whatever became of the one before."""
        coordinator = CoordinatorProcess(self, len(self.coordinators))
        self.coordinators.append(coordinator)
        return coordinator

    def start_producer(self, name: str) -> ProducerProcess:
        """Start a life of a producer, whatever became of the one before."""
        life = ProducerProcess(self, name)
        self.lives.append(life)
        return life

    def add_member(self) -> None:
        """Want one more member."""
        dice, scenario = self.world.random, self.world.scenario
        name = f"m{self._members_made}"
        self._members_made += 1
        grace_ms = scenario.grace_ms if self.world.chance(scenario.grace_share) else 0
        member = Member(name, 1, dice.choice((1.0, 1.0, 1.0, 2.0)), grace_ms)
        self.wanted[name] = member
        self.start_consumer(member)

    def start_consumer(self, member: Member) -> None:
        """Start a process for `member`, whatever became of the one before."""
        self.consumers.append(ConsumerProcess(self, member))

    def replace_log(self, disk: SimulatedDisk | None = None) -> BufferProcess:
        """Start another process under the buffer's name, whatever the one before is at.

        It is on the same disk, or on `disk`: the answer is the one before.
        """
        former = self.log
        former.named = False
        self.former_logs.append(former)
        self.log = BufferProcess(
            self.world, disk or former.disk, former.witness, f"log-{len(self.former_logs)}"
        )
        self.log.slow = former.slow
        if disk is not None:
            self.keeper.moved()
        return former

    def end_former_logs(self) -> None:
        """Nobody is left but the process that has the buffer's name."""
        for former in self.former_logs:
            former.crash()

    def crash_consumer(self, consumer: ConsumerProcess, *, by_itself: bool = False) -> None:
        """End a consumer process; perhaps somebody notices, and reads what it had in hand."""
        death = consumer.work.death(by_itself=by_itself)
        consumer.crash()
        if self.calm or self.world.chance(self.world.scenario.death_noticed):
            died = Died(consumer.name, consumer.incarnation, "killed", death)
            self.tell_coordinators(died)

    def tell_coordinators(self, event: Event) -> None:
        """Let every coordinator know; nobody waits for an answer."""
        for coordinator in self.coordinators:
            if coordinator.alive:
                send(self, coordinator, _receiving(coordinator, event))

    def _supervise(self) -> None:
        """Start anew what has ended and is still wanted."""
        if not self.newest_coordinator().alive:
            self.start_coordinator()
        at_work = {consumer.name for consumer in self.consumers if consumer.alive}
        for name, member in self.wanted.items():
            if name not in at_work and self.world.chance(0.2):
                self.start_consumer(member)

    def close(self) -> None:
        """Give back what the run held.

        Processes know one another, and themselves: that is cut here, for whatever a run leaves to
        the garbage collector costs as much as the run.
        """
        for log in (self.log, *self.former_logs):
            log.life = None
        for consumer in self.consumers:
            forget(consumer.machine)
        for process in (
            *self.coordinators,
            *self.consumers,
            *self.former_logs,
            *self.lives,
            self.log,
            self.keeper,
            self.operator,
            self,
        ):
            forget(process)

    # --- effects of coordinators ----------------------------------------------------------------

    def fence(self, source: Process, epochs: Mapping[PartitionId, Epoch]) -> None:
        """Tell the log which epochs are over; nobody notices when this is lost."""
        send(source, self.log, lambda: self.log.fence(epochs))

    def dismiss(self, source: Process, effect: Dismiss) -> None:
        """End the process of this incarnation; nobody notices when this is lost."""
        if self.world.chance(self.world.scenario.dismiss_lost):
            return
        for consumer in self.consumers:
            if (consumer.name, consumer.incarnation) == (effect.member, effect.incarnation):
                send(source, consumer, consumer.crash)

    # --- the end --------------------------------------------------------------------------------

    def _leading(self) -> CoordinatorProcess | None:
        """Who leads: the newest process may have come first, and be none the wiser while idle."""
        alive = [c for c in self.coordinators if c.alive and c.core is not None]
        return max(alive, key=lambda c: c.runtime.core.state.generation, default=None)

    def ended(self) -> Ended:
        """Where everything stands; `pending` is empty when nothing waits for anything."""
        snapshot = self.registry.load(GROUP)
        rows = snapshot.partitions if snapshot else ()
        ends = {p: self.log.end(p) for p in range(self.world.scenario.partitions)}
        live = self.live_consumers()
        members = sorted((c.name, c.incarnation) for c in live if c.joined)
        pending = [f"{p.name} has unsent messages" for p in self.lives if p.alive and not p.idle()]
        pending.extend(f"{c.name} has not left" for c in live if c.leaving)
        if not self.log.is_well():
            pending.append("the buffer does not serve every log")
        leading = self._leading()
        if leading is None:
            pending.append("nobody leads")
        else:
            core = leading.runtime.core
            pending.extend(f"partition {p} is asked back" for p in core.state.revoking)
            pending.extend(f"partition {p} waits for its next owner" for p in core.state.preparing)
            if leading.queue.durable != core.records_emitted:
                pending.append("records wait for the store")
            if core.state.members.keys() != {name for name, _ in members}:
                pending.append(f"members are {sorted(core.state.members)}")
        for row in rows:
            if (row.owner, row.incarnation) not in members:
                pending.append(f"partition {row.partition} has no live owner: {row}")
            elif row.checkpoint != ends[row.partition]:
                pending.append(f"partition {row.partition} is at {row.checkpoint}: {row}")
        return Ended(self.world.now_ms, rows, ends, tuple(members), tuple(pending))


def _receiving(coordinator: CoordinatorProcess, event: Event) -> Action:
    return lambda: coordinator.receive(event, lambda _: None)
