"""`Reading`: long polls to the buffers, one at a time each, for all partitions of one member.

Rules of this file: what comes is offered to the session, which refuses what is not ours or not
next. When what should be read changes, the poll that waits is left and asked anew at once; the
buffer ends the older one. A buffer that is away is asked again, with growing pauses.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterable
from typing import TYPE_CHECKING

import ray
from ray.exceptions import RayActorError, RayTaskError

from pxrs_ray.actors import names
from pxrs_ray.actors.fetching import Fetching
from pxrs_ray.actors.hooks import Hooks
from pxrs_ray.actors.link import answer_of
from pxrs_ray.batch import batches
from pxrs_ray.errors import Fenced, LogCorrupted, OffsetOutOfRange
from pxrs_ray.log.wire import Fetched, Refused
from pxrs_ray.model import Epoch, Offset, PartitionId

if TYPE_CHECKING:
    from pxrs_ray.actors.runtime import ConsumerRuntime

logger = logging.getLogger(__name__)

FETCH_WAIT_MS = 2_000
RETRY_FIRST_S = 0.05
RETRY_MOST_S = 1.0


class Reading:
    """The fetch loops of one `ConsumerRuntime`."""

    def __init__(self, runtime: ConsumerRuntime, hooks: Hooks) -> None:
        self.log_ends: dict[PartitionId, Offset] = {}
        self.skipped: list[tuple[PartitionId, Offset, Offset]] = []
        self._runtime = runtime
        self._spec = runtime.spec
        self._hooks = hooks
        self._buffers: dict[int, Fetching] = {}
        self._wakes = [asyncio.Event() for _ in range(runtime.spec.buffers)]

    def wake(self, partitions: Iterable[PartitionId] | None = None) -> None:
        """What is to be fetched of these partitions (None: of all) has changed."""
        if partitions is None:
            partitions = range(len(self._wakes))
        for partition in partitions:
            self._wakes[partition % len(self._wakes)].set()

    def _buffer(self, index: int) -> Fetching:
        if index not in self._buffers:
            name = names.buffer(self._spec.topology, index)
            handle = ray.get_actor(name, namespace=names.NAMESPACE)
            self._buffers[index] = Fetching(handle)
        return self._buffers[index]

    def _forget(self, index: int) -> None:
        fetching = self._buffers.pop(index, None)
        if fetching is not None:
            fetching.close()

    async def loop(self, index: int) -> None:
        """Read from one buffer for as long as the member lives."""
        try:
            await self._read_on(index)
        finally:
            self._forget(index)

    async def _read_on(self, index: int) -> None:
        wake = self._wakes[index]
        pause_s = RETRY_FIRST_S
        while not self._runtime.ended.is_set():
            wake.clear()
            session = self._runtime.session
            positions = self._positions(index)
            if not positions:
                await wake.wait()
                continue
            try:
                fetched = await self._fetch(index, positions, wake)
            except (RayActorError, ValueError) as error:
                logger.info("buffer %d is away: %s", index, error)
                self._forget(index)
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, RETRY_MOST_S)
                continue
            pause_s = RETRY_FIRST_S
            current = session is self._runtime.session and not session.paused
            if current and self._take(fetched or [], positions):
                await asyncio.sleep(RETRY_FIRST_S)

    def _positions(self, index: int) -> dict[PartitionId, tuple[Epoch, Offset]]:
        for partition, held in self._runtime.session.holdings.items():
            held.buffered_bytes = self._hooks.queued_bytes(partition)
        wanted = self._runtime.session.to_fetch(2 * self._spec.config.pull_bytes_max)
        return {p: at for p, at in wanted.items() if p % self._spec.buffers == index}

    async def _fetch(
        self, index: int, positions: dict[PartitionId, tuple[Epoch, Offset]], wake: asyncio.Event
    ) -> list[Fetched | Refused] | None:
        """Read, or return None as soon as something else should be read instead."""
        coming = self._buffer(index).fetch(
            self._spec.queue,
            self._spec.group,
            positions,
            self._spec.config.pull_bytes_max,
            FETCH_WAIT_MS,
            self._runtime.name,
        )
        reply = asyncio.ensure_future(_result(coming))
        woken = asyncio.ensure_future(wake.wait())
        try:
            await asyncio.wait({reply, woken}, return_when=asyncio.FIRST_COMPLETED)
            return reply.result() if reply.done() else None
        finally:
            woken.cancel()
            if not reply.done():
                reply.cancel()

    def _take(
        self,
        fetched: list[Fetched | Refused],
        positions: dict[PartitionId, tuple[Epoch, Offset]],
    ) -> bool:
        """Hand messages on; True when a refusal asks for a pause before the next fetch."""
        pause = False
        for part in fetched:
            epoch, offset = positions[part.partition]
            if isinstance(part, Refused):
                pause |= self._refused(part, epoch, offset)
                continue
            self.log_ends[part.partition] = part.end_offset
            share = sum(len(chunk) for chunk in part.chunks)
            found = batches(part, offset)
            for batch in found:
                if batch.base_offset > offset:
                    self._skip(part.partition, epoch, offset, batch.base_offset)
                size = share // len(found)
                if self._runtime.session.fetched(
                    part.partition, epoch, batch.base_offset, len(batch), size
                ):
                    self._hooks.received(part.partition, epoch, batch, size)
                offset = batch.end_offset
            if part.next_offset > offset:
                self._skip(part.partition, epoch, offset, part.next_offset)
        return pause

    def _skip(self, partition: PartitionId, epoch: Epoch, offset: Offset, to: Offset) -> None:
        """Go on behind offsets that the log no longer has. Never silently."""
        if self._runtime.session.skip(partition, epoch, offset, to):
            logger.error(
                "partition %d of %s: offsets %d to %d are gone from the log",
                partition,
                self._spec.queue,
                offset,
                to - 1,
            )
            self.skipped.append((partition, offset, to))
            self._hooks.skipped(partition, epoch, to)

    def _refused(self, refused: Refused, epoch: Epoch, offset: Offset) -> bool:
        partition = refused.partition
        if isinstance(refused.error, Fenced):
            # Somebody else reads under a higher epoch: ours is over, whatever we were told.
            self._runtime.lose(partition, epoch)
            return False
        start = refused.start_offset
        if isinstance(refused.error, OffsetOutOfRange) and start is not None and offset < start:
            self._skip(partition, epoch, offset, start)
            return False
        level = logging.ERROR if isinstance(refused.error, LogCorrupted) else logging.WARNING
        logger.log(level, "partition %d cannot be read: %s", partition, refused.error)
        return True


async def _result(coming: Awaitable[list[Fetched | Refused]]) -> list[Fetched | Refused]:
    try:
        return await coming
    except RayTaskError as error:
        raise answer_of(error) from None
