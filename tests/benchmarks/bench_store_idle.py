"""A running topology that has nothing to do writes nothing to its store but lease keep-alives."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import ray

from pxrs_ray.actors.client.topology import deploy
from pxrs_ray.config import PxrsConfig, QueueConfig
from pxrs_ray.consumer.delivery import Delivery
from tests.benchmarks.harness import figure

IDLE_S = 60.0


def handle(message: Delivery) -> None:
    """Nothing."""


@figure("store.idle_writes_60s", unit="writes", runs=1, warmups=0)
def idle_writes() -> float:
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="error")
    try:
        with tempfile.TemporaryDirectory(prefix="pxrs-idle-") as folder:
            topology = deploy(
                PxrsConfig(
                    name="idle", data_dir=Path(folder), queues={"q": QueueConfig(partitions=8)}
                )
            )
            try:
                group = topology.group("g", queue="q")
                group.start(handle, consumers=2)
                with topology.producer("q") as producer:
                    for number in range(100):
                        producer.send(f"k{number}", b"x")
                end_s = time.monotonic() + 30
                while group.lag() and time.monotonic() < end_s:
                    time.sleep(0.05)
                assert group.lag() == 0
                time.sleep(1.0)
                before = topology.status().store.writes
                time.sleep(IDLE_S)
                return float(topology.status().store.writes - before)
            finally:
                topology.kill()
    finally:
        ray.shutdown()
