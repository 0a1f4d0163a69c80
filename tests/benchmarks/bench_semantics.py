"""Key parallelism, poison and fairness: the worker of one partition, with real threads, no Ray."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from pxrs_ray.actors.cluster.process_memory import keep_what_is_loaded
from pxrs_ray.actors.consumer.call_record import CallRecord
from pxrs_ray.actors.consumer.handler import Handler, handler_ref
from pxrs_ray.actors.consumer.parallel_worker import ParallelWorker
from pxrs_ray.actors.consumer.sequential_worker import SequentialWorker
from pxrs_ray.actors.consumer.worker import Failure, Worker
from pxrs_ray.config import ByKey, GroupConfig
from pxrs_ray.config.scheduling import lane_scheduler, retry_rules
from pxrs_ray.consumer.delivery import Delivery, DeliveryContext
from pxrs_ray.data.batch import Batch
from pxrs_ray.model import Grant, Message, Progress
from tests.benchmarks.harness import figure
from tests.leases import AlwaysHeld

MESSAGES = 10_000
KEYS = 1_000
PARALLELISM = 32
WAIT_S = 120.0
QUIET_EVERY_S = 0.1
FLOOD = 1_000
WORK_S = 0.004
SLOW_WORK_S = 0.02


class WorkerCallbacks:
    """Keeps nothing: dead letters are dropped where a real one would send them on."""

    def __init__(self) -> None:
        self.in_hand = CallRecord()
        self.lease = AlwaysHeld()

    def checkpoint_soon(self) -> None: ...

    def room(self) -> None: ...

    def checkpoint_now(self, worker: Worker) -> None: ...

    def give_up(self, worker: Worker, failure: Failure, messages: Iterable[Message]) -> None: ...

    def ended(self, worker: Worker) -> None: ...


@contextmanager
def quiet_logs() -> Iterator[None]:
    logging.disable()
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def _stand_in(message: Delivery) -> None: ...


def worker_of(handle: Callable[[Any], object], **options: Any) -> Worker:
    """A running worker of a fresh partition; in order where no option asks for more."""
    config = GroupConfig(queue="q", **options)
    handler = Handler(handler_ref(_stand_in))
    handler.call = handle
    grant, shared = Grant(0, 1, 0), DeliveryContext("q", "g", "m", 1, 0, 1, topology_id="t1")
    worker: Worker
    if isinstance(config.processing, ByKey):
        scheduler = lane_scheduler(config, Progress(0))
        worker = ParallelWorker(grant, shared, handler, scheduler, WorkerCallbacks(), config, None)
    else:
        rules = retry_rules(config)
        worker = SequentialWorker(grant, shared, handler, rules, WorkerCallbacks(), config, None)
    worker.start()
    return worker


def batch_of(keys: list[bytes], base: int = 0, tenants: list[bytes] | None = None) -> Batch:
    headers = None if tenants is None else [{"tenant": tenant} for tenant in tenants]
    batch = Batch.of(keys, [b""] * len(keys), timestamp_ms=1, headers=headers)
    return Batch(0, base, batch.flags, batch.columns, 1)


def finish(worker: Worker, offset: int) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while worker.progress().checkpoint < offset:
        assert time.monotonic() < deadline_s, "the worker did not finish"
        time.sleep(0.002)
    worker.stop()
    assert worker.join(WAIT_S)


def clocked_s(handle: Callable[[Any], object], keys: list[bytes], **options: Any) -> float:
    worker = worker_of(handle, **options)
    began_s = time.perf_counter()
    worker.put(batch_of(keys), 1)
    finish(worker, len(keys))
    return time.perf_counter() - began_s


@figure("semantics.key_parallel_speedup", unit="times", runs=3, warmups=0)
def key_parallel_speedup() -> float:
    """10,000 messages of 0 to 5 ms over 1,000 keys in one partition, against one by one.

    One by one is clocked over a tenth of the messages, for it takes 25 s otherwise.
    """
    draw = random.Random(1)
    took = [draw.uniform(0, 0.005) for _ in range(MESSAGES)]
    keys = [b"key-%d" % draw.randrange(KEYS) for _ in range(MESSAGES)]
    last: dict[bytes | None, int] = {}

    def handle(message: Delivery) -> None:
        time.sleep(took[message.offset])
        assert last.get(message.key, -1) < message.offset, "a key went out of order"
        last[message.key] = message.offset

    part = MESSAGES // 10
    one_by_one_s = clocked_s(handle, keys[:part]) / sum(took[:part]) * sum(took)
    last.clear()
    return one_by_one_s / clocked_s(handle, keys, processing=ByKey(parallelism=PARALLELISM))


@figure("semantics.poison_throughput_ratio", unit="ratio", runs=3, warmups=0)
def poison_throughput_ratio() -> float:
    """The rate of healthy messages with 1 key in 1,000 poisoned, against none poisoned."""
    draw = random.Random(2)
    keys = [b"key-%d" % draw.randrange(KEYS) for _ in range(MESSAGES)]

    def rate(poisoned: bytes) -> float:
        healthy = 0

        def handle(message: Delivery) -> None:
            nonlocal healthy
            time.sleep(WORK_S)
            if message.key == poisoned:
                raise ValueError("poison")
            healthy += 1

        options = {
            "processing": ByKey(parallelism=16),
            "attempts_max": 3,
            "backoff_ms": 10,
            "backoff_ms_max": 40,
        }
        took_s = clocked_s(handle, keys, failure_policy="skip", **options)
        return healthy / took_s

    with quiet_logs():
        return rate(b"key-7") / rate(b"nobody")


@figure("semantics.fair_wait_p99_ratio", unit="ratio", runs=3, warmups=0)
def fair_wait_p99_ratio() -> float:
    """A quiet tenant's 99th percentile from arrival to end beside one that sends 1,000 times as
    much, against its own when it is alone. The process is settled as a consumer's is."""
    keep_what_is_loaded()
    return _p99_wait_s(flood=True) / _p99_wait_s(flood=False)


def _p99_wait_s(*, flood: bool, rounds: int = 60) -> float:
    arrived: dict[int, float] = {}
    waits: list[float] = []

    def handle(message: Delivery) -> None:
        time.sleep(SLOW_WORK_S)
        if message.offset in arrived:
            waits.append(time.perf_counter() - arrived[message.offset])

    mode = ByKey(
        parallelism=8, fair_tenants=True, lookahead_records=1 << 20, lookahead_bytes=1 << 30
    )
    worker = worker_of(handle, processing=mode)
    base = 0
    for _ in range(rounds):
        count = FLOOD if flood else 0
        keys = [b"loud-%d" % n for n in range(count)] + [b"quiet-%d" % base]
        tenants = [b"loud"] * count + [b"quiet"]
        batch = batch_of(keys, base, tenants)
        arrived[base + count] = time.perf_counter()
        worker.put(batch, 1)
        base += count + 1
        time.sleep(QUIET_EVERY_S)
    time.sleep(0.2)
    worker.stop()
    assert worker.join(WAIT_S) and len(waits) >= rounds * 0.95
    return sorted(waits)[len(waits) * 99 // 100]
