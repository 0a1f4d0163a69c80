"""`BufferPool`: the coordinator's handles on all buffers of a topology; it pings, opens and fences
them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import ray

from pxrs_ray.actors import names
from pxrs_ray.actors.buffer.buffer_actor import LEASE_S
from pxrs_ray.actors.buffer.buffer_client import BufferClient
from pxrs_ray.actors.buffer.coordinator_recovery import RecoveryPlan
from pxrs_ray.actors.coordinator.buffer_calls import PING_WAIT_S, BufferCalls
from pxrs_ray.actors.coordinator.buffer_slots import FOREIGN_REMEDY, went_elsewhere
from pxrs_ray.actors.coordinator.replica_followers import NoReplicas
from pxrs_ray.data.link_ports import OFF
from pxrs_ray.data.protocol import BufferInfo, BufferStats, LogEnds, QueueSpec
from pxrs_ray.log.identity import Identity
from pxrs_ray.model import Epoch, Offset, PartitionId
from pxrs_ray.status.problem import Kind, Report
from pxrs_ray.status.refusal_watch import RefusalWatch
from pxrs_ray.supervision.restart_rules import told
from pxrs_ray.supervision.supervisor import Supervisor, is_asked_for, within
from pxrs_ray.topology.homes import Home

logger = logging.getLogger(__name__)

PING_PAUSE_S = 1.0
TOLD_CHARS = 300
# A buffer that lives answers a look in milliseconds: what takes longer is reported within seconds.
LOOK_WAIT_S = 2.0


class BufferPool(BufferCalls):
    """All buffers of one topology. Partition p lives on buffer p % count."""

    def __init__(
        self,
        topology: str,
        count: int,
        folder: str,
        lease_s: float = LEASE_S,
        link_ports: str = OFF,
    ) -> None:
        super().__init__(topology, count, folder, lease_s, link_ports)
        self.confirm: Callable[[], Awaitable[None]] | None = None
        self.replicas = NoReplicas()
        self.refusals = RefusalWatch()
        self._external: set[str] = set()
        self._returned: Callable[[int], Awaitable[None]] | None = None
        self._soon = [asyncio.Event() for _ in range(count)]
        self._watching: list[asyncio.Task[None]] = []
        self._asked: dict[int, asyncio.Timeout] = {}
        self._supervisor = Supervisor(f"buffers of {topology}")

    async def meet(self, wait_s: float) -> None:
        """Ping every buffer that has a host once; the watch meets those that do not answer in
        time."""
        there = sorted(self._handles)
        answers = await asyncio.gather(
            *(self._ping(index, wait_s) for index in there), return_exceptions=True
        )
        for index, info in zip(there, answers, strict=True):
            if isinstance(info, BaseException):
                self._failed(index, info)
            else:
                self.met_at_start(index, info)

    async def _ping(self, index: int, timeout_s: float | None = None) -> BufferInfo:
        """Look at a buffer; what it may serve by goes with it."""
        grant = self._granted(index)
        info = await self._ask(index, lambda to: to.ping(grant), timeout_s)
        return self._pinged(index, info)

    async def grant(self, *indexes: int) -> None:
        """Let these buffers (none named: all) serve at once; a look renews it from then on.

        Who has other logs than ours, or another disk, gets nothing. Raises when one that is named
        cannot be asked.
        """
        await self.confirmed()
        if indexes:
            await asyncio.gather(*(self._ping(index) for index in indexes))
        else:
            await self._of_met(self._ping)

    async def confirmed(self) -> None:
        """Have it from the registry that this coordinator leads: what was heard until now may be
        granted by then."""
        if self.confirm is not None:
            await self.confirm()
        else:
            self.grants.leading(self.grants.heard_so_far())

    def watch(self, returned: Callable[[int], Awaitable[None]]) -> None:
        """Call `returned` with the number of each buffer that has started anew."""
        self._returned = returned
        self.keep_granting()

    def keep_granting(self) -> None:
        """Look at the buffers from now on, so that they may go on serving."""
        if self._watching:
            return
        for index in range(self.count):
            watch = partial(self._watch_loop, index)
            self._watching.append(self._supervisor.keep(f"the watch of buffer {index}", watch))

    def follow(self, link_ports: str) -> None:
        """Have the buffers go by that from their next look on, which comes now."""
        if link_ports != self._link_ports:
            self._link_ports = link_ports
            for index in range(self.count):
                self.look_soon(index)

    def look_soon(self, index: int) -> None:
        """A buffer has started: look at it now."""
        if 0 <= index < self.count:
            self._soon[index].set()

    def stop_watching(self) -> None:
        """Look no more."""
        for task in self._watching:
            task.cancel()
        self._watching.clear()

    async def close(self) -> None:
        """Sync and close every log."""
        self.stop_watching()
        await self.replicas.stop()
        await asyncio.gather(
            *(self._ask(i, BufferClient.stop) for i in range(self.count)), return_exceptions=True
        )

    def actor_names(self) -> list[str]:
        """What the buffers are called."""
        return self.replicas.actor_names() or [
            names.buffer(self._topology, i) for i in range(self.count)
        ]

    def reports(self) -> list[Report]:
        """Which buffers are away, and why, and what else is wrong with them."""
        found = self.replicas.reports()
        for index, why in sorted(self._waits.items()):
            found.append(Report(Kind.BUFFER_WAITS, f"buffer {index} {why}", index))
        for index, why in self._away.items():
            found.append(
                Report(Kind.BUFFER_AWAY, f"{self.told(index)} does not answer: {why}", index)
            )
        for (index, queue), why in self._unopened.items():
            text = f"queue {queue} is not open on buffer {index}, and is tried again: {why}"
            found.append(Report(Kind.QUEUE_NOT_OPEN, text, index))
        found += [Report(Kind.BUFFER_WITHOUT_DISK, why, at) for at, why in self._elsewhere.items()]
        found += [Report(Kind.WORK_FAILED, text) for text in self._supervisor.problems()]
        for index, troubles in self._troubles.items():
            found += [
                Report(Kind.WORK_FAILED, f"{self.told(index)}: {why}", index) for why in troubles
            ]
        for index, host in sorted(self._later_on.items()):
            found.append(Report(Kind.LOGS_FOREIGN, went_elsewhere(index, host), index))
        for index in sorted(self._foreign - self._later_on.keys()):
            told = f"the logs of buffer {index} were made under another registry than this "
            told += f"topology's: {FOREIGN_REMEDY}"
            found.append(Report(Kind.LOGS_FOREIGN, told, index))
        return found

    async def open_on(
        self, index: int, spec: QueueSpec, ends: Mapping[PartitionId, Offset], *, make: bool
    ) -> None:
        """Open a queue's logs on one buffer, or `make` those that are not there; see
        `Buffer.open`."""
        if spec.external:
            self._external.add(spec.queue)
            return
        try:
            await self.replicas.open_on(index, spec, make=make)
            await self._ask(index, lambda to: to.open(spec, dict(ends), make))
        except BaseException as error:
            self.not_open(index, spec.queue, told(error, TOLD_CHARS))
            raise
        self.is_open(index, spec.queue)

    def is_external(self, queue: str) -> bool:
        """Whether the queue's messages are kept by somebody else: it has no logs here."""
        return queue in self._external

    async def ends(self, queue: str, timeout_s: float = PING_WAIT_S) -> dict[PartitionId, LogEnds]:
        """Where each log of a queue stands; what cannot be asked now is missing."""
        if queue in self._external:
            return {}
        answers = await asyncio.gather(
            *(self._ask(i, lambda to: to.ends(queue), timeout_s) for i in range(self.count)),
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
            mine = await self._ask(index, lambda to: to.offset_at(queue, timestamp_ms))
            found.update(mine)
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
                self._ask(
                    index, partial(BufferClient.timestamps, queue=queue, offsets=mine), timeout_s
                )
                for index, mine in self._by_buffer(offsets)
            ),
            return_exceptions=True,
        )
        found: dict[PartitionId, int] = {}
        for answer in answers:
            if isinstance(answer, dict):
                found.update(answer)
        return found

    async def stats(self, timeout_s: float = PING_WAIT_S) -> dict[int, BufferStats]:
        """What each buffer has done and holds; those that cannot be asked now are missing."""
        answers = await asyncio.gather(
            *(self._ask(i, BufferClient.stats, timeout_s) for i in range(self.count)),
            return_exceptions=True,
        )
        return {i: found for i, found in enumerate(answers) if isinstance(found, BufferStats)}

    def fence(self, queue: str, group: str, epochs: Mapping[PartitionId, Epoch]) -> None:
        """Tell the logs which epochs are over; they learn it from the next reader otherwise."""
        if queue in self._external:
            return
        for index, mine in self._by_buffer(epochs):
            if index in self._handles:  # who comes back hears it then
                self.client(index).fence(queue, group, mine)

    async def passed(
        self, queue: str, group: str, checkpoints: Mapping[PartitionId, Offset]
    ) -> None:
        """Tell the logs how far a group has come; who is away gets it when it is back."""
        if queue in self._external:
            return
        # Also who is to be looked at anew: only because a queue could not be opened there.
        there = {index for index in self.hosted() if index not in self._away}
        await asyncio.gather(
            *(
                self._ask(
                    index,
                    partial(BufferClient.passed, queue=queue, group=group, checkpoints=mine),
                )
                for index, mine in self._by_buffer(checkpoints)
                if index in there
            )
        )

    def of_buffer(self, index: int, values: Mapping[PartitionId, int]) -> dict[PartitionId, int]:
        """What of `values` is of partitions on this buffer."""
        return {p: value for p, value in values.items() if p % self.count == index}

    async def passed_on(
        self, index: int, queue: str, group: str, checkpoints: Mapping[PartitionId, Offset]
    ) -> None:
        """Tell one buffer that came back how far a group has come."""
        mine = self.of_buffer(index, checkpoints)
        if mine and queue not in self._external:
            await self._ask(index, lambda to: to.passed(queue, group, mine))

    async def fences(
        self, queue: str, group: str, partitions: int, *, of_all_met: bool = False
    ) -> dict[PartitionId, Epoch]:
        """The highest epoch of a group that each log has seen, of the buffers that are there: 0
        where a log has seen none.

        Those that come back are asked then; with `of_all_met` also who goes away meanwhile is an
        error. Raises when one that is there fails.
        """
        found: dict[PartitionId, Epoch] = {}
        if queue not in self._external:
            ask = partial(self.fences_on, queue=queue, group=group, partitions=partitions)
            for answer in (await self._of_met(ask, of_all=of_all_met)).values():
                found.update(answer)
        return found

    async def fences_on(
        self, index: int, queue: str, group: str, partitions: int
    ) -> dict[PartitionId, Epoch]:
        """The same of one buffer. Raises when it is away, or fails."""
        answer = await self._ask(index, lambda to: to.fences(queue, group))
        return {**self.of_buffer(index, dict.fromkeys(range(partitions), 0)), **answer}

    async def belong(self, claim: Identity, *, adopt: bool) -> dict[int, Identity]:
        """What each buffer has noted that speaks against `claim`; see `Buffer.belong`.

        Those that come back are asked then.
        """
        known = await self._of_met(lambda i: self._claim_on(i, claim, adopt=adopt))
        for index, noted in known.items():
            self.belongs(index, noted, claim, adopt=adopt)
        return {i: noted for i, noted in known.items() if self.is_against(i, noted, claim)}

    async def belong_on(self, index: int, claim: Identity, *, adopt: bool) -> None:
        """The same of one buffer that has started anew, which may serve then.

        What is wrong is a problem of it.
        """
        known = await self._claim_on(index, claim, adopt=adopt)
        if self.belongs(index, known, claim, adopt=adopt):
            await self.grant(index)

    async def _claim_on(self, index: int, claim: Identity, *, adopt: bool) -> Identity:
        mine = self.claim_at(index, claim)
        return await self._ask(index, lambda to: to.belong(mine, adopt))

    def leave(self, will: RecoveryPlan, indexes: Iterable[int]) -> None:
        """Let these buffers know what another coordinator is made of."""
        for index in indexes:
            if index in self._handles:
                self.client(index).inherit(will)

    async def drop_group(self, queue: str, group: str) -> None:
        """Let the logs forget a group. Where one cannot now, its buffer is looked at anew."""
        await self._all(lambda to: to.drop_group(queue, group), again=True)
        await self.replicas.drop_group(queue, group)

    async def forget(self, queues: Sequence[str]) -> None:
        """Delete everything that the buffers keep."""
        await self._all(lambda to: to.forget(queues))
        await self.replicas.forget(queues)

    async def drop_queue(self, queue: str) -> None:
        """Delete every log of a queue. Where one cannot be now, its buffer is looked at anew."""
        await self._all(lambda to: to.drop_queue(queue), again=True)
        await self.replicas.drop_queue(queue)
        self._external.discard(queue)
        self.not_wanted(queue)

    async def _watch_loop(self, index: int) -> None:
        soon = self._soon[index]
        while True:
            with suppress(TimeoutError):
                await within(min(PING_PAUSE_S, self._lease_s / 5), soon.wait())
            soon.clear()
            if self.is_looked_at(index):
                await self._look(index)

    def placed(self, index: int, home: Home, handle: Any) -> None:
        """As `SlotTable.placed`; nobody waits for the answer of another process of the slot."""
        asked = self._asked.get(index)
        if asked is not None and self._handles.get(index) != handle:
            with suppress(RuntimeError):  # it was answered just now
                asked.reschedule(0)
        super().placed(index, home, handle)

    async def _look(self, index: int) -> None:
        try:
            async with asyncio.timeout(None) as self._asked[index]:
                info = await self._ping(index, LOOK_WAIT_S)
            self.is_back(index)
            if self._returned is not None and self.to_be_opened(index, info):
                logger.warning("buffer %d of %s gets its queues again", index, self._topology)
                try:
                    await self._returned(index)
                except BaseException:
                    self.look_anew(index)
                    raise
                if (coming := self._coming.pop(index, None)) is not None:
                    coming.set()
        except BaseException as error:
            if is_asked_for(error, asyncio.current_task()):
                raise
            if not self._asked[index].expired():
                self._failed(index, error)


def buffer_count(configured: int | None, partitions_max: int) -> int:
    """How many buffers a new topology gets: one a CPU, never more than partitions."""
    cpus = int(ray.cluster_resources().get("CPU", 1))  # type: ignore[no-untyped-call]
    return configured or max(1, min(cpus, partitions_max))
