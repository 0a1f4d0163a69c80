"""The data plane end to end through Ray actors, on 16 partitions, 2 buffers and 2 readers."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pxrs_ray.data.batch import Batch
from pxrs_ray.data.log_limits import Durability
from pxrs_ray.partitioning import Partitioner
from pxrs_ray.producer.routing import route
from tests.benchmarks.dataplane import CHUNK, PARTITIONS, WAIT_S, Load, Plane, plane
from tests.benchmarks.harness import figure, figures

MESSAGES = 4_000_000
SINGLE_MESSAGES = 400_000
UNREAD_MESSAGES = 10_000_000
APPEND_MESSAGES = 4_000_000
WARMUPS = 3


@dataclass
class Stream:
    """A plane whose readers run, and a load that never repeats itself."""

    plane: Plane
    load: Load
    sent: int = 0

    def run(self) -> dict[str, float]:
        """Send MESSAGES, and wait until all are read and in order; rate and CPU a message."""
        buffers_before = sum(stats.cpu_seconds for stats in self.plane.stats())
        _, _, readers_before = self.plane.seen()
        with self.plane.producer() as producer:
            began, cpu_began = time.perf_counter(), time.process_time()
            for _ in range(MESSAGES // CHUNK):
                producer.send_batch(*self.load.chunk())
            self.sent += MESSAGES
            producer.flush(WAIT_S)
            self.plane.wait_for(self.sent)
            seconds = time.perf_counter() - began
            producer_cpu = time.process_time() - cpu_began
        messages, wrong, readers_cpu = self.plane.seen()
        assert messages == self.sent, "lost or doubled"
        assert wrong == 0, f"{wrong} messages out of order"
        buffers_cpu = sum(stats.cpu_seconds for stats in self.plane.stats()) - buffers_before
        return {
            "msgs_per_s": MESSAGES / seconds,
            "producer_cpu_us": producer_cpu / MESSAGES * 1e6,
            "buffers_cpu_us": buffers_cpu / MESSAGES * 1e6,
            "readers_cpu_us": (readers_cpu - readers_before) / MESSAGES * 1e6,
        }


def units(name: str) -> dict[str, str]:
    """The figures of one stream."""
    told = {"msgs_per_s": "msgs/s"}
    told |= {f"{who}_cpu_us": "us/msg" for who in ("producer", "buffers", "readers")}
    return {f"data.{name}_{what}": unit for what, unit in told.items()}


def named(name: str, measured: dict[str, float]) -> dict[str, float]:
    return {f"data.{name}_{what}": value for what, value in measured.items()}


@contextmanager
def memory_each() -> Iterator[Stream]:
    with plane(Durability.MEMORY) as made:
        made.read("each")
        yield Stream(made, Load())


@contextmanager
def interval_each() -> Iterator[Stream]:
    with plane(Durability.INTERVAL) as made:
        made.read("each")
        yield Stream(made, Load())


@contextmanager
def memory_columns() -> Iterator[Stream]:
    with plane(Durability.MEMORY) as made:
        made.read("columns")
        yield Stream(made, Load())


@figures(units("e2e_memory"), setup=memory_each, warmups=WARMUPS)
def e2e_memory(stream: Stream) -> dict[str, float]:
    return named("e2e_memory", stream.run())


@figures(units("e2e_interval"), setup=interval_each, warmups=WARMUPS)
def e2e_interval(stream: Stream) -> dict[str, float]:
    return named("e2e_interval", stream.run())


@figures(units("columnar"), setup=memory_columns, warmups=WARMUPS)
def columnar(stream: Stream) -> dict[str, float]:
    return named("columnar", stream.run())


@contextmanager
def nobody_reads() -> Iterator[Plane]:
    with plane(Durability.MEMORY, readers=0) as made:
        yield made


@figure("data.send_single_msgs_per_s", unit="msgs/s", setup=nobody_reads)
def send_single(made: Plane) -> float:
    messages = [(b"user-%07d" % (i % 10_000), b"x" * 100) for i in range(SINGLE_MESSAGES)]
    with made.producer(linger_ms=5) as producer:
        began = time.perf_counter()
        for key, payload in messages:
            producer.send(key, payload)
        producer.flush(WAIT_S)
        return SINGLE_MESSAGES / (time.perf_counter() - began)


@figure("data.route_msgs_per_s", unit="msgs/s")
def routing() -> float:
    """Hash, group and encode alone, on one core."""
    load, partitioner, rounds = Load(), Partitioner(PARTITIONS), 20
    keys, payloads = load.chunk()
    batch = Batch.of(keys, payloads, timestamp_ms=1)
    began = time.perf_counter()
    for sequence in range(rounds):
        for _, part in route(batch, partitioner).parts:
            part.to_wire(b"p" * 16, 0, sequence)
    return rounds * CHUNK / (time.perf_counter() - began)


@contextmanager
def one_buffer() -> Iterator[Plane]:
    with plane(Durability.INTERVAL, buffers=1, readers=1) as made:
        yield made


@figures(
    {"data.buffer_rss_10m_mb": "MB", "data.append_slowdown_percent": "%"},
    setup=one_buffer,
    runs=1,
    warmups=0,
)
def unread(made: Plane) -> dict[str, float]:
    """A buffer's memory with 10 million unread messages, and appends beside a cold read of them."""
    load = Load()
    with made.producer() as producer:

        def rate(messages: int) -> float:
            began = time.perf_counter()
            for _ in range(messages // CHUNK):
                producer.send_batch(*load.chunk())
            producer.flush(WAIT_S)
            return messages / (time.perf_counter() - began)

        rate(UNREAD_MESSAGES - 5 * APPEND_MESSAGES // 4)
        alone = statistics.median(rate(APPEND_MESSAGES // 4) for _ in range(5))
        (stats,) = made.stats()
        assert stats.messages == UNREAD_MESSAGES and stats.bytes_kept > 100 * UNREAD_MESSAGES
        made.read("columns")
        beside = statistics.median(rate(APPEND_MESSAGES // 4) for _ in range(5))
        assert made.seen()[0] > 0
    return {
        "data.buffer_rss_10m_mb": stats.rss_bytes / 1e6,
        "data.append_slowdown_percent": (1 - beside / alone) * 100,
    }
