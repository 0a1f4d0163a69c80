"""A driver that feeds, in a process of its own, so that it can be killed: see test_kills."""

from __future__ import annotations

import sys
from typing import Any

import ray

from pxrs_ray.config import PxrsConfig, QueueConfig
from pxrs_ray.log.wire import QueueSpec
from pxrs_ray.spark import spark_local, write_dataframe
from tests.spark.helpers import QUEUE, numbered


class Known:
    """What the feed asks a topology, told by the parent."""

    def __init__(self, name: str) -> None:
        self.name = name

    def queue_spec(self, queue: str) -> tuple[QueueSpec, PxrsConfig, int]:
        config = PxrsConfig(name=self.name, queues={QUEUE: QueueConfig(partitions=8)})
        return QueueSpec(QUEUE, 8, config.resolved_queue(QUEUE).log_limits()), config, 2


def main(address: str, topology: str, rows: int) -> None:
    ray.init(address=address, namespace="pxrs-spark-tests", log_to_driver=False)
    target: Any = Known(topology)
    with spark_local("feeder", cores=2) as spark:
        df = numbered(spark, rows)
        print("begins", flush=True)
        write_dataframe(
            df, target, QUEUE, key="account", payload="number", feed_id="f", progress=False
        )
    print("ended", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
