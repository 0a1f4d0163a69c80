"""Everybody of a feeding world: one buffer, its keeper, and whoever wants something fed.

Rules of this file. A user calls again with the same data until a feed is done; Spark starts a
stream's query again from the batch that it has not noted as done. The queue's partitions, and the
two ledgers behind them, are partitions of one simulated queue: each log is its own as it ships.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from pxrs_ray.errors import FeedConflict
from pxrs_ray.feed.feed_run import FeedReport
from pxrs_ray.partitioning import PartitioningSpec
from pxrs_ray.store.memory import MemoryStore
from tests.simulation.feeding.fed_rows import QUEUE_NAME, STREAM, Row, SimulatedQueue
from tests.simulation.feeding.feed_driver import Driver
from tests.simulation.feeding.feed_scenario import FeedScenario
from tests.simulation.history import Ended, FeedDone, FeedEnded
from tests.simulation.simulator.buffer import BufferProcess
from tests.simulation.simulator.buffer_lives import Witness
from tests.simulation.simulator.disk import SimulatedDisk
from tests.simulation.simulator.keeper import KeeperProcess
from tests.simulation.simulator.world import Process, World

USER_MS = 100


class FeedCluster(Process):
    """See the rules at the head of this file."""

    role = "cluster"

    def __init__(self, world: World, seed: int, scenario: FeedScenario) -> None:
        super().__init__(world, "cluster")
        self.scenario = scenario
        self.queue = SimulatedQueue(QUEUE_NAME, PartitioningSpec(scenario.partitions))
        self.registry = MemoryStore(now_ms=lambda: world.now_ms)
        witness = Witness(scenario.base.partitions)
        self.log = BufferProcess(world, SimulatedDisk(seed), witness)
        self.keeper = KeeperProcess(self)
        self.drivers: list[Driver] = []
        self.feeds = [f"feed-{number}" for number in range(scenario.feeds)]
        dice = random.Random(f"unstable {seed}")
        self._unstable = {feed for feed in self.feeds if dice.random() < scenario.unstable}
        # Feeds that were given up, for other data got in under their names.
        self._refused: set[str] = set()
        self._mixed: set[str] = set()
        self._done: set[str] = set()
        self._batch = 0
        self._fetch_failures = 0
        self._given: dict[str, dict[int, dict[tuple[str, ...], None]]] = {}
        self.calm = False
        self.every(USER_MS, self._want)

    # --- who wants what ---------------------------------------------------------------------------

    def _want(self) -> None:
        """Users and Spark call again, until all is done."""
        if not self.log.is_well() and not self.drivers:
            return
        for feed in self.feeds:
            if feed not in self._done | self._refused:
                if not self._works(feed):
                    self.start(feed)
                break
        stream = f"{STREAM}/{self._batch}"
        if self._streams() and not self._works(stream):
            self.start(stream)

    def _streams(self) -> bool:
        return self._batch < self.scenario.batches and not any(
            name.startswith(STREAM) for name in self._refused
        )

    def _works(self, name: str) -> bool:
        return any(
            driver.alive and not driver.is_over and name == driver.what for driver in self.drivers
        )

    def start(self, name: str, version: int = 0, more: int = 0) -> None:
        """Start a run of a feed, or of a stream's batch; `more` Spark partitions than before."""
        total = self.scenario.spark_partitions + more
        if version or more:
            self._mixed.add(name)
        if name.startswith(STREAM):
            batch = int(name.rpartition("/")[2])
            total = random.Random(f"{name} {total}").randint(1, total)
            self.drivers.append(Driver(self, STREAM, batch, version, total, self._over))
        else:
            self.drivers.append(Driver(self, name, None, version, total, self._over))

    def wanted(self, *, streams: bool) -> list[str]:
        """What could be run (again) now: feeds that have begun, and the stream's latest batch."""
        begun = {driver.what for driver in self.drivers}
        batches = [f"{STREAM}/{self._batch}"] if streams else []
        return [feed for feed in (*self.feeds, *batches) if feed in begun]

    # --- what Spark does --------------------------------------------------------------------------

    def version_of(self, driver: Driver, number: int) -> int:
        """Which version of its rows a Spark partition comes out as this time."""
        if not driver.ledgered or driver.feed not in self._unstable or driver.version:
            return driver.version
        return self.world.random.choice((0, 0, 1, 2)) if not self.calm else 0

    def given(self, feed: str, number: int, rows: tuple[Row, ...]) -> None:
        """A Spark partition comes out so."""
        texts = tuple(text for _, text in rows)
        self._given.setdefault(feed, {}).setdefault(number, {})[texts] = None

    def lose_fetches(self, count: int) -> None:
        """The next `count` fetches through RayDP get no answer."""
        self._fetch_failures = count

    def fetch_fails(self) -> bool:
        """Whether a fetch gets no answer."""
        self._fetch_failures -= 1
        return self._fetch_failures >= 0

    # --- what came of it --------------------------------------------------------------------------

    def _over(self, driver: Driver, result: FeedReport | Exception) -> None:
        name, now_ms = driver.what, self.world.now_ms
        if isinstance(result, FeedReport):
            given = self._given.get(name, {})
            self.world.record(
                FeedDone(
                    now_ms,
                    name,
                    result.rows,
                    result.rows_already,
                    result.partition_rows,
                    result.spark_partitions,
                    _plain(given, range(result.spark_partitions)),
                )
            )
            self._done.add(name)
            if not driver.ledgered:
                self._batch = max(self._batch, driver.epoch + 1)
            return
        conflict = isinstance(result, FeedConflict)
        alone = name not in self._mixed | self._unstable
        self.world.record(FeedEnded(now_ms, name, str(result), conflict, alone))
        if conflict and not alone and not driver.version:
            self._refused.add(name)

    def ended(self) -> Ended:
        """Where everything stands."""
        pending = [
            f"{feed} is not fed" for feed in self.feeds if feed not in self._done | self._refused
        ]
        if self._streams():
            pending.append(f"batch {self._batch} is not fed")
        if not self.log.is_well():
            pending.append("the buffer does not serve every log")
        pending += [f"{d.name} has not ended" for d in self.drivers if d.alive and not d.is_over]
        return Ended(self.world.now_ms, (), {}, (), tuple(pending))

    def close(self) -> None:
        """Give back what the run held."""
        self.log.life = None
        processes = [*self.drivers, *(t for d in self.drivers for t in d.tasks())]
        for process in (*processes, self.log, self.keeper, self):
            vars(process).clear()


def _plain(
    given: Mapping[int, Mapping[tuple[str, ...], None]], numbers: range
) -> dict[int, tuple[tuple[str, ...], ...]]:
    return {number: tuple(given.get(number, {})) for number in numbers}
