"""What goes wrong around feeds: one method a fault, and the healing."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.simulation.feeding.feed_cluster import FeedCluster
from tests.simulation.feeding.feed_driver import Driver, Task
from tests.simulation.history import Harmed, Struck
from tests.simulation.simulator.scenario import Network
from tests.simulation.simulator.world import Process

FREEZE_MS = (100, 3_000)


class FeedChaos:
    """Breaks things until it is told to heal them all; see `Chaos` for the numbers of faults."""

    def __init__(
        self, cluster: FeedCluster, seed: int, chosen: frozenset[int] | None = None
    ) -> None:
        self.cluster, self.world = cluster, cluster.world
        self.counts: dict[str, int] = {}
        self.struck: list[int] = []
        self._seed, self._chosen = seed, chosen
        self._plan = random.Random(f"feed chaos {seed}")
        self._dice = self._plan
        self._number = 0
        self._over = False
        weights = cluster.scenario.weights
        self._names = [name for name, weight in weights.items() if weight > 0]
        self._weights = [weights[name] for name in self._names]
        self._next()

    def heal(self) -> None:
        """Stop breaking things; what stands still goes on."""
        self._over = True
        cluster = self.cluster
        self.world.network = Network()
        cluster.calm = True
        cluster.lose_fetches(0)
        log = cluster.log
        log.disk.failing, log.disk.full, log.slow = 0.0, False, False
        for driver in cluster.drivers:
            driver.thaw()
            for task in driver.tasks():
                task.thaw()
        log.thaw()

    def _next(self) -> None:
        if self._over or not self._names:
            return
        (name,) = self._plan.choices(self._names, self._weights)
        interval_ms = self.world.scenario.fault_interval_ms
        delay_ms = 1 + int(self._plan.expovariate(1 / interval_ms))
        self._number += 1
        if self._chosen is None or self._number in self._chosen:
            self._dice = random.Random(f"feed fault {self._seed} {self._number}")
            self.counts[name] = self.counts.get(name, 0) + 1
            self.struck.append(self._number)
            self.world.record(Struck(self.world.now_ms, self._number, name))
            fault: Callable[[], None] = getattr(self, name)
            fault()
        self.world.at(delay_ms, self._next)

    # --- tasks and drivers ------------------------------------------------------------------------

    def _drivers(self) -> list[Driver]:
        return [d for d in self.cluster.drivers if d.alive and not d.is_over]

    def _task(self) -> tuple[Driver, Task] | None:
        tasks = [(driver, task) for driver in self._drivers() for task in driver.tasks()]
        return self._dice.choice(tasks) if tasks else None

    def _freeze(self, process: Process) -> None:
        process.freeze()
        self.world.at(self._dice.randint(*FREEZE_MS), process.thaw)

    def task_crash(self) -> None:
        """A task's process is killed: its executor was lost."""
        found = self._task()
        if found is not None:
            found[1].crash()

    def task_freeze(self) -> None:
        """A task stands still, perhaps until its feed is over; perhaps it is thought dead."""
        found = self._task()
        if found is not None:
            driver, task = found
            self._freeze(task)
            if self._dice.random() < 0.5:
                driver.start_task(task.number)

    def task_twin(self) -> None:
        """Spark speculates: a second attempt beside one that lives."""
        found = self._task()
        if found is not None:
            found[0].start_task(found[1].number)

    def driver_crash(self) -> None:
        """A driver is killed, and most of its tasks with it."""
        drivers = self._drivers()
        if drivers:
            driver = self._dice.choice(drivers)
            for task in driver.tasks():
                if self._dice.random() < 0.5:
                    task.crash()
            driver.crash()

    def driver_freeze(self) -> None:
        """A driver stands still."""
        drivers = self._drivers()
        if drivers:
            self._freeze(self._dice.choice(drivers))

    def second_driver(self) -> None:
        """The same feed is run a second time beside the first, or after its end."""
        self._again(0, 0)

    def other_data(self) -> None:
        """Other data is fed under the name of a feed."""
        self._again(self._dice.choice((3, 4)), 0)

    def other_plan(self) -> None:
        """The same name comes in another number of Spark partitions."""
        self._again(0, 1)

    def _again(self, version: int, more: int) -> None:
        """A batch of a stream has no ledger, and is promised only where it comes again alike."""
        names = self.cluster.wanted(streams=not version)
        if names and len(self._drivers()) < 4:
            self.cluster.start(self._dice.choice(names), version, more)

    def fetch_failure(self) -> None:
        """RayDP loses an executor: what is fetched gets no answer."""
        self.cluster.lose_fetches(self._dice.randint(1, 2))

    # --- the buffer -------------------------------------------------------------------------------

    def log_restart(self) -> None:
        """The buffer's process ends and comes back."""
        self.cluster.log.restart(self._dice.randint(0, 400))

    def log_freeze(self) -> None:
        """The buffer's process stands still."""
        self._freeze(self.cluster.log)

    def power_cut(self) -> None:
        """The buffer's machine loses its power, where what was acknowledged survives that."""
        power = self.world.scenario.durability == "always"
        self.world.record(Harmed(self.world.now_ms, "power", False))
        self.cluster.log.restart(self._dice.randint(20, 400), power=power)

    def disk_trouble(self) -> None:
        """Reads, writes and syncs fail for a while."""
        self._trouble("failing", self._dice.choice((0.1, 0.7)), 0.0)

    def disk_full(self) -> None:
        """The disk takes nothing more for a while."""
        self._trouble("full", True, False)

    def _trouble(self, name: str, bad: object, good: object) -> None:
        disk = self.cluster.log.disk
        setattr(disk, name, bad)
        self.world.at(self._dice.randint(50, 800), lambda: setattr(disk, name, good))

    def disk_slow(self) -> None:
        """The disk takes its time."""
        log = self.cluster.log
        log.slow = True
        self.world.at(self._dice.randint(200, 1_500), lambda: setattr(log, "slow", False))

    # --- everything else --------------------------------------------------------------------------

    def network_trouble(self) -> None:
        """The network is bad for a while."""
        self.world.network = Network(lost=0.3, doubled=0.3, slow=0.5, slow_ms_max=800)

        def better() -> None:
            if not self._over:
                self.world.network = self.world.scenario.network

        self.world.at(self._dice.randint(200, 1_000), better)

    def clock_jump(self) -> None:
        """All wall clocks are stepped, forwards or back."""
        self.world.wall_offset_ms += self._dice.choice((-3_600_000, -500, 500, 86_400_000))
