"""`pxrs bench`: measures this cluster with a topology of its own, which is removed afterwards."""

from __future__ import annotations

import statistics
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pxrs_ray.actors.client.group import Group
from pxrs_ray.actors.client.topology import Topology, deploy
from pxrs_ray.config import PxrsConfig, QueueConfig
from pxrs_ray.consumer.delivery import DeliveredBatch
from pxrs_ray.errors import DeadlineExceeded
from pxrs_ray.late_dataclass import dataclass

CHUNK_ROWS = 100_000
KEYS = 10_000
PINGS = 300
WAIT_S = 300.0


@dataclass(frozen=True, slots=True)
class ClusterBenchmark:
    """What was measured, and with how much work."""

    messages: int
    payload_bytes: int
    partitions: int
    consumers: int
    produce_per_s: float
    end_to_end_per_s: float
    latency_p50_ms: float
    latency_p99_ms: float


def ignore(batch: DeliveredBatch) -> None:
    """The handler: the work of nobody."""


def run_trial(
    messages: int, payload_bytes: int, partitions: int, consumers: int, data_dir: Path
) -> ClusterBenchmark:
    """Produce `messages` while `consumers` read along; then send single ones and wait for each."""
    with _topology(partitions, data_dir) as topology:
        group = topology.group("bench", queue="bench")
        group.start("pxrs_ray.actors.client.cluster_benchmark:ignore", consumers=consumers)
        payload = b"x" * payload_bytes
        keys = [f"key-{n % KEYS}".encode() for n in range(CHUNK_ROWS)]
        with topology.producer("bench") as producer:
            began_s = time.perf_counter()
            for start in range(0, messages, CHUNK_ROWS):
                count = min(CHUNK_ROWS, messages - start)
                producer.send_batch(keys[:count], [payload] * count)
            producer.flush(WAIT_S)
            produced_s = time.perf_counter() - began_s
            _wait_until_empty(group)
            passed_s = time.perf_counter() - began_s
        group.stop()
        latencies_ms = _latencies_ms(topology, payload)
    return ClusterBenchmark(
        messages,
        payload_bytes,
        partitions,
        consumers,
        messages / produced_s,
        messages / passed_s,
        statistics.median(latencies_ms),
        statistics.quantiles(latencies_ms, n=100)[98],
    )


@contextmanager
def _topology(partitions: int, data_dir: Path) -> Iterator[Topology]:
    config = PxrsConfig(
        name=f"bench-{uuid.uuid4().hex[:8]}",
        data_dir=data_dir,
        queues={"bench": QueueConfig(partitions=partitions)},
    )
    topology = deploy(config)
    try:
        yield topology
    finally:
        topology.shutdown()


def _wait_until_empty(group: Group) -> None:
    end_s = time.monotonic() + WAIT_S
    while group.lag():
        if time.monotonic() > end_s:
            raise DeadlineExceeded(f"the consumers still lag after {WAIT_S:g} s")
        time.sleep(0.01)


def _latencies_ms(topology: Topology, payload: bytes) -> list[float]:
    """From `send` to the message in the hands of a pull consumer, one message at a time."""
    found = []
    group = topology.group("ping", queue="bench", start="end")
    with group.consumer() as consumer, topology.producer("bench", linger_ms=0) as producer:
        while not consumer.partitions:
            consumer.poll(0.1)
        for number in range(PINGS):
            began_s = time.perf_counter()
            producer.send(f"key-{number}", payload)
            while consumer.poll(1.0) is None:
                if time.perf_counter() - began_s > WAIT_S:
                    raise DeadlineExceeded(f"a message did not come in {WAIT_S:g} s")
            found.append((time.perf_counter() - began_s) * 1_000)
        consumer.commit()
    return found
