"""`Fetcher`: carries the fetches of one member to the buffers, one at a time each.

Rules of this file. What is read, when, and what becomes of the answers is decided by the member's
machine (`pxrs_ray.consumer.fetch_plan`). When its channel is woken, a poll that waits is abandoned
and a new one is sent at once; the buffer ends the older one. What "away" means is told by
`call_failure`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from pxrs_ray.actors.buffer.buffer_client import BufferClient
from pxrs_ray.actors.buffer.buffer_clients import find_buffer_on_loop
from pxrs_ray.actors.buffer.call_failure import CallFailure, failure_of
from pxrs_ray.actors.consumer.channel_wake import ChannelWake
from pxrs_ray.consumer.member_effects import (
    Fetch,
    MemberChannel,
    PartRead,
    PartRefused,
    Positions,
    Rest,
)
from pxrs_ray.data.batch import batches
from pxrs_ray.data.protocol import Fetched, Refused
from pxrs_ray.errors import BufferAway, DeadlineExceeded
from pxrs_ray.supervision.supervisor import contained

if TYPE_CHECKING:
    from pxrs_ray.actors.consumer.group_member import GroupMember

logger = logging.getLogger(__name__)

FIND_S = 1.0


class Fetcher:
    """The reading of one `GroupMember`."""

    problem = ""

    def __init__(self, member: GroupMember) -> None:
        self._member = member
        self._spec = member.spec
        self._buffers: dict[int, BufferClient] = {}
        self._handles: dict[int, Any] = {}

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
            client = self._buffers[index] = BufferClient(handle, loop)
            client.connect()  # a member reads for as long as it lives
        return self._buffers[index]

    def forget(self, index: int) -> None:
        """Connect to this buffer anew, the next time."""
        client = self._buffers.pop(index, None)
        if client is not None:
            client.close()

    async def loop(self, index: int) -> None:
        """Read from one buffer for as long as the member lives."""
        member = self._member
        wake = member.wake_of(MemberChannel.FETCH + index)
        try:
            while not member.ended.is_set():
                wake.clear()
                found = member.machine.next_fetch(index, time.monotonic())
                member.carry_out()
                if isinstance(found, Rest):
                    await member.rest(wake, found.until_s)
                else:
                    await self._fetch(found, wake)
                    member.carry_out()
        finally:
            self.forget(index)

    async def _fetch(self, fetch: Fetch, wake: ChannelWake) -> None:
        machine = self._member.machine
        try:
            found = await self._reply(fetch, wake)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is of one of them
            if failure_of(error) is not CallFailure.AWAY:
                machine.fetch_failed(fetch, error, time.monotonic())
                return
            logger.info("buffer %d is away: %s", fetch.buffer, error)
            machine.fetch_away(fetch, time.monotonic())
            return
        now_s = time.monotonic()
        if found is None:
            machine.fetch_unanswered(fetch, now_s)
        else:
            machine.fetched(fetch, [_part(part, fetch.positions) for part in found], now_s)

    async def _reply(self, fetch: Fetch, wake: ChannelWake) -> list[Fetched | Refused] | None:
        """What the buffer answers; None as soon as something else should be read instead."""
        buffer = await self._buffer(fetch.buffer)
        coming = buffer.fetch(
            self._spec.queue,
            self._spec.group,
            dict(fetch.positions),
            self._member.spec.config.pull_bytes_max,
            fetch.wait_ms,
            self._member.name,
        )
        left_s = fetch.until_s - time.monotonic()
        try:
            # In this task, and not in one of its own: that would be three turns of the event loop.
            async with asyncio.timeout(max(0.0, left_s)) as limit:
                if fetch.wait_ms:
                    if wake.is_set():
                        return None
                    wake.ends = partial(_end_now, limit)
                return await contained(coming)
        except TimeoutError:
            if not limit.expired():
                raise
            return None
        finally:
            wake.ends = None


def _end_now(limit: asyncio.Timeout) -> None:
    """Let the wait end, if it does not end already, at its time or woken before."""
    if not limit.expired():
        limit.reschedule(asyncio.get_running_loop().time())


def _part(part: Fetched | Refused, positions: Positions) -> PartRead | PartRefused:
    """What came of one partition, decoded."""
    if isinstance(part, Refused):
        away = failure_of(part.error) is CallFailure.AWAY
        if away:
            logger.info("partition %d is not served now: %s", part.partition, part.error)
        return PartRefused(part.partition, part.error, away, part.start_offset)
    try:
        found = tuple(batches(part, positions[part.partition][1]))
    except Exception as error:  # noqa: BLE001 - one partition's bytes are no other's
        return PartRefused(part.partition, error)
    size_bytes = sum(len(chunk) for chunk in part.chunks)
    return PartRead(part.partition, found, part.next_offset, size_bytes)
