"""The demonstration (`make demo`): Spark feeds payments, consumers keep balances, one is killed.

Spark makes and cleans payments and feeds them into 8 partitions by account. Three consumers keep
a balance per account. One of them is killed with SIGKILL in mid-stream, and the others take its
partitions over from its last checkpoints. A second, streaming feed arrives. At the end every
balance is compared with Spark's own sum over the same payments.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any

import ray
from pyspark.sql import SparkSession
from rich.console import Console

from pxrs_ray.actors.client.group import Group
from pxrs_ray.actors.client.topology import Topology, deploy
from pxrs_ray.config import PxrsConfig, QueueConfig
from pxrs_ray.demo.balances import count_payments, kept_balances
from pxrs_ray.demo.payments import clean_payments, raw_payments, spark_balances
from pxrs_ray.errors import DeadlineExceeded
from pxrs_ray.feed.feed_run import FeedReport
from pxrs_ray.spark.java import check_java
from pxrs_ray.spark.session import spark_on_ray
from pxrs_ray.spark.stream import write_stream
from pxrs_ray.spark.write import write_dataframe
from pxrs_ray.status.answers import ConsumerStatus, GroupStatus
from pxrs_ray.status.rendering import Table
from pxrs_ray.supervision.supervisor import Supervisor

QUEUE, GROUP = "payments", "balances"
PARTITIONS = 8
CONSUMERS = 3
STREAM_FILES = 5
WAIT_S_MAX = 60.0


def main(payments: int = 400_000, console: Console | None = None) -> int:
    """Run it all; answers 0 when every balance is right.

    Raises DependencyMissing, before anything starts, when there is no Java that Spark runs on.
    """
    check_java(on_path=True)
    console = console or Console(file=sys.stdout)
    began_s = time.monotonic()
    own_ray = not ray.is_initialized()
    # Ray tells at length of each process that is killed; here that is on purpose.
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
        try:
            console.print("starting Ray, and Spark on it: about 20 seconds", highlight=False)
            if own_ray:
                _start_ray()
            with tempfile.TemporaryDirectory(prefix="pxrs-demo-") as folder:
                return _with_spark(Path(folder), payments, console, began_s)
        finally:
            if own_ray:
                ray.shutdown()


def _start_ray() -> None:
    """A local Ray that is quiet, with CPUs enough for Spark and us whatever the machine has."""
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    ray.init(
        address="local",
        num_cpus=max(4, os.cpu_count() or 1),
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        object_store_memory=500 << 20,
    )


def _with_spark(folder: Path, payments: int, console: Console, began_s: float) -> int:
    options: dict[str, Any] = {"spark.sql.shuffle.partitions": "4"}
    with spark_on_ray("pxrs-demo", executors=1, cores=2, memory="1g", **options) as spark:
        config = PxrsConfig(
            name=f"demo-{os.getpid()}",
            data_dir=folder / "data",
            queues={QUEUE: QueueConfig(partitions=PARTITIONS)},
        )
        topology = deploy(config)
        try:
            return _Demo(topology, spark, folder, payments, console).run(began_s)
        finally:
            topology.shutdown()


class _Demo:
    """One run: what it works on, and what it finds out."""

    def __init__(
        self, topology: Topology, spark: SparkSession, folder: Path, payments: int, console: Console
    ) -> None:
        self.topology = topology
        self.spark = spark
        self.folder = folder
        self.console = console
        self.raw = raw_payments(spark, 0, payments, 8)
        self.clean = clean_payments(self.raw)
        self.late = raw_payments(spark, payments, payments // 10, STREAM_FILES)
        self.group: Group = topology.group(GROUP, queue=QUEUE)

    def run(self, began_s: float) -> int:
        """Everything in its order."""
        results = self.folder / "balances"
        results.mkdir()
        self.group.start(partial(count_payments, str(results)), consumers=CONSUMERS, mode="batch")
        self._say(
            f"ready after {time.monotonic() - began_s:.0f} s: {PARTITIONS} partitions, "
            f"{CONSUMERS} consumers that keep a balance per account"
        )
        raw = self.raw.count()
        started_s = time.monotonic()
        feeding = _Background(self._feed)
        killed, taken_over = self._kill_one(feeding)
        self._say(
            f"killed {killed.member} (pid {killed.pid}) with SIGKILL in mid-stream: its partitions "
            f"{list(killed.partitions)} were taken over within {max(taken_over.values()):.2f} s"
        )
        report: FeedReport = feeding.result(WAIT_S_MAX)
        self._say(
            f"Spark made {raw:,} payments and left {raw - report.rows:,} out that were unusable or "
            f"there twice; {report}"
        )
        streamed = self._stream()
        self._say(f"a second feed streamed {streamed:,} more payments in {STREAM_FILES} batches")
        total = report.rows + streamed
        _until(lambda: self.group.lag() == 0, "every payment was processed")
        seconds = time.monotonic() - started_s
        status = self.group.status()
        self.group.stop()
        self._table(status, taken_over)
        self._say(
            f"{total:,} payments fed, routed and processed in {seconds:.1f} s "
            f"({total / seconds:,.0f} a second, takeover included)"
        )
        return self._compare(results)

    def _say(self, text: str) -> None:
        self.console.print(text, highlight=False, soft_wrap=True)

    def _feed(self) -> FeedReport:
        return write_dataframe(
            self.clean,
            self.topology,
            QUEUE,
            key="account",
            payload="cast(cents as string)",
            timestamp="at",
            feed_id="first",
            progress=False,
        )

    def _kill_one(self, feeding: _Background) -> tuple[ConsumerStatus, dict[int, float]]:
        """Kill the consumer with most partitions once it works; after how long others have each."""
        _until(lambda: _processed(self.group.status()) > 0 or feeding.over, "payments came")
        before = self.group.status()
        victim = max(before.consumers, key=lambda consumer: len(consumer.partitions))
        epochs = {p.partition: p.epoch for p in before.partitions}
        assert victim.pid is not None
        killed_s = time.monotonic()
        os.kill(victim.pid, signal.SIGKILL)
        taken_over: dict[int, float] = {}

        def all_taken_over() -> bool:
            for now in self.group.status().partitions:
                p = now.partition
                if p in victim.partitions and now.owner is not None and now.epoch > epochs[p]:
                    taken_over.setdefault(p, time.monotonic() - killed_s)
            return len(taken_over) == len(victim.partitions)

        _until(all_taken_over, "its partitions were taken over")
        return victim, taken_over

    def _stream(self) -> int:
        """Payments that appear in files, streamed into the same queue; answers how many."""
        source = self.folder / "late"
        columns = "id long, account string, amount string, at timestamp, time int"
        self.late.write.json(str(source))
        stream = self.spark.readStream.schema(columns).option("maxFilesPerTrigger", 1)
        feed = write_stream(
            clean_payments(stream.json(str(source))),
            self.topology,
            QUEUE,
            key="account",
            payload="cast(cents as string)",
            timestamp="at",
            checkpoint_location=str(self.folder / "checkpoint"),
            trigger_s=0.2,
        )
        feed.process_all()
        feed.stop()
        return sum(report.rows for report in feed.reports)

    def _table(self, status: GroupStatus, taken_over: Mapping[int, float]) -> None:
        head = ("partition", "owner", "checkpoint", "end", "epoch", "taken over")
        rows = []
        for row in status.partitions:
            taken_s = taken_over.get(row.partition)
            taken = f"in {taken_s:.2f} s" if taken_s is not None else ""
            place = f"P{row.partition}"
            rows.append((place, row.owner, row.checkpoint, row.end_offset, row.epoch, taken))
        self.console.print(Table(head, rows))

    def _compare(self, results: Path) -> int:
        kept = kept_balances(results)
        wanted = spark_balances(self.clean.union(clean_payments(self.late)))
        wrong = [
            account
            for account in wanted.keys() | kept.keys()
            if kept.get(account) != wanted.get(account)
        ]
        if wrong:
            example = sorted(wrong)[0]
            self._say(
                f"WRONG: {len(wrong)} of {len(wanted)} balances differ from Spark's, for example "
                f"{example}: kept {kept.get(example)}, Spark has {wanted.get(example)}"
            )
            return 1
        cents = sum(balance for balance, _ in kept.values())
        count = sum(payments for _, payments in kept.values())
        self._say(
            f"all {len(kept):,} balances equal Spark's own sums: {count:,} payments, "
            f"{cents / 100:,.2f} in all; none lost, none twice"
        )
        return 0


class _Background:
    """A function that runs on a thread."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self._result: Any = None
        self._error: BaseException | None = None
        self._thread = Supervisor("the demo").thread("pxrs-demo-feed", self._run)
        self._thread.start()

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return not self._thread.is_alive()

    def result(self, seconds: float) -> Any:
        """What it answered. Raises what it raised, or DeadlineExceeded."""
        self._thread.join(seconds)
        if self._error is not None:
            raise self._error
        if self._thread.is_alive():
            raise DeadlineExceeded(f"the feed is not over after {seconds:g} s")
        return self._result

    def _run(self) -> None:
        try:
            self._result = self._function()
        except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
            self._error = error


def _processed(status: GroupStatus) -> int:
    return sum(row.checkpoint for row in status.partitions)


def _until(look: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S_MAX
    while not look():
        if time.monotonic() > deadline:
            raise DeadlineExceeded(f"waited {WAIT_S_MAX:g} s in vain until {what}")
        time.sleep(0.02)


if __name__ == "__main__":
    raise SystemExit(main())
