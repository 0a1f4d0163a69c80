"""What a user sees who sends: latency and rate of single sends, and several producers at once.

Through the public API only: a deployed topology on SQLite, two buffers, 16 partitions synced at
intervals, two consumers, payloads of 100 bytes, default options.
"""

from __future__ import annotations

import tempfile
import time
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import ray

from pxrs_ray import PxrsConfig, QueueConfig, deploy
from tests.benchmarks.dataplane import BUFFERS, KEYS, PARTITIONS, PAYLOAD_BYTES, WAIT_S, cluster
from tests.benchmarks.harness import figure, figures

CONSUMERS = 2
STAMP_BYTES = 8
FILL = b"." * (PAYLOAD_BYTES - STAMP_BYTES)
THE_END = bytes(PAYLOAD_BYTES)
RUN_S = 2.0
PAUSE_S = 0.05
SINGLE_SENDS = 1_500_000
BATCH = 20_000
BATCHES_S = 3.0
KEPT_UP = 0.98
LATE_MS = 500
OFFERED_PER_S = (50_000, 100_000, 150_000, 200_000, 250_000, 300_000)
NS = 1_000_000_000


class Stopwatch:
    """A message handler that notes how old each message is; a mark ends a partition's run."""

    def __init__(self, notes: Path) -> None:
        self._notes = notes
        self._ages_ns: dict[int, array[int]] = {}

    def handle(self, message: Any) -> None:
        """Called by a thread of each partition."""
        now_ns = time.monotonic_ns()
        sent_ns = int.from_bytes(message.payload[:STAMP_BYTES], "big")
        if sent_ns:
            ages_ns = self._ages_ns.get(message.partition)
            if ages_ns is None:
                ages_ns = self._ages_ns[message.partition] = array("q")
            ages_ns.append(now_ns - sent_ns)
            return
        ages_ns = self._ages_ns.pop(message.partition, array("q"))
        written = self._notes / f"{message.partition}.new"
        written.write_bytes(ages_ns.tobytes())
        written.rename(self._notes / f"{message.partition}.ages")


def take(batch: Any) -> None:
    """A batch handler that does next to nothing, so that sending is what is measured."""
    assert len(batch)


