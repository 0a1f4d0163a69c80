"""Single messages through a whole topology: a producer, two buffers, a consumer and its handler."""

from __future__ import annotations

import itertools
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pxrs_ray import PxrsConfig, QueueConfig, deploy
from tests.benchmarks.dataplane import BUFFERS, PARTITIONS, QUEUE, WAIT_S, cluster
from tests.benchmarks.harness import figures

MESSAGES = 3_000
MESSAGES_PER_S = 1_000
PAUSE_S = 0.05


class Stopwatch:
    """A handler that notes how old each message is, and writes it down when it has seen all."""

    def __init__(self, notes: Path, messages: int) -> None:
        self._notes = notes
        self._messages = messages
        self._ages_s: list[float] = []
        self._seen = itertools.count(1)

    def handle(self, message: Any) -> None:
        """Called by a thread of each partition."""
        self._ages_s.append(time.monotonic() - float(message.payload))
        if next(self._seen) % self._messages == 0:
            written = self._notes.with_suffix(".new")
            written.write_text(json.dumps(self._ages_s))
            self._ages_s = []
            written.rename(self._notes)


@dataclass
class Light:
    """A topology that does nothing else, and where its handler's notes will be."""

    topology: Any
    notes: Path

    def ages_s(self) -> list[float]:
        """What the handler noted of one run."""
        deadline = time.monotonic() + WAIT_S
        while not self.notes.exists():
            assert time.monotonic() < deadline, "messages are missing"
            time.sleep(PAUSE_S)
        found: list[float] = json.loads(self.notes.read_text())
        self.notes.unlink()
        return found


@contextmanager
def light_load() -> Iterator[Light]:
    with cluster(), tempfile.TemporaryDirectory(prefix="pxrs-bench-") as folder:
        topology = deploy(
            PxrsConfig(
                name="light",
                data_dir=Path(folder),
                buffers=BUFFERS,
                queues={QUEUE: QueueConfig(partitions=PARTITIONS)},
            )
        )
        try:
            notes = Path(folder) / "ages.json"
            group = topology.group("readers", queue=QUEUE)
            group.start(Stopwatch(notes, MESSAGES), consumers=1)
            yield Light(topology, notes)
        finally:
            topology.shutdown()


@figures({"data.latency_p50_ms": "ms", "data.latency_p99_ms": "ms"}, setup=light_load)
def latency(light: Light) -> dict[str, float]:
    """From `send` with linger 0 to the handler, at 1,000 messages a second."""
    with light.topology.producer(QUEUE, linger_ms=0) as producer:
        due = time.monotonic()
        for i in range(MESSAGES):
            due += 1 / MESSAGES_PER_S
            time.sleep(max(0.0, due - time.monotonic()))
            producer.send(b"%d" % (i % 100), b"%.9f" % time.monotonic())
        producer.flush(WAIT_S)
    centiles = statistics.quantiles(light.ages_s(), n=100)
    return {"data.latency_p50_ms": centiles[49] * 1e3, "data.latency_p99_ms": centiles[98] * 1e3}
