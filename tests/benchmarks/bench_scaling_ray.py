"""Scaling on real Ray: what a hand-over costs warm and cold, and what one router moves."""

from __future__ import annotations

import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.harness import figure, figures

LOAD_S = 5.0
PARTITIONS = 8
SEND_PAUSE_S = 0.004
ROUTED_BATCHES = 40
ROUTED_BATCH = 100_000
WAIT_S = 60


@contextmanager
def ray_here() -> Iterator[Path]:
    """A local Ray, and a folder that is gone afterwards."""
    import ray

    with tempfile.TemporaryDirectory(prefix="pxrs-bench") as folder:
        ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
        try:
            yield Path(folder)
        finally:
            ray.shutdown()


class Loading:
    """A handler that needs LOAD_S for each partition before it can work, and notes when it did."""

    def __init__(self, notes: Path) -> None:
        self._notes = notes
        self._ready: set[int] = set()

    def on_prepare(self, partition: int, checkpoint: int) -> None:
        """Load."""
        time.sleep(LOAD_S)
        self._ready.add(partition)

    def on_assigned(self, partition: int, checkpoint: int) -> None:
        """Load, unless that was done before."""
        if partition not in self._ready:
            self.on_prepare(partition, checkpoint)

    def on_revoked(self, partition: int) -> None:
        """Evict."""
        self._ready.discard(partition)

    def handle(self, message: Any) -> None:
        """Note the time."""
        with (self._notes / f"P{message.partition}").open("a") as file:
            file.write(f"{time.time()}\n")


def _pauses_ms(folder: Path, name: str, prepare_ms: int) -> list[float]:
    """Go from one consumer to two under load; the longest pause of each partition that moved."""
    from pxrs_ray import PxrsConfig, QueueConfig, deploy

    notes = folder / f"notes-{name}"
    notes.mkdir()
    queues = {"q": QueueConfig(partitions=PARTITIONS)}
    topology = deploy(PxrsConfig(name=name, data_dir=folder, queues=queues, linger_ms=0))
    stop = threading.Event()

    def feed() -> None:
        with topology.producer("q") as producer:
            number = 0
            while not stop.wait(SEND_PAUSE_S):
                producer.send(b"k%d" % (number % 256), b"x")
                number += 1

    feeding = threading.Thread(target=feed)
    try:
        group = topology.group("g", queue="q", prepare_ms=prepare_ms)
        group.start(Loading(notes), consumers=1)
        feeding.start()
        time.sleep(LOAD_S + 2)
        before_s = time.time()
        group.scale(2)
        end_s = time.monotonic() + WAIT_S
        while len(group.status().owners) < 2 and time.monotonic() < end_s:
            time.sleep(0.05)
        time.sleep(LOAD_S + 2)
        moved = [c.partition for c in group.history() if c.kind == "release"]
    finally:
        stop.set()
        if feeding.is_alive():
            feeding.join()
        topology.shutdown()
    pauses = []
    for partition in moved:
        times = [float(line) for line in (notes / f"P{partition}").read_text().split()]
        near = np.array([t for t in times if t > before_s - 0.5])
        pauses.append(float(np.diff(near).max()) * 1_000)
    assert len(pauses) == PARTITIONS // 2, f"{len(pauses)} partitions moved"
    return pauses


_runs: dict[str, int] = defaultdict(int)


@figures(
    {"scaling.warm_pause_p99_ms": "ms", "scaling.cold_pause_p50_ms": "ms"},
    runs=3,
    warmups=0,
    setup=ray_here,
)
def hand_over(folder: Path) -> dict[str, float]:
    """The pause of a partition whose next owner has to load for LOAD_S, warm and cold."""
    _runs["hand_over"] += 1
    number = _runs["hand_over"]
    warm = _pauses_ms(folder, f"warm-{number}", 60_000)
    cold = _pauses_ms(folder, f"cold-{number}", 0)
    return {
        "scaling.warm_pause_p99_ms": float(np.percentile(warm, 99)),
        "scaling.cold_pause_p50_ms": float(np.percentile(cold, 50)),
    }


@figure("scaling.router_events_per_s", unit="events/s", runs=3, warmups=1, setup=ray_here)
def router(folder: Path) -> float:
    """One router process: hash channel ids (xxHash64, jump, 256 partitions), append, all safe."""
    import pyarrow as pa

    from pxrs_ray import PxrsConfig, QueueConfig, deploy

    _runs["router"] += 1
    name = f"router-{_runs['router']}"
    queues = {"fanout": QueueConfig(partitions=256, strategy="jump", hash_seed=0)}
    topology = deploy(PxrsConfig(name=name, data_dir=folder, queues=queues, buffers=2))
    try:
        numbers = np.arange(ROUTED_BATCH) * 37 % 50_000
        channels = pa.array([b"channel-%05d" % n for n in numbers], pa.binary())
        events = pa.array([b"%0100d" % n for n in range(ROUTED_BATCH)], pa.binary())
        with topology.producer("fanout") as producer:
            producer.send_batch(channels, events)
            producer.flush(WAIT_S)
            started_s = time.perf_counter()
            for _ in range(ROUTED_BATCHES):
                producer.send_batch(channels, events)
            producer.flush(WAIT_S)
            took_s = time.perf_counter() - started_s
    finally:
        topology.shutdown()
    return ROUTED_BATCHES * ROUTED_BATCH / took_s
