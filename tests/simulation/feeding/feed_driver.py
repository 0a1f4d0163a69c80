"""Spark's driver of one feed, and its tasks: who is started again, and who lives twice.

Rules of this file. `FeedRun` and `FeedRound` decide, as in `spark/write.py` and
`spark/through_raydp.py`; here Spark and Ray are played: they start a task that died again, perhaps
while it lives still, and end the others when one failed, if they can.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from pxrs_ray.errors import DeadlineExceeded, PxrsError, SequenceConflict
from pxrs_ray.feed import partition_feed
from pxrs_ray.feed.facts import PLAN, FeedFacts, FeedState
from pxrs_ray.feed.feed_round import FeedRound, FirstFailure
from pxrs_ray.feed.feed_run import FeedReport, FeedRun, FetchFailed
from pxrs_ray.feed.partition_feed import RoutedRows, Settle, SparkPartition, TellLedger
from tests.simulation.feeding.fed_rows import (
    LEDGER_NAME,
    QUEUE_NAME,
    STREAMS_NAME,
    arrow_of,
    rows_of,
)
from tests.simulation.feeding.feed_task import Carrier, LedgerReader, Steps
from tests.simulation.simulator.world import Process

if TYPE_CHECKING:
    from tests.simulation.feeding.feed_cluster import FeedCluster

FETCH_MS = 400
LOOK_MS = 50
# Above what a seed's faults of tasks come to: what Spark gives up has no promise.
ATTEMPTS_MAX = 6
START_MS = 20

Over = Callable[["Driver", FeedReport | Exception], None]


class TaskFailed(Exception):
    """Spark gave a task up: it died too often."""


class Task(Process):
    """One attempt of one Spark partition."""

    role = "task"

    def __init__(self, driver: Driver, number: int, version: int) -> None:
        super().__init__(driver.world, f"{driver.name}/{number}")
        self.number = number
        self._driver = driver
        cluster, scenario = driver.cluster, driver.cluster.scenario
        rows = rows_of(scenario, driver.what, version, number)
        cluster.given(driver.what, number, rows)
        work = SparkPartition(
            cluster.queue,
            driver.feed,
            driver.epoch,
            number,
            driver.facts if driver.ledgered else None,
            self.now().wall_ms,
            rows_max=scenario.chunk_rows,
        )
        told = driver.told(number)
        if scenario.push:
            steps = partition_feed.route(work, arrow_of(rows), told)
        else:
            steps = partition_feed.route_at_hand(work, partial(arrow_of, rows), told)
        self._carrier = driver.carrier(self, number, self._over)
        self.after(START_MS, lambda: self._carrier.carry(steps))

    def _over(self, result: object) -> None:
        """The driver hears of it, if it lives: results get lost with their process only."""
        driver = self._driver
        self.world.at(1, lambda: driver.ended(self, result), driver)
        self.crash()


class Driver(Process):
    """One call that feeds: of a feed with a ledger, or of a stream's batch."""

    role = "driver"

    def __init__(
        self,
        cluster: FeedCluster,
        feed: str,
        epoch: int | None,
        version: int,
        total: int,
        over: Over,
    ) -> None:
        super().__init__(cluster.world, f"driver-{cluster.world.number()}")
        self.cluster, self.feed, self.version = cluster, feed, version
        self.ledgered, self.epoch = epoch is None, epoch or 0
        # The feed, or the batch of the stream.
        self.what = feed if epoch is None else f"{feed}/{epoch}"
        self._total, self._over = total, over
        partitions = cluster.scenario.partitions
        self._ledger = partitions if self.ledgered else partitions + 1
        self.facts = FeedFacts(LEDGER_NAME if self.ledgered else STREAMS_NAME, feed, self.epoch)
        self._run = FeedRun(feed, "simulated", "rows", FeedState())
        self._turns: list[list[int]] = []
        self._round: FeedRound | None = None
        self._waiting: list[int] = []
        self._live: dict[int, list[Task]] = {}
        self._died: dict[int, int] = {}
        self._failure = FirstFailure()
        self._looks = False
        self.is_over = False
        self.after(START_MS, self._read if self.ledgered else self._begin)

    def told(self, number: int) -> Any:
        """How far a Spark partition has come, as a task is told."""
        return self._run.state.known(number)

    def carrier(self, process: Process, number: int, on_end: Callable[[object], None]) -> Carrier:
        """What carries steps of this feed."""
        names = (QUEUE_NAME, self.facts.ledger)
        stall_ms, log = self.cluster.scenario.stall_ms, self.cluster.log
        return Carrier(process, log, self.feed, number, self._ledger, names, stall_ms, on_end)

    # --- beginning --------------------------------------------------------------------------------

    def _read(self) -> None:
        LedgerReader(self, self.cluster.log, self._ledger, self.feed, self._known)

    def _known(self, state: FeedState) -> None:
        if not self._run.rounds.failures:
            self._run = FeedRun(self.feed, "simulated", "rows", state)
        self._run.state = state
        self._begin()

    def _begin(self) -> None:
        plan: dict[str, Any] | None = {"batch": self.epoch, "partitions": self._total}
        if self.ledgered:
            try:
                plan = self._run.begin(self._total)
            except PxrsError as error:
                self._end(error)
                return
        if plan is None:
            self._feed(None)
        else:
            self.carrier(self, -1, self._feed).carry(self._tell(plan))

    def _tell(self, plan: dict[str, Any]) -> Steps:
        """`Ledger.tell_plan`."""
        yield TellLedger(self.facts.plan(plan, self.now().wall_ms))
        try:
            yield Settle()
        except SequenceConflict:
            raise self.facts.conflict(PLAN) from None

    def _feed(self, told: object) -> None:
        if isinstance(told, PxrsError):
            self._end(told)
            return
        turns = self._run.turns() if self.ledgered else [list(range(self._total))]
        self._turns = turns
        self._died.clear()
        self._next_turn()
        if not self._looks:
            self._looks = True
            self._look()

    def _next_turn(self) -> None:
        if not self._turns:
            self._end(self._report())
            return
        numbers = self._turns.pop(0)
        if self.cluster.scenario.push:
            self._waiting = numbers
        else:
            cpus = self.cluster.scenario.tasks_max
            places = [f"executor-{n % 2}" for n in range(self._total)]
            self._round = FeedRound(numbers, places, cpus, FETCH_MS)

    # --- tasks ------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Start what may be started, and see who has died."""
        if self.is_over:
            return
        self.after(LOOK_MS, self._look)
        for number, tasks in list(self._live.items()):
            self._live[number] = [task for task in tasks if task.alive]
            if not self._live[number]:
                self._died_once(number)
        while (
            not self.is_over and self._waiting and len(self._live) < self.cluster.scenario.tasks_max
        ):
            self.start_task(self._waiting.pop(0))
        if self._round is not None and not self.is_over:
            self._fetch(self._round)

    def _fetch(self, round_: FeedRound) -> None:
        try:
            for number in round_.fetches(self.monotonic_ms()):
                if not self.cluster.fetch_fails():
                    self.after(START_MS, partial(self._fetched, round_, number))
            round_.look(self.monotonic_ms())
        except FetchFailed as failure:
            self._prepare_again(failure)

    def _fetched(self, round_: FeedRound, number: int) -> None:
        if round_ is self._round and not self.is_over:
            round_.fetched(number)
            self.start_task(number)

    def _prepare_again(self, failure: FetchFailed) -> None:
        self._stop_tasks()
        self._round = None
        try:
            pause_s = self._run.rounds.failed(failure)
        except DeadlineExceeded as error:
            self._end(error)
            return
        again = self._read if self.ledgered else self._begin
        self.after(100 * pause_s, again)

    def start_task(self, number: int) -> None:
        """Start an attempt, beside those that live."""
        version = self.cluster.version_of(self, number)
        self._live.setdefault(number, []).append(Task(self, number, version))

    def tasks(self) -> list[Task]:
        """Those that live."""
        return [task for tasks in self._live.values() for task in tasks if task.alive]

    def _died_once(self, number: int) -> None:
        self._died[number] = self._died.get(number, 0) + 1
        if self._died[number] < ATTEMPTS_MAX:
            self.start_task(number)
        elif self.cluster.scenario.push:
            self._end(TaskFailed(f"task {number} died {ATTEMPTS_MAX} times"))
        else:
            self._prepare_again(FetchFailed(f"task {number} died {ATTEMPTS_MAX} times"))

    def ended(self, task: Task, result: object) -> None:
        """A task has said what it came to; the other attempts of it are of no use now."""
        if self.is_over or task not in self._live.get(task.number, ()):
            return
        self._stop(self._live.pop(task.number))
        if isinstance(result, RoutedRows):
            self._run.counts.note(result)
            if self._round is not None:
                self._round.routed(task.number)
        elif isinstance(result, Exception):
            if not self.cluster.scenario.push:
                self._stop_tasks()
                self._end(result)
                return
            # Spark's Python workers answer with the error, and the others go on.
            self._failure.met(result)
        over = not (self._waiting or self._live) if self._round is None else self._round.over
        if over:
            self._round = None
            try:
                self._failure.over()
            except PxrsError as error:
                self._end(error)
            else:
                self._next_turn()

    def _stop_tasks(self) -> None:
        for tasks in self._live.values():
            self._stop(tasks)
        self._live.clear()

    def _stop(self, tasks: list[Task]) -> None:
        """End attempts that nobody waits for; some hear nothing of it, and go on."""
        for task in tasks:
            if task.alive and not self.world.chance(self.cluster.scenario.cancel_lost):
                task.crash()

    # --- the end ----------------------------------------------------------------------------------

    def _report(self) -> FeedReport:
        run, partitions = self._run, self.cluster.scenario.partitions
        already = run.already if self.ledgered else frozenset[int]()
        return run.counts.report(self.feed, QUEUE_NAME, "simulated", partitions, already, 0.0)

    def _end(self, result: FeedReport | Exception) -> None:
        if not self.is_over:
            self.is_over = True
            self._over(self, result)
