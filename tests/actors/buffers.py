"""What the tests of buffers and producers share: a topology of buffers alone, and a reader."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray

from pxrs_ray.actors import names
from pxrs_ray.actors.buffer.buffer_making import make_buffer
from pxrs_ray.actors.client.producer import Producer
from pxrs_ray.data.batch import batches
from pxrs_ray.data.log_limits import LogLimits
from pxrs_ray.data.protocol import Fetched, QueueSpec, Refused
from pxrs_ray.errors import LeaseOver
from pxrs_ray.model import Message
from pxrs_ray.partitioning import Partitioner
from tests.actors.lease_keeper import LeaseKeeper
from tests.settings import log_limits, producer_limits

WAIT_S = 60.0


class Buffers:
    """Buffers of a topology with one queue, and no coordinator."""

    def __init__(self, folder: Path, partitions: int, count: int, limits: LogLimits) -> None:
        self.topology = f"t{uuid.uuid4().hex[:8]}"
        self.folder, self.partitions, self.count = folder, partitions, count
        self.spec = QueueSpec("q", partitions, limits)
        self.handles: list[Any] = [self.make(index) for index in range(count)]
        opening = [handle.open.remote(self.spec, {}, make=True) for handle in self.handles]
        ray.get(opening, timeout=WAIT_S)
        self._keeper = LeaseKeeper(self.handles)

    def make(self, index: int) -> Any:
        return make_buffer(self.topology, index, self.count, str(self.folder))

    def pids(self) -> list[int]:
        infos = ray.get([handle.ping.remote() for handle in self.handles], timeout=WAIT_S)
        return [info.pid for info in infos]

    def producer(self, **limits: Any) -> Producer:
        return Producer(
            self.topology, "q", self.count, Partitioner(self.partitions), producer_limits(**limits)
        )

    def messages(self, partition: int) -> list[Message]:
        """Everything that one partition holds, read from its start."""
        handle = self.handles[partition % self.count]
        at = ray.get(handle.ends.remote("q"), timeout=WAIT_S)[partition].start_offset
        found: list[Message] = []
        end_s = time.monotonic() + WAIT_S
        while True:
            call = handle.fetch.remote("q", "reader", {partition: (0, at)}, 8 << 20, 0)
            answers = ray.get(call, timeout=WAIT_S)
            if not answers:
                return found
            (fetched,) = answers
            if isinstance(fetched, Refused) and isinstance(fetched.error, LeaseOver):
                time.sleep(0.1)  # it was killed a moment ago; its keeper comes round
                assert time.monotonic() < end_s, fetched
                continue
            assert isinstance(fetched, Fetched), fetched
            for batch in batches(fetched, at):
                found.extend(batch)
            at = fetched.next_offset

    def close(self) -> None:
        self._keeper.close()
        for index in range(self.count):
            ray.kill(ray.get_actor(names.buffer(self.topology, index), names.NAMESPACE))


@contextmanager
def running_buffers(
    folder: Path, partitions: int = 8, count: int = 2, limits: LogLimits | None = None
) -> Iterator[Buffers]:
    """Buffers that are gone afterwards."""
    buffers = Buffers(folder, partitions, count, limits or log_limits())
    try:
        yield buffers
    finally:
        buffers.close()
