"""A group without Ray: real workers, real records of calls, real blame; processes die in name only.

A process is an `CallRecord` over a file and the workers that use it. It dies when a deadly handler
is called: from that moment on nothing of it counts any more, and its record is what was written
then. Its partitions, and at random also those of the others, go to new processes, with what `blame`
made of the rows.
"""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pxrs_ray.actors.consumer.call_record import CallRecord
from pxrs_ray.actors.consumer.call_record_file import read_record
from pxrs_ray.actors.consumer.handler import Handler, handler_ref
from pxrs_ray.actors.consumer.parallel_worker import ParallelWorker
from pxrs_ray.actors.consumer.sequential_worker import SequentialWorker
from pxrs_ray.actors.consumer.worker import Failure, Worker
from pxrs_ray.config import ByKey, GroupConfig, Packs
from pxrs_ray.config.scheduling import lane_scheduler, pack_scheduler, retry_rules
from pxrs_ray.consumer.delivery import DeliveredBatch, Delivery, DeliveryContext
from pxrs_ray.data.batch import Batch
from pxrs_ray.model import Grant, Message, Progress
from pxrs_ray.processing.suspects import EXITED_ITSELF, blame
from tests.actors.worker_bench import LogInMemory
from tests.leases import AlwaysHeld

WAIT_S = 60.0
DEATHS_MAX = 60


class Gone(BaseException):
    """The process of this thread is dead: what it does from here on never happened."""


@dataclass
class Row:
    """What the registry holds of a partition."""

    checkpoint: int = 0
    attempts: int = 0
    detail: str = ""
    epoch: int = 1


@dataclass
class World:
    """What is to be done, and what became of it. `deadly` is {(partition, offset): how}."""

    folder: Path
    config: GroupConfig
    messages: int
    deadly: dict[tuple[int, int], str]
    partitions: int = 3
    keys: int = 4
    batch: bool = False
    seed: int = 0
    rows: dict[int, Row] = field(default_factory=dict)
    done: list[tuple[int, int]] = field(default_factory=list)
    given_up: list[tuple[int, int, Failure]] = field(default_factory=list)
    delivered: list[tuple[int, int]] = field(default_factory=list)
    asides: dict[int, LogInMemory] = field(default_factory=dict)
    deaths: int = 0
    lock: threading.RLock = field(default_factory=threading.RLock)

    def key(self, offset: int) -> bytes:
        return b"k%d" % (offset % self.keys)

    def verdicts(self, place: tuple[int, int]) -> list[tuple[int, str]]:
        """With how many attempts, and which error, a message met its policy.

        In quarantine that is what was parked: who died before it could tell has parked it.
        """
        partition, offset = place
        if self.config.failure_policy != "quarantine":
            found = [f for p, o, f in self.given_up if (p, o) == place]
            return [(f.context.attempt, f.error) for f in found]
        parked = (dict(record.headers) for record in self.asides[partition].kept)
        return [
            (int(told["pxrs-attempts"]), told["pxrs-error"].decode())
            for told in parked
            if int(told["pxrs-offset"]) == offset
        ]

    def run(self) -> None:
        """Until everything is passed; raises AssertionError when it is not in time."""
        draw = random.Random(self.seed)
        self.rows = {p: Row() for p in range(self.partitions)}
        asides = self.asides = {p: LogInMemory() for p in range(self.partitions)}
        end_s = time.monotonic() + WAIT_S
        while any(row.checkpoint < self.messages for row in self.rows.values()):
            assert self.deaths <= DEATHS_MAX, "it never ends"
            assert time.monotonic() < end_s, self.rows
            split = [set[int](), set[int]()]
            for partition in self.rows:
                split[draw.randrange(2)].add(partition)
            processes = [
                Process(self, n, {p: asides[p] for p in mine}) for n, mine in enumerate(split)
            ]
            self._until_one_dies(processes, draw, end_s)
            for process in processes:
                process.close()

    def _until_one_dies(self, processes: list[Process], draw: random.Random, end_s: float) -> None:
        while time.monotonic() < end_s:
            with self.lock:
                dead = [process for process in processes if process.dead]
                for process in processes:
                    if draw.random() < 0.3:
                        process.commit()
            if dead:
                self.deaths += len(dead)
                return
            with self.lock:
                for process in processes:
                    process.commit()
                if all(row.checkpoint >= self.messages for row in self.rows.values()):
                    return
            time.sleep(0.001)


