"""Large messages beside small ones: what a message of 64 MB costs those that share its buffers.

Through the public API only: two queues on the same two buffers, synced at intervals, a producer and
a consumer for each; defaults, but for the size of the largest message.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from pxrs_ray import PxrsConfig, QueueConfig, deploy
from tests.benchmarks.bench_path_send import Path16, Stopwatch, _offer
from tests.benchmarks.dataplane import BUFFERS, PARTITIONS, WAIT_S, cluster
from tests.benchmarks.harness import figures

LARGE_BYTES = 64_000_000
LARGE_PARTITIONS = 4
PER_S = 1_000


def weigh(message: Any) -> None:
    """A handler of large messages that looks at their ends."""
    assert len(message.payload) == LARGE_BYTES and message.payload[-1] == 7


@contextmanager
def path() -> Iterator[Path16]:
    with cluster(), tempfile.TemporaryDirectory(prefix="pxrs-bench-") as folder:
        queues = {
            "timed": QueueConfig(partitions=PARTITIONS),
            "large": QueueConfig(
                partitions=LARGE_PARTITIONS, message_bytes_max=LARGE_BYTES + 1_024
            ),
        }
        topology = deploy(
            PxrsConfig(name="large", data_dir=Path(folder) / "d", buffers=BUFFERS, queues=queues)
        )
        try:
            notes = Path(folder) / "notes"
            notes.mkdir()
            topology.group("time", queue="timed").start(Stopwatch(notes), consumers=1)
            topology.group("weigh", queue="large").start(weigh, consumers=1)
            yield Path16(topology, notes)
        finally:
            topology.shutdown()


class Large:
    """Sends one large message after the other, in a thread, each when the last is acknowledged."""

    def __init__(self, topology: Any) -> None:
        self._topology = topology
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._send)
        self.sent = 0
        self.failed: Exception | None = None

    def __enter__(self) -> Large:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(WAIT_S)

    def _send(self) -> None:
        payload = bytes(LARGE_BYTES - 1) + b"\7"
        try:
            with self._topology.producer("large") as producer:
                while not self._over.is_set():
                    producer.send(f"key-{self.sent}", payload).result(WAIT_S)
                    self.sent += 1
        except Exception as error:
            self.failed = error


@figures(
    {
        "path.large_mb_per_s": "MB/s",
        "path.small_p99_ms": "ms",
        "path.small_beside_large_p99_ms": "ms",
        "path.small_beside_large_max_ms": "ms",
    },
    runs=3,
    warmups=1,
    setup=path,
)
def beside(made: Path16) -> dict[str, float]:
    """Small messages at 1,000 a second, alone, and while messages of 64 MB are sent and handled."""
    with made.topology.producer("timed") as producer:
        messages, _ = _offer(producer, PER_S, busy=False)
        alone_ms = made.ages_ms(producer, messages)
        began_s = time.perf_counter()
        with Large(made.topology) as large:
            messages, _ = _offer(producer, PER_S, busy=False)
            beside_ms = made.ages_ms(producer, messages)
        took_s = time.perf_counter() - began_s
    assert large.failed is None, large.failed
    group = made.topology.group("weigh")
    deadline_s = time.monotonic() + WAIT_S
    while group.lag():
        assert time.monotonic() < deadline_s, "the large messages do not arrive"
        time.sleep(0.05)
    return {
        "path.large_mb_per_s": large.sent * LARGE_BYTES / 1e6 / took_s,
        "path.small_p99_ms": float(np.percentile(alone_ms, 99)),
        "path.small_beside_large_p99_ms": float(np.percentile(beside_ms, 99)),
        "path.small_beside_large_max_ms": float(np.max(beside_ms)),
    }
