"""`BufferPool`: the coordinator's hold on a topology's buffer actors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import ray
from ray.exceptions import RayError

from pxrs_ray.actors import names
from pxrs_ray.actors.buffer import make_buffer
from pxrs_ray.errors import DeadlineExceeded
from pxrs_ray.log.wire import BufferInfo, BufferStats, LogEnds, QueueSpec
from pxrs_ray.model import Epoch, Offset, PartitionId

logger = logging.getLogger(__name__)

CALL_WAIT_S = 30.0
PING_PAUSE_S = 1.0
PING_WAIT_S = 5.0


class BufferPool:
    """All buffers of one topology. Partition p lives on buffer p % count."""

    def __init__(self, topology: str, count: int, folder: str) -> None:
        self.count = count
        self._topology = topology
        self._folder = folder
        self._handles: list[Any] = []
        self._incarnations: dict[int, str] = {}
        self._away: dict[int, str] = {}
        self._external: set[str] = set()
        self._watch: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Make the buffers, or find those that run."""
        self._handles = [
            make_buffer(self._topology, index, self.count, self._folder)
            for index in range(self.count)
        ]
        infos = await asyncio.gather(*(self._call(i, "ping") for i in range(self.count)))
        for info in infos:
            self._incarnations[info.index] = info.incarnation

    def watch(self, returned: Callable[[int], Awaitable[None]]) -> None:
        """Call `returned` with the number of each buffer that has started anew."""
        self._watch = asyncio.ensure_future(self._watch_loop(returned))

    async def close(self) -> None:
        """Sync and close every log."""
        if self._watch is not None:
            self._watch.cancel()
        await asyncio.gather(
            *(self._call(index, "close") for index in range(self.count)), return_exceptions=True
        )

    def actor_names(self) -> list[str]:
        """What the buffers are called."""
        return [names.buffer(self._topology, index) for index in range(self.count)]

    def problems(self) -> list[str]:
        """Which buffers are away, and why."""
        return [f"buffer {index} does not answer: {why}" for index, why in self._away.items()]

    async def open(self, spec: QueueSpec, ends: Mapping[PartitionId, Offset]) -> None:
        """Make or open a queue's logs everywhere."""
        await asyncio.gather(*(self.open_on(index, spec, ends) for index in range(self.count)))

    async def open_on(
        self, index: int, spec: QueueSpec, ends: Mapping[PartitionId, Offset]
    ) -> None:
        """Make or open a queue's logs on one buffer."""
        if spec.external:
            self._external.add(spec.queue)
            return
        await self._call(index, "open", spec, dict(ends))

    async def ends(self, queue: str) -> dict[PartitionId, LogEnds]:
        """Where each log of a queue stands; what cannot be asked now is missing."""
        if queue in self._external:
            return {}
        answers = await asyncio.gather(
            *(self._call(i, "ends", queue, timeout_s=PING_WAIT_S) for i in range(self.count)),
            return_exceptions=True,
        )
        found: dict[PartitionId, LogEnds] = {}
        for answer in answers:
            if isinstance(answer, dict):
                found.update(answer)
        return dict(sorted(found.items()))

    async def offset_at(self, queue: str, timestamp_ms: int) -> dict[PartitionId, Offset]:
        """The first offset of each partition that is not older than `timestamp_ms`."""
        found: dict[PartitionId, Offset] = {}
        for index in range(self.count):
            found.update(await self._call(index, "offset_at", queue, timestamp_ms))
        return found

    async def ages(
        self, queue: str, offsets: Mapping[PartitionId, Offset]
    ) -> dict[PartitionId, int]:
        """The timestamp of the message at each offset; what cannot be asked now is missing."""
        answers = await asyncio.gather(
            *(
                self._call(index, "timestamps", queue, mine, timeout_s=PING_WAIT_S)
                for index, mine in self._by_buffer(offsets)
            ),
            return_exceptions=True,
        )
        found: dict[PartitionId, int] = {}
        for answer in answers:
            if isinstance(answer, dict):
                found.update(answer)
        return found

    async def stats(self) -> dict[int, BufferStats]:
        """What each buffer has done and holds; those that cannot be asked now are missing."""
        answers = await asyncio.gather(
            *(self._call(i, "stats", timeout_s=PING_WAIT_S) for i in range(self.count)),
            return_exceptions=True,
        )
        return {i: found for i, found in enumerate(answers) if isinstance(found, BufferStats)}

    def fence(self, queue: str, group: str, epochs: Mapping[PartitionId, Epoch]) -> None:
        """Tell the logs which epochs are over; they learn it from the next reader otherwise."""
        if queue in self._external:
            return
        for index, mine in self._by_buffer(epochs):
            self._handles[index].fence.remote(queue, group, mine)

    async def passed(
        self, queue: str, group: str, checkpoints: Mapping[PartitionId, Offset]
    ) -> None:
        """Tell the logs how far a group has come."""
        if queue in self._external:
            return
        await asyncio.gather(
            *(
                self._call(index, "passed", queue, group, mine)
                for index, mine in self._by_buffer(checkpoints)
            )
        )

    async def drop_group(self, queue: str, group: str) -> None:
        """Let the logs forget a group."""
        await asyncio.gather(
            *(self._call(index, "drop_group", queue, group) for index in range(self.count))
        )

    def _by_buffer(
        self, values: Mapping[PartitionId, int]
    ) -> Sequence[tuple[int, dict[PartitionId, int]]]:
        split: dict[int, dict[PartitionId, int]] = {}
        for partition, value in values.items():
            split.setdefault(partition % self.count, {})[partition] = value
        return list(split.items())

    async def _call(
        self, index: int, method: str, *arguments: object, timeout_s: float = CALL_WAIT_S
    ) -> Any:
        reference = getattr(self._handles[index], method).remote(*arguments)
        try:
            return await asyncio.wait_for(reference, timeout_s)
        except TimeoutError:
            raise DeadlineExceeded(
                f"buffer {index} of {self._topology} did not answer {method} in {timeout_s:g} s"
            ) from None

    async def _watch_loop(self, returned: Callable[[int], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(PING_PAUSE_S)
            await asyncio.gather(*(self._look(index, returned) for index in range(self.count)))

    async def _look(self, index: int, returned: Callable[[int], Awaitable[None]]) -> None:
        try:
            info: BufferInfo = await self._call(index, "ping", timeout_s=PING_WAIT_S)
            if info.incarnation != self._incarnations.get(index):
                logger.warning("buffer %d of %s has started anew", index, self._topology)
                await returned(index)
                self._incarnations[index] = info.incarnation
        except (RayError, DeadlineExceeded) as error:
            self._away[index] = str(error).splitlines()[0][:200]
        else:
            self._away.pop(index, None)


def buffer_count(configured: int | None, partitions_max: int) -> int:
    """How many buffers a new topology gets: one a CPU, never more than partitions."""
    cpus = int(ray.cluster_resources().get("CPU", 1))  # type: ignore[no-untyped-call]
    return configured or max(1, min(cpus, partitions_max))
