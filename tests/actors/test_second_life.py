"""What a queue promised holds in the second life of its buffer, on real Ray."""

from __future__ import annotations

import os
import signal

import pytest
import ray

from pxrs_ray.actors import names
from pxrs_ray.config import QueueConfig
from tests.actors.conftest import Stage
from tests.actors.recording import eventually

pytestmark = pytest.mark.ray
APPENDS = 20


def test_durability_outlives_a_killed_buffer(stage: Stage) -> None:
    topology = stage.deploy(
        buffers=1,
        queues={
            "sure": QueueConfig(partitions=1, durability="always"),
            "memory": QueueConfig(partitions=1, durability="memory"),
        },
    )
    buffer = ray.get_actor(names.buffer(topology.name, 0), namespace=names.NAMESPACE)

    def syncs_of_appends() -> int:
        before = ray.get(buffer.stats.remote()).syncs
        with topology.producer("sure", linger_ms=0) as producer:
            for n in range(APPENDS):
                producer.send("k", f"{n}").result(10)
        return int(ray.get(buffer.stats.remote()).syncs - before)

    assert syncs_of_appends() >= APPENDS
    with topology.producer("memory") as producer:
        producer.send("k", "1").result(10)
    pid = ray.get(buffer.ping.remote()).pid
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: ray.get(buffer.ping.remote(), timeout=10).pid != pid)
    assert syncs_of_appends() >= APPENDS, "acknowledged before they were synced"
    eventually(lambda: ray.get(buffer.ends.remote("memory"))[0].state == "open")
    with topology.producer("memory") as producer:
        producer.send("k", "2").result(10)
    eventually(lambda: not topology.status().reports)
    folder = stage.folder
    assert not [path for path in folder.rglob("*.seg") if "memory" in path.parts]
