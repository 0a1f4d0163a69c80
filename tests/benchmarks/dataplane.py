"""What the benchmarks of the data plane share: buffers, readers that check, and a load."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import ray

from pxrs_ray.actors import names
from pxrs_ray.actors.buffer.buffer_client import BufferClient
from pxrs_ray.actors.buffer.buffer_making import make_buffer
from pxrs_ray.actors.client.producer import Producer
from pxrs_ray.actors.cluster.process_memory import keep_freed_memory
from pxrs_ray.data.batch import Batch, batches
from pxrs_ray.data.log_limits import Durability
from pxrs_ray.data.protocol import BufferStats, Fetched, QueueSpec
from pxrs_ray.partitioning import Partitioner
from tests.actors.lease_keeper import LeaseKeeper
from tests.settings import log_limits, producer_limits, sender_limits

QUEUE = "bench"
PARTITIONS = 16
BUFFERS = 2
READERS = 2
KEYS = 10_000
PAYLOAD_BYTES = 100
COUNTER_BYTES = 8
CHUNK = 100_000
WAIT_S = 120.0
COMMIT_EVERY_S = 0.1


class Reader:
    """A reading actor: long polls its partitions, and looks at each message or at columns only."""

    def __init__(self, handles: list[Any], partitions: list[int]) -> None:
        keep_freed_memory()
        self._handles, self._partitions = handles, partitions
        self._tasks: list[asyncio.Task[None]] = []
        self.messages = self.payload_bytes = self.out_of_order = 0
        self._last: dict[bytes | None, bytes] = {}
        self._commit_due = 0.0

    async def start(self, mode: str) -> None:
        """Read for ever; `mode` names the method that looks at a batch."""
        look = getattr(self, f"_{mode}")
        for index, handle in enumerate(self._handles):
            mine = {p: (1, 0) for p in self._partitions if p % len(self._handles) == index}
            if mine:
                self._tasks.append(asyncio.ensure_future(self._read(handle, mine, look)))

    async def _read(self, handle: Any, positions: dict[int, tuple[int, int]], look: Any) -> None:
        fetching = BufferClient(handle, asyncio.get_running_loop())
        coming = fetching.fetch(QUEUE, "readers", positions, 8 << 20, 2_000)
        while True:
            found = await coming
            asked = dict(positions)
            for fetched in found:
                assert isinstance(fetched, Fetched), fetched
                positions[fetched.partition] = (1, fetched.next_offset)
            coming = fetching.fetch(QUEUE, "readers", positions, 8 << 20, 2_000)
            for fetched in found:
                for batch in batches(fetched, asked[fetched.partition][1]):
                    look(batch)
                    self.messages += len(batch)
            if found and time.monotonic() >= self._commit_due:
                self._commit_due = time.monotonic() + COMMIT_EVERY_S
                done = {partition: offset for partition, (_, offset) in positions.items()}
                handle.passed.remote(QUEUE, "readers", done)

    def _each(self, batch: Batch) -> None:
        """Every message in Python: its payload must be above the last one of its key."""
        last, known, wrong = self._last, self._last.get, 0
        for key, payload in batch.rows():
            if known(key, b"") >= payload:
                wrong += 1
            last[key] = payload
        self.out_of_order += wrong

    def _columns(self, batch: Batch) -> None:
        self.payload_bytes += batch.payloads.nbytes

    async def seen(self) -> tuple[int, int, float]:
        """Messages, messages out of order, and CPU seconds so far."""
        for task in self._tasks:
            if task.done():
                task.result()
        return self.messages, self.out_of_order, time.process_time()


@dataclass
class Plane:
    """Buffers with one queue, and readers."""

    topology: str
    handles: list[Any]
    readers: list[Any]

    def producer(self, **limits: Any) -> Producer:
        """A producer of the queue."""
        sender = sender_limits(inflight_appends_max=4)
        return Producer(
            self.topology,
            QUEUE,
            len(self.handles),
            Partitioner(PARTITIONS),
            producer_limits(**{"sender": sender, **limits}),
        )

    def read(self, mode: str) -> None:
        """Let the readers begin."""
        ray.get([reader.start.remote(mode) for reader in self.readers], timeout=WAIT_S)

    def seen(self) -> tuple[int, int, float]:
        """What all readers saw: messages, of them out of order, and CPU seconds."""
        answers = ray.get([reader.seen.remote() for reader in self.readers], timeout=WAIT_S)
        messages, wrong, cpu_s = zip(*answers, strict=True)
        return sum(messages), sum(wrong), sum(cpu_s)

    def wait_for(self, messages: int) -> None:
        """Return when the readers have seen so many."""
        deadline = time.monotonic() + WAIT_S
        while self.seen()[0] < messages:
            assert time.monotonic() < deadline, "the readers do not get there"
            time.sleep(0.002)

    def stats(self) -> list[BufferStats]:
        """The buffers' own figures."""
        found: list[BufferStats] = ray.get(
            [handle.stats.remote() for handle in self.handles], timeout=WAIT_S
        )
        return found


