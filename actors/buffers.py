"""`BufferPool`: the coordinator's hold on a topology's buffer actors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

import ray

from pxrs_ray.actors import gcs, names
from pxrs_ray.actors.buffer import LEASE_S, make_buffer
from pxrs_ray.errors import DeadlineExceeded
from pxrs_ray.log.wire import BufferInfo, BufferStats, LogEnds, QueueSpec
from pxrs_ray.model import Epoch, Offset, PartitionId
from pxrs_ray.supervision import told
from pxrs_ray.supervisor import Supervisor, is_asked_for

logger = logging.getLogger(__name__)

CALL_WAIT_S = 30.0
PING_PAUSE_S = 1.0
PING_WAIT_S = 5.0
TOLD_CHARS = 300
# A buffer that lives answers a look in milliseconds: what takes longer is told of within seconds.
LOOK_WAIT_S = 2.0

FOREIGN_REMEDY = (
    "restore the registry that they belong to, or give the topology another data_dir; "
    "`pxrs recover registry FILE --accept-loss` takes the messages that lie there for its own, "
    "and delivers them from the checkpoints that the registry has (the first message where none)"
)


class BufferPool:
    """All buffers of one topology. Partition p lives on buffer p % count."""

    def __init__(self, topology: str, count: int, folder: str, lease_s: float = LEASE_S) -> None:
        self.count = count
        self._lease_s = lease_s
        self._topology = topology
        self._folder = folder
        self._handles: list[Any] = []
        self._incarnations: dict[int, str] = {}
        self._away: dict[int, str] = {}
        self._where: dict[int, str] = {}
        self._troubles: dict[int, tuple[str, ...]] = {}
        self._foreign: set[int] = set()
        self._external: set[str] = set()
        self._unopened: dict[tuple[int, str], str] = {}
        self._watching: list[asyncio.Task[None]] = []
        self._supervisor = Supervisor(f"buffers of {topology}")

    async def start(self) -> None:
        """Make the buffers, or find those that run."""
        topology, count, folder = self._topology, self.count, self._folder
        self._handles = [
            await gcs.ask(
                "make",
                partial(make_buffer, topology, index, count, folder, self._lease_s),
                gcs.MAKE_S,
            )
            for index in range(count)
        ]
        infos = await asyncio.gather(*(self._call(i, "ping") for i in range(self.count)))
        for info in infos:
            self._incarnations[info.index] = info.incarnation
            self._note(info)

    def _note(self, info: BufferInfo) -> None:
        self._where[info.index] = f"pid {info.pid} on node {info.node[:8]}"
        self._troubles[info.index] = info.problems

    def watch(self, returned: Callable[[int], Awaitable[None]]) -> None:
        """Call `returned` with the number of each buffer that has started anew."""
        watch = partial(self._watch_loop, returned)
        self._watching.append(self._supervisor.keep("their watch", watch))

    def stop_watching(self) -> None:
        """Look no more."""
        for task in self._watching:
            task.cancel()

    async def close(self) -> None:
        """Sync and close every log."""
        self.stop_watching()
        await asyncio.gather(
            *(self._call(index, "close") for index in range(self.count)), return_exceptions=True
        )

    def actor_names(self) -> list[str]:
        """What the buffers are called."""
        return [names.buffer(self._topology, index) for index in range(self.count)]

    def problems(self) -> list[str]:
        """Which buffers are away, and why."""
        away = [f"{self.told(index)} does not answer: {why}" for index, why in self._away.items()]
        away += [
            f"queue {queue} is not open on buffer {index}, and is tried again: {why}"
            for (index, queue), why in self._unopened.items()
        ]
        away += self._supervisor.problems()
        away += [f"{self.told(at)}: {why}" for at, told in self._troubles.items() for why in told]
        return away + [
            f"the logs of buffer {index} were made under another registry than this topology's: "
            f"{FOREIGN_REMEDY}"
            for index in sorted(self._foreign)
        ]

    def told(self, index: int) -> str:
        """A buffer as people find it: its number, process and node."""
        where = self._where.get(index)
        return f"buffer {index}" if where is None else f"buffer {index} ({where})"

    async def open(self, spec: QueueSpec, ends: Mapping[PartitionId, Offset]) -> None:
        """Make or open a queue's logs everywhere. Raises what one could not, after all tried."""
        calls = (self.open_on(index, spec, ends) for index in range(self.count))
        for answer in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(answer, BaseException):
                raise answer

    async def open_on(
        self, index: int, spec: QueueSpec, ends: Mapping[PartitionId, Offset]
    ) -> None:
        """Make or open a queue's logs on one buffer."""
        if spec.external:
            self._external.add(spec.queue)
            return
        try:
            await self._call(index, "open", spec, dict(ends))
        except BaseException as error:
            # The buffer is looked at anew: all its queues are opened then, this one too.
            self._incarnations.pop(index, None)
            self._unopened[index, spec.queue] = told(error, TOLD_CHARS)
            raise
        self._unopened.pop((index, spec.queue), None)

    def is_external(self, queue: str) -> bool:
        """Whether the queue's messages are kept by somebody else: it has no logs here."""
        return queue in self._external

    async def ends(self, queue: str, timeout_s: float = PING_WAIT_S) -> dict[PartitionId, LogEnds]:
        """Where each log of a queue stands; what cannot be asked now is missing."""
        if queue in self._external:
            return {}
        answers = await asyncio.gather(
            *(self._call(i, "ends", queue, timeout_s=timeout_s) for i in range(self.count)),
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
        self,
        queue: str,
        offsets: Mapping[PartitionId, Offset],
        timeout_s: float = PING_WAIT_S,
    ) -> dict[PartitionId, int]:
        """The timestamp of the message at each offset; what cannot be asked now is missing."""
        answers = await asyncio.gather(
            *(
                self._call(index, "timestamps", queue, mine, timeout_s=timeout_s)
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

    async def fences(self, queue: str, group: str) -> dict[PartitionId, Epoch]:
        """The highest epoch of a group that each log has seen; raises when one cannot be asked."""
        found: dict[PartitionId, Epoch] = {}
        if queue not in self._external:
            for answer in await self._all("fences", queue, group):
                found.update(answer)
        return found

    async def belong(self, topology_id: str, *, adopt: bool) -> dict[int, str]:
        """Whose logs each buffer has, where they are not of `topology_id`; see `Buffer.belong`."""
        found = await self._all("belong", topology_id, adopt)
        return {index: known for index, known in enumerate(found) if known != topology_id}

    async def belong_on(self, index: int, topology_id: str, *, adopt: bool) -> None:
        """The same of one buffer that has started anew; what is wrong is a problem of it."""
        known = await self._call(index, "belong", topology_id, adopt)
        self._foreign.discard(index)
        if known != topology_id and not adopt:
            self._foreign.add(index)

    async def drop_group(self, queue: str, group: str) -> None:
        """Let the logs forget a group. Where one cannot now, its buffer is looked at anew."""
        await self._all("drop_group", queue, group, again=True)

    async def forget(self, queues: Sequence[str]) -> None:
        """Delete everything that the buffers keep."""
        await self._all("forget", queues)

    async def drop_queue(self, queue: str) -> None:
        """Delete every log of a queue. Where one cannot be now, its buffer is looked at anew."""
        await self._all("drop_queue", queue, again=True)
        self._external.discard(queue)
        self._unopened = {at: why for at, why in self._unopened.items() if at[1] != queue}

    async def _all(self, method: str, *arguments: object, again: bool = False) -> list[Any]:
        """Call a method of every buffer; raises when one does not answer, after all have tried.

        With `again` those that failed are looked at anew, as when they had started anew.
        """
        calls = (self._call(index, method, *arguments) for index in range(self.count))
        answers = await asyncio.gather(*calls, return_exceptions=True)
        failed = {i: each for i, each in enumerate(answers) if isinstance(each, BaseException)}
        for index in failed if again else ():
            self._incarnations.pop(index, None)
        for error in failed.values():
            raise error
        return list(answers)

    def _by_buffer(
        self, values: Mapping[PartitionId, int]
    ) -> Sequence[tuple[int, dict[PartitionId, int]]]:
        split: dict[int, dict[PartitionId, int]] = {}
        for partition, value in values.items():
            split.setdefault(partition % self.count, {})[partition] = value
        return list(split.items())

    async def _call(
        self, index: int, method: str, *arguments: object, timeout_s: float | None = None
    ) -> Any:
        timeout_s = CALL_WAIT_S if timeout_s is None else timeout_s
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
            info: BufferInfo = await self._call(index, "ping", timeout_s=LOOK_WAIT_S)
            self._note(info)
            self._away.pop(index, None)
            if info.incarnation != self._incarnations.get(index):
                logger.warning("buffer %d of %s is told everything", index, self._topology)
                # First, for whatever fails meanwhile has it looked at anew once more.
                self._incarnations[index] = info.incarnation
                try:
                    await returned(index)
                except BaseException:
                    self._incarnations.pop(index, None)
                    raise
        except BaseException as error:
            if is_asked_for(error, asyncio.current_task()):
                raise
            if not any(at == index for at, _ in self._unopened):
                self._away[index] = (str(error).splitlines() or [type(error).__name__])[0][:200]


def buffer_count(configured: int | None, partitions_max: int) -> int:
    """How many buffers a new topology gets: one a CPU, never more than partitions."""
    cpus = int(ray.cluster_resources().get("CPU", 1))  # type: ignore[no-untyped-call]
    return configured or max(1, min(cpus, partitions_max))
