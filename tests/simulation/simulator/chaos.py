"""What goes wrong: one method a fault, drawn by the weights of the scenario, and the healing."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from pxrs_ray.group.events import Configure, Died, Rebalance, Seek
from pxrs_ray.testing.faults import Faults
from tests.simulation.history import Harmed, RegistryAway, Struck
from tests.simulation.simulator.cluster import Cluster
from tests.simulation.simulator.consumer import ConsumerProcess
from tests.simulation.simulator.disk import SimulatedDisk
from tests.simulation.simulator.scenario import Network
from tests.simulation.simulator.world import Action, Process

MEMBERS_MAX = 6


class Chaos:
    """Breaks things until it is told to heal them all."""

    def __init__(self, cluster: Cluster, seed: int, chosen: frozenset[int] | None = None) -> None:
        """Of the faults of this seed, by number, only the `chosen` ones happen (None: all)."""
        self.cluster = cluster
        self.world = cluster.world
        self.counts: dict[str, int] = {}
        self.struck: list[int] = []
        self._seed = seed
        self._chosen = chosen
        # When which fault comes is drawn of dice of its own, and each fault has its own: one that
        # is left out changes no other.
        self._plan = random.Random(f"chaos {seed}")
        self._dice = self._plan
        self._number = 0
        self._over = False
        weights = self.world.scenario.weights
        self._names = [name for name, weight in weights.items() if weight > 0]
        self._weights = [weights[name] for name in self._names]
        self._next()

    def heal(self) -> None:
        """Stop breaking things, and end every fault that would not end of itself."""
        self._over = True
        cluster, world = self.cluster, self.world
        world.network = Network()
        cluster.calm = True
        self._set_down(False)
        cluster.store.faults = Faults()
        cluster.store.deliver_late()
        cluster.end_former_logs()
        if cluster.log.disk.mend():
            cluster.log.restart(0)
        disk = cluster.log.disk
        disk.failing, disk.full, disk.spent, cluster.log.slow = 0.0, False, False, False
        for process in (*cluster.coordinators, *cluster.consumers, *cluster.lives, cluster.log):
            process.cut_from.clear()
            process.thaw()
        # Two of a name would fence each other for ever: the older one ends, as a node's would.
        for consumer in cluster.consumers:
            if consumer.alive and cluster.is_replaced(consumer):
                consumer.crash()
        for producer in cluster.lives:
            producer.sending = False
        if not cluster.wanted:
            cluster.add_member()
        self._calm_down()

    def _calm_down(self) -> None:
        """Configure the group for the end, until the coordinator that leads has taken it."""
        cluster = self.cluster
        cluster.settings = replace(cluster.settings, assignor="sticky", paused=False)
        core = cluster.newest_coordinator().core
        wrong = core is None or core.settings.paused or core.settings.assignor != "sticky"
        if wrong and cluster.operator.idle():
            cluster.operator.command(Configure(assignor="sticky", paused=False))
        # A command that was under way may yet come in.
        self.world.at(100, self._calm_down)

    def _next(self) -> None:
        if self._over or not self._names:
            return
        (name,) = self._plan.choices(self._names, self._weights)
        delay_ms = 1 + int(self._plan.expovariate(1 / self.world.scenario.fault_interval_ms))
        self._number += 1
        if self._chosen is None or self._number in self._chosen:
            self._strike(name)
        self.world.at(delay_ms, self._next)

    def _strike(self, name: str) -> None:
        self._dice = random.Random(f"fault {self._seed} {self._number}")
        self.counts[name] = self.counts.get(name, 0) + 1
        self.struck.append(self._number)
        self.world.record(Struck(self.world.now_ms, self._number, name))
        fault: Callable[[], None] = getattr(self, name)
        fault()

    # --- consumers ------------------------------------------------------------------------------

    def _consumer(self) -> ConsumerProcess | None:
        live = self.cluster.live_consumers()
        return self._dice.choice(live) if live else None

    def consumer_crash(self) -> None:
        """A consumer process is killed."""
        consumer = self._consumer()
        if consumer is not None:
            self.cluster.crash_consumer(consumer)

    def consumer_freeze(self) -> None:
        """A consumer process stands still, for less or more than its lease."""
        consumer = self._consumer()
        if consumer is not None:
            self._freeze(consumer)

    def _freeze(self, process: Process) -> None:
        lease_ms = self.world.scenario.lease_ms
        process.freeze()
        self.world.at(self._dice.randint(lease_ms // 4, 3 * lease_ms), process.thaw)

    def consumer_cut(self) -> None:
        """A consumer cannot reach the coordinator, or the log."""
        consumer = self._consumer()
        if consumer is not None:
            role = self._dice.choice(("coordinator", "coordinator", "log"))
            consumer.cut_from.add(role)
            lease_ms = self.world.scenario.lease_ms
            self.world.at(
                self._dice.randint(lease_ms // 2, 3 * lease_ms),
                lambda: consumer.cut_from.discard(role),
            )

    def false_death(self) -> None:
        """The coordinator is told of a death that did not happen."""
        consumer = self._consumer()
        if consumer is not None:
            self.cluster.tell_coordinators(Died(consumer.name, consumer.incarnation, "seems dead"))

    def twin(self) -> None:
        """A frozen process is replaced, and thaws."""
        consumer = self._consumer()
        if consumer is not None and consumer.name in self.cluster.wanted:
            self._freeze(consumer)
            self.cluster.start_consumer(self.cluster.wanted[consumer.name])

    def hang(self) -> None:
        """A handler takes very long."""
        consumer = self._consumer()
        if consumer is not None:
            consumer.work.hang_ms = self._dice.randint(500, 5_000)

    def leave(self) -> None:
        """A member goes, in good order."""
        consumer = self._consumer()
        if consumer is not None and len(self.cluster.wanted) > 1:
            self.cluster.wanted.pop(consumer.name, None)
            consumer.run(consumer.leave)

    def join(self) -> None:
        """A new member comes."""
        if len(self.cluster.wanted) < MEMBERS_MAX:
            self.cluster.add_member()

    # --- coordinators and the store -------------------------------------------------------------

    def coordinator_crash(self) -> None:
        """The coordinator is killed."""
        self.cluster.newest_coordinator().crash()

    def coordinator_freeze(self) -> None:
        """The coordinator stands still; perhaps somebody starts another one."""
        coordinator = self.cluster.newest_coordinator()
        self._freeze(coordinator)
        if self._dice.random() < 0.5:
            self.cluster.start_coordinator()

    def second_coordinator(self) -> None:
        """A second coordinator starts beside a living one."""
        self.cluster.start_coordinator()

    def group_fault(self) -> None:
        """Something of the group fails inside a coordinator: it goes on from the store."""
        coordinator = self.cluster.newest_coordinator()
        coordinator.run(coordinator.break_group)

    def store_outage(self) -> None:
        """The store answers nothing for a while."""
        self._set_down(True)
        self.world.at(self._dice.randint(100, 4_000), lambda: self._set_down(False))

    def _set_down(self, down: bool) -> None:
        self.cluster.store.down = down
        self.world.record(RegistryAway(self.world.now_ms, down))

    def store_trouble(self) -> None:
        """The store loses requests and answers, does halves, and does things late."""
        share = self._dice.choice((0.05, 0.2))
        self.cluster.store.faults = Faults(share, share, share, share)
        self.world.at(
            self._dice.randint(300, 3_000), lambda: setattr(self.cluster.store, "faults", Faults())
        )

    # --- everything else ------------------------------------------------------------------------

    def network_trouble(self) -> None:
        """The network is bad for a while."""
        self.world.network = Network(lost=0.3, doubled=0.3, slow=0.5, slow_ms_max=800)

        def better() -> None:
            if not self._over:
                self.world.network = self.world.scenario.network

        self.world.at(self._dice.randint(200, 1_000), better)

    def clock_jump(self) -> None:
        """All wall clocks are stepped, forwards or back."""
        self.world.wall_offset_ms += self._dice.choice(
            (-3_600_000, -500, 500, self.world.scenario.leap_ms)
        )

    def seek(self) -> None:
        """Somebody moves checkpoints."""
        log = self.cluster.log
        partitions = range(self.world.scenario.partitions)
        chosen = self._dice.sample(partitions, self._dice.randint(1, len(partitions)))
        offsets = {p: self._dice.randint(0, log.end(p)) for p in chosen}
        self.cluster.operator.command(Seek(offsets))

    def pause(self) -> None:
        """Somebody pauses the group, and lets it go on."""
        self.cluster.operator.command(Configure(paused=True))
        self.world.at(
            self._dice.randint(100, 1_000),
            lambda: self.cluster.operator.command(Configure(paused=False)),
        )

    def configure(self) -> None:
        """Somebody changes how partitions are shared out."""
        assignor = self._dice.choice(("sticky", "sticky", "range", "round_robin", "tenant"))
        members = sorted(self.cluster.wanted)
        weights = {m: self._dice.choice((0.5, 1.0, 3.0)) for m in members[:1]}
        self.cluster.operator.command(Configure(assignor=assignor))
        self.cluster.operator.command(Configure(weights=weights))

    def rebalance(self) -> None:
        """Somebody asks for the partitions to be shared out anew."""
        self.cluster.operator.command(Rebalance())

    def producer_crash(self) -> None:
        """A producer is killed, and its successor starts with a higher epoch."""
        number = self._dice.randrange(len(self.cluster.producers))
        old = self.cluster.producers[number]
        if self._dice.random() < 0.5:
            old.crash()
        else:
            self._freeze(old)
        self.cluster.producers[number] = self.cluster.start_producer(old.name)

    def log_restart(self) -> None:
        """The buffer's process ends and comes back."""
        self.cluster.log.restart(self._dice.randint(0, 400))

    def log_freeze(self) -> None:
        """The buffer's process stands still, for less or more than its lease."""
        self._freeze(self.cluster.log)

    def second_buffer(self) -> None:
        """The buffer's process stands still, or cannot be reached by its coordinator, and another
        one is started in its place, on the same disk or on an older copy of it. The first one goes
        on, until somebody ends it."""
        cluster, lease_ms = self.cluster, self.world.scenario.lease_ms
        older = self.world.scenario.worn and self._dice.random() < 0.5
        if self._dice.random() < 0.5:
            self._freeze(cluster.log)
        else:
            cluster.log.cut_from.add("keeper")
        wait_ms = self._dice.randint(0, 1_000)
        disk = None
        if older:
            disk = SimulatedDisk(self._dice.randrange(1 << 30))
            disk.restore(cluster.log.disk.kept())

        def replace() -> None:
            former = cluster.replace_log(disk)
            self.world.at(self._dice.randint(lease_ms // 2, 4 * lease_ms), former.crash)

        self.world.at(wait_ms, self._unless_over(replace))

    def power_cut(self) -> None:
        """The buffer's machine loses its power, where what was acknowledged survives that."""
        self.cluster.end_former_logs()  # of the same machine
        scenario = self.world.scenario
        power = scenario.worn or scenario.durability == "always"
        self.world.record(Harmed(self.world.now_ms, "power", scenario.worn))
        self.cluster.log.restart(self._dice.randint(20, 400), power=power)

    def disk_trouble(self) -> None:
        """Reads, writes and syncs of the buffer's disk fail for a while, some or most."""
        self._trouble("failing", self._dice.choice((0.1, 0.7)), 0.0)

    def disk_full(self) -> None:
        """The buffer's disk takes nothing more for a while."""
        self._trouble("full", True, False)

    def _trouble(self, name: str, bad: object, good: object) -> None:
        disk = self.cluster.log.disk
        setattr(disk, name, bad)
        self.world.at(self._dice.randint(50, 1_500), lambda: setattr(disk, name, good))

    def descriptors_spent(self) -> None:
        """The buffer's machine opens no file for a while."""
        self._trouble("spent", True, False)

    def disk_rot(self) -> None:
        """A byte on the buffer's disk is another one; it is found when somebody reads it."""
        self.cluster.log.disk.rot()

    def disk_slow(self) -> None:
        """The buffer's disk takes its time."""
        buffer = self.cluster.log
        buffer.slow = True
        self.world.at(self._dice.randint(200, 1_500), lambda: setattr(buffer, "slow", False))

    def older_disk(self) -> None:
        """The buffer comes back with its disk as it was a while ago."""
        buffer = self.cluster.log
        if not self.world.scenario.worn:
            return
        disk, kept = buffer.disk, buffer.disk.kept()

        def back() -> None:
            if self.cluster.log.disk is not disk:
                return
            self.cluster.end_former_logs()
            self.world.record(Harmed(self.world.now_ms, "an older disk", True))
            self.cluster.log.restart(self._dice.randint(0, 400))
            disk.restore(kept)

        self.world.at(self._dice.randint(100, 2_000), self._unless_over(back))

    def _unless_over(self, action: Action) -> Action:
        return lambda: None if self._over else action()
