"""Feed a Spark DataFrame into a queue, exactly once, and read it back.

    python examples/spark_feed.py             # with a topology of its own, removed afterwards
    python examples/spark_feed.py balances    # into the running topology of that name

Needs `pip install "pxrs-ray[spark]"` and Java.

Runs on the Ray cluster that RAY_ADDRESS names (so does `ray job submit`), or starts a local one.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import ray

from pxrs_ray import PxrsConfig, QueueConfig
from pxrs_ray.actors.client.topology import Topology, attach, deploy
from pxrs_ray.spark import partition_column, read_queue, spark_on_ray, write_dataframe

ROWS = 50_000


def feed(topology: Topology) -> None:
    with spark_on_ray("spark-feed", executors=1, cores=1) as spark:
        payments = spark.range(ROWS).selectExpr(
            "concat('acct-', id % 1000) as account", "cast(id % 977 as string) as cents"
        )
        for _ in range(2):
            # The second time, as after a crash: every row is compared, none is added.
            report = write_dataframe(
                payments, topology, "payments", key="account", payload="cents", feed_id="november"
            )
            print(report)
        messages = read_queue(spark, topology, "payments")
        computed = partition_column("key", topology, "payments")
        wrong = messages.where(messages.partition != computed).count()
        print(f"{messages.count()} messages in the queue, {wrong} on a wrong partition")
        assert (messages.count(), wrong) == (ROWS, 0)


def main() -> None:
    if not ray.is_initialized():
        ray.init(log_to_driver=False)
    if len(sys.argv) > 1:
        feed(attach(sys.argv[1]))
        return
    with tempfile.TemporaryDirectory() as folder:
        queues = {"payments": QueueConfig(partitions=8)}
        topology = deploy(PxrsConfig(name="spark-feed", data_dir=Path(folder), queues=queues))
        try:
            feed(topology)
        finally:
            topology.shutdown()


if __name__ == "__main__":
    main()