@dataclass
class Path16:
    """A topology with a queue whose messages are timed and one whose messages are counted."""

    topology: Any
    notes: Path

    def ages_ms(self, producer: Any, messages: int) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Have each partition end its run; answers how old every message was in its handler."""
        producer.broadcast(THE_END).result(WAIT_S)
        deadline = time.monotonic() + WAIT_S
        paths = [self.notes / f"{partition}.ages" for partition in range(PARTITIONS)]
        while not all(path.exists() for path in paths):
            assert time.monotonic() < deadline, "messages are missing"
            time.sleep(PAUSE_S)
        found = np.concatenate([np.fromfile(path, np.int64) for path in paths])
        for path in paths:
            path.unlink()
        assert len(found) == messages, f"{len(found)} of {messages} messages were handled"
        return found / 1e6

    def drained(self) -> None:
        """Return when the counted queue has nothing left to read."""
        deadline = time.monotonic() + WAIT_S
        while self.topology.group("count").lag():
            assert time.monotonic() < deadline, "the readers do not get there"
            time.sleep(PAUSE_S)


@contextmanager
def path() -> Iterator[Path16]:
    with cluster(), tempfile.TemporaryDirectory(prefix="pxrs-bench-") as folder:
        queues = {name: QueueConfig(partitions=PARTITIONS) for name in ("timed", "counted")}
        topology = deploy(
            PxrsConfig(name="path", data_dir=Path(folder) / "d", buffers=BUFFERS, queues=queues)
        )
        try:
            notes = Path(folder) / "notes"
            notes.mkdir()
            topology.group("time", queue="timed").start(Stopwatch(notes), consumers=CONSUMERS)
            topology.group("count", queue="counted").start(take, CONSUMERS, mode="batch")
            yield Path16(topology, notes)
        finally:
            topology.shutdown()


def _offer(producer: Any, per_s: int, *, busy: bool) -> tuple[int, float]:
    """Send singly for `RUN_S`; answers how many, and the rate that was kept.

    A message is dated when it was due where the sender is busy, so that a send that takes long
    counts; and when it is sent where the sender sleeps, for what it oversleeps is not ours.
    """
    messages = int(per_s * RUN_S)
    keys = [b"user-%07d" % (at % KEYS) for at in range(messages)]
    clock, send = time.monotonic_ns, producer.send
    began_ns = clock()
    for at, key in enumerate(keys):
        due_ns = began_ns + at * NS // per_s
        if busy:
            while clock() < due_ns:
                pass
        else:
            time.sleep(max(0.0, (due_ns - clock()) / NS))
            due_ns = clock()
        send(key, due_ns.to_bytes(STAMP_BYTES, "big") + FILL)
    return messages, messages * NS / (clock() - began_ns)


@figures({"path.latency_p50_ms": "ms", "path.latency_p99_ms": "ms"}, runs=3, setup=path)
def latency(made: Path16) -> dict[str, float]:
    """From `send` to the handler, at 1,000 messages a second."""
    with made.topology.producer("timed") as producer:
        messages, _ = _offer(producer, 1_000, busy=False)
        ages_ms = made.ages_ms(producer, messages)
    p50, p99 = np.percentile(ages_ms, [50, 99])
    return {"path.latency_p50_ms": float(p50), "path.latency_p99_ms": float(p99)}


@figure("path.latency_10k_p99_ms", unit="ms", runs=3, setup=path)
def latency_10k(made: Path16) -> float:
    """At 10,000 a second, by a thread that computes between its sends."""
    with made.topology.producer("timed") as producer:
        messages, _ = _offer(producer, 10_000, busy=True)
        return float(np.percentile(made.ages_ms(producer, messages), 99))


@figure("path.single_saturation_per_s", unit="msg/s", runs=1, warmups=0, setup=path)
def single_saturation(made: Path16) -> float:
    """The highest rate that is kept, with no message later than half a second."""
    kept = 0.0
    for per_s in OFFERED_PER_S:
        with made.topology.producer("timed") as producer:
            messages, rate = _offer(producer, per_s, busy=True)
            late_ms = float(np.max(made.ages_ms(producer, messages)))
        if rate < KEPT_UP * per_s or late_ms > LATE_MS:
            break
        kept = rate
    return kept


@figure("path.send_msgs_per_s", unit="msg/s", runs=3, setup=path)
def sends(made: Path16) -> float:
    """`send` in a loop, until all is acknowledged."""
    keys = [b"user-%07d" % (at % KEYS) for at in range(SINGLE_SENDS)]
    payload = bytes(PAYLOAD_BYTES)
    with made.topology.producer("counted") as producer:
        producer.send(b"first", payload).result(WAIT_S)
        send = producer.send
        began_s = time.perf_counter()
        for key in keys:
            send(key, payload)
        producer.flush(WAIT_S)
        passed_s = time.perf_counter() - began_s
    made.drained()
    return SINGLE_SENDS / passed_s


def _send_batches(topology: Any, begin_s: float) -> tuple[int, float]:
    """Runs in a process of its own: messages that were acknowledged, and in which time."""
    keys = pa.array([b"user-%07d" % (at % KEYS) for at in range(BATCH)], pa.binary())
    payloads = pa.array([bytes(PAYLOAD_BYTES)] * BATCH, pa.binary())
    with topology.producer("counted") as producer:
        producer.send_batch(keys, payloads).result(WAIT_S)
        time.sleep(max(0.0, begin_s - time.monotonic()))
        began_s, messages = time.monotonic(), 0
        while time.monotonic() < began_s + BATCHES_S:
            producer.send_batch(keys, payloads)
            messages += BATCH
        producer.flush(WAIT_S)
        return messages, time.monotonic() - began_s


def _batches_per_s(made: Path16, producers: int) -> float:
    task = ray.remote(num_cpus=0)(_send_batches)
    begin_s = time.monotonic() + 3.0
    found = ray.get([task.remote(made.topology, begin_s) for _ in range(producers)], timeout=WAIT_S)
    made.drained()
    return float(sum(messages for messages, _ in found) / max(passed_s for _, passed_s in found))


@figures(
    {
        "path.producers1_msgs_per_s": "msg/s",
        "path.producers4_msgs_per_s": "msg/s",
        "path.producers4_ratio": "times",
    },
    runs=3,
    warmups=0,
    setup=path,
)
def four_producers(made: Path16) -> dict[str, float]:
    """What four batch producers send in processes of their own, against one."""
    one, four = _batches_per_s(made, 1), _batches_per_s(made, 4)
    return {
        "path.producers1_msgs_per_s": one,
        "path.producers4_msgs_per_s": four,
        "path.producers4_ratio": four / one,
    }
