"""What goes wrong with replicas: one method a fault."""

from __future__ import annotations

import random
from functools import partial

from pxrs_ray.replication.peer_messages import LogKey
from tests.simulation.replicas.kept import Registry, ReplicaDisk, Rules
from tests.simulation.replicas.placing import PlacingCoordinator
from tests.simulation.replicas.replica import ReplicaProcess
from tests.simulation.simulator.scenario import Network
from tests.simulation.simulator.world import World


class ReplicaFaults:
    """The faults of a group; what they need of it is declared here."""

    world: World
    rules: Rules
    registry: Registry
    coordinator: PlacingCoordinator
    disks: dict[str, ReplicaDisk]
    processes: dict[str, ReplicaProcess]
    faults: dict[str, int]
    keys: list[LogKey]
    made: int
    wanted: int
    min_isr: int
    drained: set[str]
    _dice: random.Random
    _over: bool

    def start_coordinator(self) -> None:
        """A coordinator takes the lead."""
        raise NotImplementedError

    def new_disk(self, name: str) -> ReplicaDisk:
        """An empty disk."""
        raise NotImplementedError

    def start(self, disk: ReplicaDisk) -> None:
        """A process of a disk begins, unless one lives."""
        raise NotImplementedError

    def end(self, process: ReplicaProcess) -> None:
        """A process is killed."""
        raise NotImplementedError

    def has_other(self, name: str) -> bool:
        """Whether another replica in sync keeps what it has, whatever becomes of this one."""
        raise NotImplementedError

    # --- faults -----------------------------------------------------------------------------------

    def _strike(self) -> None:
        if self._over:
            return
        names = list(self.rules.weights)
        (name,) = self._dice.choices(names, [self.rules.weights[n] for n in names])
        self.faults[name] = self.faults.get(name, 0) + 1
        getattr(self, f"_{name}")()
        delay_ms = 1 + int(self._dice.expovariate(1 / self.rules.fault_ms))
        self.world.at(delay_ms, self._strike)

    def _any(self) -> ReplicaProcess:
        return self.processes[self._dice.choice(sorted(self.processes))]

    def _kill(self) -> None:
        process = self._any()
        self.end(process)
        self.world.at(self._dice.randint(10, 900), partial(self.start, process.disk))

    def _power_cut(self) -> None:
        process = self._any()
        disk = process.disk
        if not self.rules.synced_only and not self.has_other(disk.name):
            return
        self.end(process)
        disk.files.cut_power()
        self.world.at(self._dice.randint(50, 900), partial(self.start, disk))

    def _freeze(self) -> None:
        process = self._dice.choice([self._any(), self._any(), self.coordinator])
        process.freeze()
        self.world.at(self._dice.randint(50, 1_500), process.thaw)

    def _cut_pair(self) -> None:
        one, other = self._any(), self._any().disk.name
        one.cut_from.add(other)
        self.world.at(self._dice.randint(50, 1_500), partial(one.cut_from.discard, other))

    def _cut_coordinator(self) -> None:
        one = self._any()
        one.cut_from.add("coordinator")
        end = partial(one.cut_from.discard, "coordinator")
        self.world.at(self._dice.randint(50, 1_500), end)

    def _network(self) -> None:
        self.world.network = Network(lost=0.2, doubled=0.3, slow=0.5, slow_ms_max=700)
        self.world.at(self._dice.randint(100, 800), self._calm)

    def _calm(self) -> None:
        self.world.network = Network()

    def _coordinator_crash(self) -> None:
        self.coordinator.crash()
        self.world.at(self._dice.randint(10, 500), self._restart_coordinator)

    def _restart_coordinator(self) -> None:
        if not self.coordinator.alive:
            self.start_coordinator()

    def _second_coordinator(self) -> None:
        self.start_coordinator()

    def _damage(self) -> None:
        process = self._any()
        if self.has_other(process.disk.name):
            process.disk.whole = False
            self.world.at(self._dice.randint(100, 1_000), partial(self._healed, process.disk))

    def _healed(self, disk: ReplicaDisk) -> None:
        disk.whole = True

    def _rot(self) -> None:
        """What is sealed of a log is damaged; its process finds that some time, and drops it when
        it may."""
        process = self._any()
        if self.has_other(process.disk.name):
            process.disk.rotten.add(self._dice.choice(self.keys))

    def _failing_disk(self) -> None:
        disk = self._any().disk
        disk.files.failing = 0.05
        self.world.at(self._dice.randint(50, 600), partial(self._well, disk))

    def _well(self, disk: ReplicaDisk) -> None:
        disk.files.failing = 0.0

    def _lost_disk(self) -> None:
        process = self._any()
        name = process.disk.name
        if len(self.disks) > 12 or not self.has_other(name):
            return
        self.end(process)
        del self.processes[name], self.disks[name]
        new = self.new_disk(f"{name}'")
        self.disks[new.name] = new

    def _retention(self) -> None:
        left = self._dice.choice((0, 0, 3, 20))
        for process in self.processes.values():
            process.run(partial(process.drop, self._dice.choice(self.keys), left))

    def _new_queue(self) -> None:
        if len(self.keys) < 4:
            self.made += 1
            self.keys.append((f"q{self.made}", 0))

    def _removed_queue(self) -> None:
        """Each process lets go of it sooner or later; one of that name is another one."""
        if len(self.keys) > 1:
            self.keys.remove(self._dice.choice(self.keys))

    def _emptied(self) -> None:
        """The logs of a disk are gone, and it is not: its process finds that, when it starts."""
        process = self._any()
        if self.has_other(process.disk.name):
            self.end(process)
            process.disk.lose_logs()
            self.world.at(self._dice.randint(10, 300), partial(self.start, process.disk))

    def _drain(self) -> None:
        """A host is drained; it comes back as another node later."""
        name = self._dice.choice(sorted(self.disks))
        if len(self.disks) - len(self.drained | {name}) >= self.wanted:
            self.drained.add(name)
            self.world.at(self._dice.randint(200, 2_000), partial(self.drained.discard, name))

    def _resize(self) -> None:
        """Another number of replicas is wanted: never one alone, which any loss would hit."""
        self.wanted = self._dice.randint(2, 3)
        self.min_isr = self._dice.randint(1, 2)

    def _move(self) -> None:
        source = self._dice.choice(self.registry.placement.replicas)
        target = self._dice.choice(sorted(self.disks))
        self.coordinator.run(partial(self.coordinator.move, source, target))

    def _hand_over(self) -> None:
        disk = self._dice.choice(self.registry.placement.replicas)
        self.coordinator.run(partial(self.coordinator.hand_over, disk))