class Process:
    """One process, and the Office of its workers."""

    def __init__(self, world: World, number: int, asides: dict[int, LogInMemory]) -> None:
        self.world = world
        self.path = world.folder / f"record-{number}"
        self.in_hand = CallRecord(self.path)
        self.lease = AlwaysHeld()
        self.dead = False
        self._cause = 0
        self._snapshot = b""
        self._release = threading.Event()
        self._handler = Handler(handler_ref(_stand_in))
        self._handler.wants_batch = world.batch
        self._handler.call = self._call_batch if world.batch else self._call
        self.workers: dict[int, Worker] = {}
        for partition, aside in asides.items():
            row = world.rows[partition]
            row.epoch += 1
            self.workers[partition] = self._worker(partition, row, aside)
        for partition, worker in self.workers.items():
            worker.start()
            base = world.rows[partition].checkpoint
            offsets = range(base, world.messages)
            if offsets:
                keys: list[bytes | None] = [world.key(offset) for offset in offsets]
                batch = Batch.of(keys, [b"%d" % o for o in offsets], timestamp_ms=1)
                worker.put(Batch(partition, base, batch.flags, batch.columns, 1), 1)

    def _worker(self, partition: int, row: Row, aside: LogInMemory) -> Worker:
        config, handler = self.world.config, self._handler
        grant = Grant(partition, row.epoch, row.checkpoint, row.attempts, row.detail)
        progress = Progress(row.checkpoint, row.attempts, row.detail)
        shared = DeliveryContext("q", "g", "m", 1, partition, row.epoch, topology_id="t1")
        shared.attempt = row.attempts + 1
        if isinstance(config.processing, Packs):
            return ParallelWorker(
                grant, shared, handler, pack_scheduler(config, progress), self, config, None
            )
        if isinstance(config.processing, ByKey):
            quarantine = aside if config.failure_policy == "quarantine" else None
            lanes = lane_scheduler(config, progress)
            return ParallelWorker(grant, shared, handler, lanes, self, config, None, quarantine)
        return SequentialWorker(grant, shared, handler, retry_rules(config), self, config, None)

    # --- handlers ---------------------------------------------------------------------------------

    def _call(self, message: Delivery) -> None:
        self._handle([(message.partition, message.offset)])

    def _call_batch(self, batch: DeliveredBatch) -> None:
        self._handle([(message.partition, message.offset) for message in batch])

    def _handle(self, places: list[tuple[int, int]]) -> None:
        world = self.world
        self._alive(lambda: world.delivered.extend(places))
        time.sleep(0.0005)
        for place in places:
            how = world.deadly.get(place)
            if how is not None:
                time.sleep(0.03 if "late" in how else 0)
                self._alive(partial(self._die, how))
                self._alive(lambda: None)
            self._alive(partial(world.done.append, place))

    def _alive(self, act: Callable[[], object]) -> None:
        """Do something if this process lives; a dead one does nothing any more."""
        with self.world.lock:
            if not self.dead:
                act()
                return
        self._release.wait(WAIT_S)
        raise Gone

    def _die(self, how: str) -> None:
        self._snapshot = bytes(self.in_hand.words)
        self._cause = signal.SIGKILL if "kill" in how else EXITED_ITSELF + 9
        self.dead = True

    # --- what the world asks ----------------------------------------------------------------------

    def commit(self) -> None:
        """Under the world's lock: write down where its partitions are."""
        if not self.dead:
            for partition, worker in self.workers.items():
                progress = worker.progress()
                row = self.world.rows[partition]
                row.checkpoint, row.attempts = progress.checkpoint, progress.attempts
                row.detail = progress.detail
                assert len(row.detail) <= 2_000

    def close(self) -> None:
        """End it; what a dead one leaves is its record."""
        for worker in self.workers.values():
            worker.stop()
        self._release.set()
        for worker in self.workers.values():
            assert worker.join(WAIT_S)
        with self.world.lock:
            self.commit()
        if self.dead:
            self.path.write_bytes(self._snapshot)
            death = read_record(self.path, self._cause)
            assert death.calls, "a process that dies in a call has it in hand"
            for partition in self.workers:
                row = self.world.rows[partition]
                calls = [c for c in death.calls if (c.partition, c.epoch) == (partition, row.epoch)]
                row.detail = blame(row.checkpoint, row.attempts, row.detail, death, calls)
        else:
            self.in_hand.end_cleanly()

    # --- Office -----------------------------------------------------------------------------------

    def checkpoint_soon(self) -> None: ...

    def room(self) -> None: ...

    def checkpoint_now(self, worker: Worker) -> None: ...

    def give_up(self, worker: Worker, failure: Failure, messages: Iterable[Message]) -> None:
        found = [(worker.partition, message.offset, failure) for message in messages]
        self._alive(lambda: self.world.given_up.extend(found))

    def ended(self, worker: Worker) -> None: ...


def _stand_in(message: Any) -> None: ...
