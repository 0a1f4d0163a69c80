"""`Fetcher`: long polls to the buffers, one at a time each, for all partitions of one member.

Rules of this file. Messages that arrive are offered to the session, which refuses what is not ours
or not next. When the set of reads changes, the waiting poll is abandoned and a new one is sent at
once; the buffer ends the older one. Nothing is read, nor handed on, when the lease is over. A
buffer that is away is asked again, with growing pauses. A partition that cannot be read (a broken
disk, no descriptors left, an invalid frame) pauses alone, and reports why; all others are read on.
What "away" means is told by `call_failure`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pxrs_ray.actors.buffer.buffer_client import BufferClient, BufferReply
from pxrs_ray.actors.buffer.buffer_clients import find_buffer_on_loop
from pxrs_ray.actors.buffer.call_failure import CallFailure, failure_of
from pxrs_ray.actors.consumer.fetch_backoff import FetchBackoff
from pxrs_ray.actors.consumer.member_callbacks import MemberCallbacks
from pxrs_ray.backoff import Backoff
from pxrs_ray.data.batch import batches
from pxrs_ray.data.protocol import Fetched, Refused
from pxrs_ray.errors import BufferAway, DeadlineExceeded, Fenced, OffsetOutOfRange
from pxrs_ray.model import Epoch, Offset, PartitionId
from pxrs_ray.supervision.supervisor import contained

if TYPE_CHECKING:
    from pxrs_ray.actors.consumer.group_member import GroupMember

logger = logging.getLogger(__name__)

Positions = dict[PartitionId, tuple[Epoch, Offset]]

FETCH_WAIT_MS = 2_000
# A buffer answers a fetch after its wait at the latest: whoever takes so long is asked anew.
FETCH_ANSWER_S = 30.0
FIND_S = 1.0
RETRY_FIRST_S = 0.05
RETRY_MOST_S = 1.0


class Fetcher:
    """The fetch loops of one `GroupMember`."""

    problem = ""

    def __init__(self, runtime: GroupMember, hooks: MemberCallbacks) -> None:
        self._runtime = runtime
        self._spec = runtime.spec
        self._hooks = hooks
        self._buffers: dict[int, BufferClient] = {}
        self._handles: dict[int, Any] = {}
        self._wakes = [asyncio.Event() for _ in range(runtime.spec.buffers)]
        self._resting = FetchBackoff(self._wake_later)

    def wake(self, partitions: Iterable[PartitionId] | None = None) -> None:
        """What is to be fetched of these partitions (None: of all) has changed."""
        if partitions is None:
            partitions = range(len(self._wakes))
        for partition in partitions:
            self._wakes[partition % len(self._wakes)].set()

    def _wake_later(self, pause_s: float) -> None:
        asyncio.get_running_loop().call_later(pause_s, self.wake)

    async def _buffer(self, index: int) -> BufferClient:
        if index not in self._buffers:
            try:
                handle = await find_buffer_on_loop(self._spec.topology, index, FIND_S)
            except DeadlineExceeded as error:  # nobody knows: the one that was known may live
                handle = self._handles.get(index)
                if handle is None:
                    raise BufferAway(str(error)) from None
            self._handles[index] = handle
            loop = asyncio.get_running_loop()
            self._buffers[index] = BufferClient(handle, loop, sockets=True)
        return self._buffers[index]

    def _forget(self, index: int) -> None:
        client = self._buffers.pop(index, None)
        if client is not None:
            client.close()

    async def loop(self, index: int) -> None:
        """Read from one buffer for as long as the member lives."""
        try:
            await self._read_on(index)
        finally:
            self._forget(index)

    async def _read_on(self, index: int) -> None:
        wake = self._wakes[index]
        backoff = Backoff(RETRY_FIRST_S, RETRY_MOST_S)
        while not self._runtime.ended.is_set():
            wake.clear()
            session, lease = self._runtime.session, self._runtime.lease
            positions = self._positions(index)
            if not positions:
                await wake.wait()
                continue
            if lease.is_over():
                await lease.renewal()
                continue
            try:
                fetched = await self._fetch_what_can_be(index, positions, wake)
            except Exception as error:
                if failure_of(error) is not CallFailure.AWAY:
                    raise
                logger.info("buffer %d is away: %s", index, error)
                self._forget(index)
                await asyncio.sleep(backoff.failed())
                continue
            backoff.worked()
            # What comes when the lease is over is read again, by whoever is the owner then.
            if session is self._runtime.session and not session.paused and not lease.is_over():
                self._take(fetched or [], positions)

    def _positions(self, index: int) -> dict[PartitionId, tuple[Epoch, Offset]]:
        most = 2 * self._runtime.spec.config.pull_bytes_max
        wanted = self._runtime.session.to_fetch(most)
        mine = {p: at for p, at in wanted.items() if p % self._spec.buffers == index}
        return self._resting.awake(mine)

    async def _fetch_what_can_be(
        self, index: int, positions: Positions, wake: asyncio.Event
    ) -> list[Fetched | Refused] | None:
        """Read all; when that fails, each alone, and let those rest that fail."""
        try:
            return await self._fetch(index, positions, wake, FETCH_WAIT_MS)
        except Exception as error:  # whatever it is, it is of one of them
            if failure_of(error) is CallFailure.AWAY:
                raise
            if len(positions) == 1:
                self._cannot_read(next(iter(positions)), error)
                return None
        found = []
        for partition, at in positions.items():
            try:
                found += await self._fetch(index, {partition: at}, asyncio.Event(), 0) or []
            except Exception as error:
                if failure_of(error) is CallFailure.AWAY:
                    raise
                self._cannot_read(partition, error)
        return found

    def _cannot_read(self, partition: PartitionId, error: BaseException) -> None:
        self._resting.rest(partition)
        self._runtime.supervisor.note(f"reading of partition {partition}", error)

    async def _fetch(
        self, index: int, positions: Positions, wake: asyncio.Event, wait_ms: int
    ) -> list[Fetched | Refused] | None:
        """Read, or return None as soon as something else should be read instead."""
        buffer = await self._buffer(index)
        coming = buffer.fetch(
            self._spec.queue,
            self._spec.group,
            positions,
            self._runtime.spec.config.pull_bytes_max,
            wait_ms,
            self._runtime.name,
        )
        reply = asyncio.ensure_future(contained(_result(coming)))
        woken = asyncio.ensure_future(wake.wait())
        try:
            done, _ = await asyncio.wait(
                {reply, woken}, timeout=FETCH_ANSWER_S, return_when=asyncio.FIRST_COMPLETED
            )
            if not done:
                logger.warning("buffer %d took over %g s to answer", index, FETCH_ANSWER_S)
                self._forget(index)
            return reply.result() if reply.done() else None
        finally:
            woken.cancel()
            if not reply.done():
                reply.cancel()

    def _take(self, fetched: list[Fetched | Refused], positions: Positions) -> None:
        """Hand messages on."""
        for part in fetched:
            epoch, offset = positions[part.partition]
            if isinstance(part, Refused):
                self._refused(part, epoch, offset)
                continue
            try:
                self._hand_on(part, epoch, offset)
            except Exception as error:  # noqa: BLE001 - one partition's bytes are no other's
                self._cannot_read(part.partition, error)
            else:
                if self._resting.over(part.partition):
                    self._runtime.supervisor.over(f"reading of partition {part.partition}")

    def _hand_on(self, part: Fetched, epoch: Epoch, offset: Offset) -> None:
        share = sum(len(chunk) for chunk in part.chunks)
        found = batches(part, offset)
        for batch in found:
            if batch.base_offset > offset:
                self._skip(part.partition, epoch, offset, batch.base_offset)
            size = share // len(found)
            if self._runtime.session.fetched(part.partition, epoch, batch.base_offset, len(batch)):
                self._hooks.received(part.partition, epoch, batch, size)
            offset = batch.end_offset
        if part.next_offset > offset:
            self._skip(part.partition, epoch, offset, part.next_offset)

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
            self._hooks.skipped(partition, epoch, to)

    def _refused(self, refused: Refused, epoch: Epoch, offset: Offset) -> None:
        partition = refused.partition
        if isinstance(refused.error, Fenced):
            # Somebody else reads under a higher epoch: ours is over, whatever we were told.
            self._runtime.lose(partition, epoch)
            return
        start = refused.start_offset
        if isinstance(refused.error, OffsetOutOfRange) and start is not None and offset < start:
            self._skip(partition, epoch, offset, start)
            return
        if failure_of(refused.error) is CallFailure.AWAY:
            # Asked again, it waits for its lease as a long poll waits for messages.
            logger.info("partition %d is not served now: %s", partition, refused.error)
            return
        self._cannot_read(partition, refused.error)


async def _result(coming: BufferReply[list[Fetched | Refused]]) -> list[Fetched | Refused]:
    return await coming
