"""A worker without Ray: an office that keeps what it is told, and a quarantine in memory."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from pxrs_ray.actors.consumer.call_record import CallRecord
from pxrs_ray.actors.consumer.handler import Handler, handler_ref
from pxrs_ray.actors.consumer.parallel_worker import ParallelWorker
from pxrs_ray.actors.consumer.quarantine_log import QuarantineLog
from pxrs_ray.actors.consumer.worker import Failure, Worker
from pxrs_ray.config import GroupConfig, Packs
from pxrs_ray.config.scheduling import lane_scheduler, pack_scheduler
from pxrs_ray.consumer.delivery import Delivery, DeliveryContext
from pxrs_ray.data.batch import Batch
from pxrs_ray.model import Grant, Message, Progress
from pxrs_ray.processing.quarantine_state import Quarantine
from tests.actors.recording import eventually
from tests.leases import AlwaysHeld

WAIT_S = 30.0


class WorkerCallbacks:
    """What a worker tells, kept; `refuse` makes giving up fail so many times."""

    def __init__(self, refuse: int = 0) -> None:
        self.in_hand = CallRecord()
        self.lease = AlwaysHeld()
        self.given_up: list[tuple[Failure, list[int]]] = []
        self.commits = 0
        self.over = threading.Event()
        self._refuse = refuse

    def checkpoint_soon(self) -> None:
        self.commits += 1

    def room(self) -> None:
        pass

    def checkpoint_now(self, worker: Worker) -> None:
        raise AssertionError("courses never wait for a commit")

    def give_up(self, worker: Worker, failure: Failure, messages: Iterable[Message]) -> None:
        if self._refuse:
            self._refuse -= 1
            raise RuntimeError("away")
        self.given_up.append((failure, [message.offset for message in messages]))

    def ended(self, worker: Worker) -> None:
        self.over.set()


def batch_of(keys: list[bytes | None], base: int = 0) -> Batch:
    batch = Batch.of(keys, [b"%d" % n for n in range(len(keys))], timestamp_ms=1)
    return Batch(3, base, batch.flags, batch.columns, 1)


def _stand_in(message: Delivery) -> None: ...


async def _async_stand_in(message: Delivery) -> None: ...


class LogInMemory(QuarantineLog):
    """A quarantine's log in this process; appending takes a moment, as it does elsewhere."""

    def __init__(self) -> None:
        self.queue, self.partition = "q.quarantine.g", 3
        self.state, self.lock, self.epoch = Quarantine(), threading.RLock(), 7
        self.kept: list[Message] = []

    def refresh(self) -> Quarantine:
        with self.lock:
            for record in self.kept[self.state.next_position :]:
                self.state.apply(record)
            return self.state

    def records(self, position: int, count: int) -> list[Message]:
        return self.kept[position : position + count]

    def append(self, messages: Sequence[Message]) -> None:
        with self.lock:
            time.sleep(0.001)
            for message in messages:
                self.kept.append(replace(message, offset=len(self.kept)))
            self.refresh()

    def settle(self) -> None: ...

    def tidy(self) -> None: ...


class Bench:
    """One worker at a time, on partition 3."""

    def __init__(self, handler: Callable[[Any], object], **options: Any) -> None:
        self.config = GroupConfig(queue="q", backoff_ms=1, backoff_ms_max=5, **options)
        is_async = asyncio.iscoroutinefunction(handler)
        self.handler = Handler(handler_ref(_async_stand_in if is_async else _stand_in))
        # Called by reference and not by what was pickled: what it notes must be seen here.
        self.handler.function = handler  # type: ignore[assignment]
        if not is_async:
            self.handler.call = handler
        self.callbacks = WorkerCallbacks()
        self.workers: list[ParallelWorker] = []

    def start(
        self,
        progress: Progress | None = None,
        quarantine: QuarantineLog | None = None,
        sought: tuple[int, int] | None = None,
    ) -> ParallelWorker:
        progress = progress or Progress(0)
        grant = Grant(3, 7, progress.checkpoint, progress.attempts, progress.detail, sought)
        make = pack_scheduler if isinstance(self.config.processing, Packs) else lane_scheduler
        worker = ParallelWorker(
            grant,
            DeliveryContext("q", "g", "c-0", 1, 3, 7, topology_id="t1"),
            self.handler,
            make(self.config, progress),
            self.callbacks,
            self.config,
            None,
            quarantine,
        )
        self.workers.append(worker)
        worker.start()
        return worker

    def reaches(self, worker: ParallelWorker, offset: int) -> None:
        eventually(lambda: worker.progress().checkpoint == offset, WAIT_S, pause_s=0.001)


@pytest.fixture
def bench() -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def make(handler: Callable[[Any], object], **options: Any) -> Bench:
        made.append(Bench(handler, **options))
        return made[-1]

    yield make
    for each in made:
        for worker in each.workers:
            worker.stop()
            assert worker.join(WAIT_S)


def sleeps(count: int, seed: int = 1) -> list[float]:
    draw = random.Random(seed)
    return [draw.uniform(0, 0.005) for _ in range(count)]


def keys_of(count: int, keys: int, seed: int = 2) -> list[bytes | None]:
    draw = random.Random(seed)
    return [b"key-%d" % draw.randrange(keys) for _ in range(count)]


def in_order(done: list[tuple[bytes | None, int]]) -> bool:
    last: dict[bytes | None, int] = {}
    for key, offset in done:
        if offset <= last.get(key, -1):
            return False
        last[key] = offset
    return True
