"""Spark into queues: both ways, beside RayDP's bare conversion and beside Parquet, in one run."""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.benchmarks.harness import figure, figures

ROWS = 5_000_000
COLUMN_ROWS = 4_000_000
SPARK_PARTITIONS = 8
BATCHES = 12
BATCH_ROWS = 2_000
QUEUE = "payments"


@dataclass
class Bench:
    """Everything that runs: Ray, Spark on it, a queue."""

    spark: Any
    queue: Any
    folder: Path
    feeds: int = 0
    data: Any = field(init=False)

    def __post_init__(self) -> None:
        """Write the rows as a file once, so that Spark reads them as it would a user's.

        A payload is 100 bytes of JSON, for one letter a hundred times is no work for what
        compresses (as RayDP's conversion and Parquet do).
        """
        path = str(self.folder / "rows.parquet")
        self.spark.range(0, ROWS, 1, SPARK_PARTITIONS).selectExpr(
            "lpad(cast(id as string), 12, '0') as account",
            """concat('{"payment":"', md5(cast(id as string)), '","cents":',
            lpad(cast(pmod(xxhash64(id), 1000000) as string), 6, '1'),
            ',"currency":"EUR","state":"transferred"}') as payload""",
            "timestamp_millis(1700000000000 + id) as at",
        ).write.parquet(path)
        self.data = self.spark.read.parquet(path)

    def feed(self, via: str) -> float:
        """Feed all rows into an empty queue; answers rows a second, and empties it again."""
        from pxrs_ray.spark import write_dataframe

        self.feeds += 1
        report = write_dataframe(
            self.data,
            self.queue,
            QUEUE,
            key="account",
            payload="payload",
            timestamp="at",
            feed_id=f"feed-{self.feeds}",
            via=via,  # type: ignore[arg-type]
            progress=False,
        )
        assert self.queue.rows() == report.rows == ROWS
        self.queue.empty()
        return float(report.rows_per_s)


@contextmanager
def spark_cluster() -> Iterator[Bench]:
    """Ray, an executor of two cores, and a queue of 8 partitions with durability 'interval'."""
    import ray

    from pxrs_ray.spark import spark_on_ray
    from tests.spark.helpers import BuffersOnly

    ray.init(
        address="local",
        num_cpus=4,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=2 << 30,
        namespace="bench",
    )
    ray.data.DataContext.get_current().enable_progress_bars = False
    options: dict[str, Any] = {
        "spark.sql.files.maxPartitionBytes": "32m",
        "spark.ray.raydp_spark_executor.actor.resource.cpu": "1",
    }
    try:
        with (
            tempfile.TemporaryDirectory(prefix="pxrs-bench-") as name,
            spark_on_ray("bench", executors=1, cores=2, memory="4g", **options) as spark,
        ):
            queue = BuffersOnly("bench", Path(name, "data"), partitions=8)
            yield Bench(spark, queue, Path(name))
            queue.close()
    finally:
        ray.shutdown()


@contextmanager
def peak_rss() -> Iterator[list[int]]:
    """The most memory that buffers and routing workers had together, in bytes, in the one item.

    Without Ray's shared object store, of which each counts the pages that it looked at.
    """
    found = [0]
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.2):
            total = 0
            for process in psutil.Process().children(recursive=True):
                try:
                    told = process.cmdline()
                    if told and told[0].startswith(("ray::Buffer", "ray::route_")):
                        memory = process.memory_info()
                        total += memory.rss - memory.shared
                except psutil.Error:
                    continue
            found[0] = max(found[0], total)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()


def bare_s(bench: Bench) -> float:
    """RayDP's own conversion, materialised, and released."""
    import ray
    from raydp.spark import release_spark_recoverable

    began = time.perf_counter()
    dataset = ray.data.from_spark(bench.data).materialize()
    seconds = time.perf_counter() - began
    assert dataset.count() == ROWS
    release_spark_recoverable(bench.data)
    return seconds


@figures(
    {
        "spark.bare_rows_per_s": "rows/s",
        "spark.parquet_rows_per_s": "rows/s",
        "spark.write_rows_per_s": "rows/s",
        "spark.push_rows_per_s": "rows/s",
        "spark.ratio_to_bare": "x",
        "spark.push_ratio_to_bare": "x",
        "spark.peak_rss_mb": "MB",
    },
    runs=3,
    setup=spark_cluster,
)
def write(bench: Bench) -> dict[str, float]:
    """Written, routed and durable (interval), end to end."""
    bare = ROWS / bare_s(bench)
    began = time.perf_counter()
    bench.data.write.mode("overwrite").parquet(str(bench.folder / "copy.parquet"))
    parquet = ROWS / (time.perf_counter() - began)
    with peak_rss() as peak:
        fed = bench.feed("raydp")
    pushed = bench.feed("push")
    return {
        "spark.bare_rows_per_s": bare,
        "spark.parquet_rows_per_s": parquet,
        "spark.write_rows_per_s": fed,
        "spark.push_rows_per_s": pushed,
        "spark.ratio_to_bare": fed / bare,
        "spark.push_ratio_to_bare": pushed / bare,
        "spark.peak_rss_mb": peak[0] / 1e6,
    }


@figure("spark.partition_column_rows_per_s", unit="rows/s", runs=3, setup=spark_cluster)
def partition_column_rate(bench: Bench) -> float:
    """The partition as a JVM expression, on one core: one Spark partition."""
    from pyspark.sql import functions as F  # noqa: N812

    from pxrs_ray.spark import partition_column

    keys = bench.spark.range(0, COLUMN_ROWS, 1, 1).selectExpr("cast(id as string) as k")
    began = time.perf_counter()
    keys.select(F.sum(partition_column("k", 16))).collect()
    return COLUMN_ROWS / (time.perf_counter() - began)


@figure("spark.stream_batch_p50_s", unit="s", runs=1, warmups=0, setup=spark_cluster)
def stream_batch(bench: Bench) -> float:
    """From a file that appears to its rows in the queue, with a trigger of 0.5 s."""
    from pxrs_ray.spark import write_stream

    ready, source = bench.folder / "ready", bench.folder / "source"
    source.mkdir()
    bench.data.limit(BATCH_ROWS).coalesce(1).select("account", "payload").write.json(str(ready))
    (text,) = (path.read_text() for path in ready.glob("*.json"))
    stream = bench.spark.readStream.schema("account string, payload string").json(str(source))
    feed = write_stream(
        stream,
        bench.queue,
        QUEUE,
        key="account",
        payload="payload",
        checkpoint_location=str(bench.folder / "checkpoint"),
        trigger_s=0.5,
    )
    taken = []
    for number in range(BATCHES):
        before = bench.queue.rows()
        hidden = source / f".{number}"
        hidden.write_text(text)
        began = time.perf_counter()
        hidden.rename(source / f"{number:03}.json")
        while bench.queue.rows() < before + BATCH_ROWS:
            assert time.perf_counter() - began < 60, "the batch did not come"
            time.sleep(0.01)
        taken.append(time.perf_counter() - began)
    feed.stop()
    return statistics.median(taken[2:])
