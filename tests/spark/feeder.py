"""A driver that feeds, in a process of its own, so that it can be killed: see test_kills."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import ray

from pxrs_ray.config import PxrsConfig, QueueConfig
from pxrs_ray.data.protocol import QueueSpec
from pxrs_ray.spark import spark_local, write_dataframe, write_stream
from tests.spark.helpers import QUEUE, numbered, numbered_stream


class Known:
    """What the feed asks a topology, told by the parent."""

    def __init__(self, name: str) -> None:
        self.name = name

    def queue_spec(self, queue: str) -> tuple[QueueSpec, PxrsConfig, int]:
        config = PxrsConfig(name=self.name, queues={QUEUE: QueueConfig(partitions=8)})
        return QueueSpec(QUEUE, 8, config.resolved_queue(QUEUE).log_limits()), config, 2


def main(address: str, topology: str, rows: int, folder: str) -> None:
    """Feed so many rows, and then stream the files in `folder`/source."""
    ray.init(address=address, namespace="pxrs-spark-tests", log_to_driver=False)
    target: Any = Known(topology)
    with spark_local("feeder", cores=2) as spark:
        df = numbered(spark, rows)
        print("begins", flush=True)
        write_dataframe(
            df, target, QUEUE, key="account", payload="number", feed_id="f", progress=False
        )
        print("fed", flush=True)
        stream = write_stream(
            numbered_stream(spark, Path(folder, "source")),
            target,
            QUEUE,
            key="account",
            payload="number",
            checkpoint_location=str(Path(folder, "checkpoint")),
            trigger_s=0.1,
        )
        stream.process_all()
        stream.stop()
    print("ended", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