@contextmanager
def cluster() -> Iterator[None]:
    """A local Ray, made anew: object stores of earlier figures shall not help or hinder."""
    ray.init(
        num_cpus=8,
        include_dashboard=False,
        log_to_driver=False,
        configure_logging=False,
        object_store_memory=2 << 30,
    )
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def plane(
    durability: Durability, *, buffers: int = BUFFERS, readers: int = READERS, **limits: Any
) -> Iterator[Plane]:
    """Buffers and readers, gone afterwards. Reader i has the partitions of buffer i, both ways."""
    with cluster(), tempfile.TemporaryDirectory(prefix="pxrs-bench-") as folder:
        topology = f"bench-{uuid.uuid4().hex[:6]}"
        handles = [make_buffer(topology, index, buffers, folder) for index in range(buffers)]
        spec = QueueSpec(QUEUE, PARTITIONS, log_limits(durability=durability, **limits))
        ray.get([handle.open.remote(spec, {}, make=True) for handle in handles], timeout=WAIT_S)
        keeper = LeaseKeeper(handles)
        reader = ray.remote(Reader).options(num_cpus=0, enable_task_events=False)
        made: list[Any] = [
            reader.remote(handles, [p for p in range(PARTITIONS) if p % readers == index])
            for index in range(readers)
        ]
        if made:
            for index, handle in enumerate(handles):
                mine = {p: 0 for p in range(PARTITIONS) if p % buffers == index}
                ray.get(handle.passed.remote(QUEUE, "readers", mine), timeout=WAIT_S)
        try:
            yield Plane(topology, handles, made)
        finally:
            keeper.close()
            for actor in made:
                ray.kill(actor)
            for index in range(buffers):
                ray.kill(ray.get_actor(names.buffer(topology, index), names.NAMESPACE))


class Load:
    """Messages of 12-byte keys and 100-byte payloads that begin with an ever rising counter."""

    def __init__(self) -> None:
        rng = np.random.default_rng(1)
        self.keys = pa.array([b"user-%07d" % k for k in rng.integers(0, KEYS, CHUNK)], pa.binary())
        self._bytes = np.frombuffer(os.urandom(CHUNK * PAYLOAD_BYTES), np.uint8).copy()
        self._counters = self._bytes.reshape(CHUNK, PAYLOAD_BYTES)[:, :COUNTER_BYTES]
        offsets = np.arange(0, CHUNK * PAYLOAD_BYTES + 1, PAYLOAD_BYTES, dtype=np.int32)
        self._payloads = pa.Array.from_buffers(
            pa.binary(), CHUNK, [None, pa.py_buffer(offsets), pa.py_buffer(self._bytes)]
        )
        self._next = 1

    def chunk(self) -> tuple[pa.Array, pa.Array]:
        """The next CHUNK messages; valid until the next call (a producer copies at once)."""
        numbers = np.arange(self._next, self._next + CHUNK, dtype=">u8")
        self._counters[:] = numbers.view(np.uint8).reshape(CHUNK, COUNTER_BYTES)
        self._next += CHUNK
        return self.keys, self._payloads
