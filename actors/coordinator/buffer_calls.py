"""`BufferCalls`: calls to the buffers that serve the slots now. A part of `BufferPool`.

Rules of this file. Every call has a deadline. A buffer that is not there is reported as
`BufferAway`, and never by an error of Ray's. A buffer that goes away during a call to all buffers
is met anew when it is back, and is asked then, like one that had been away before.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from pxrs_ray.actors.buffer.buffer_client import BufferClient, BufferReply
from pxrs_ray.actors.coordinator.buffer_slots import BufferSlots
from pxrs_ray.actors.coordinator.known_ends import KnownEnds
from pxrs_ray.data.protocol import BufferGrant, BufferInfo, LogEnds
from pxrs_ray.errors import BufferAway, DeadlineExceeded, SlotWaits
from pxrs_ray.log.ends_heard import EndsHeard
from pxrs_ray.log.identity import Identity
from pxrs_ray.model import PartitionId
from pxrs_ray.replication.replica_calls import GroupKnown, LeadFound

T = TypeVar("T")

CALL_WAIT_S = 30.0
PING_WAIT_S = 5.0


class BufferCalls(BufferSlots):
    """See the rules at the head of this file."""

    def __init__(
        self, topology: str, count: int, folder: str, lease_s: float, link_ports: str
    ) -> None:
        super().__init__(topology, count, folder, lease_s)
        self.known_ends = KnownEnds()
        self._ends_heard: dict[int, tuple[str, int]] = {}
        self._link_ports = link_ports
        self._ends_of: dict[int, EndsHeard] = {}

    async def _all(
        self, call: Callable[[BufferClient], BufferReply[T]], again: bool = False
    ) -> list[T]:
        """Call every buffer; raises when one does not answer, after all have tried.

        With `again` those that failed are looked at anew, as when they had started anew.
        """
        calls = (self._ask(index, call) for index in range(self.count))
        answers = await asyncio.gather(*calls, return_exceptions=True)
        failed = {i: each for i, each in enumerate(answers) if isinstance(each, BaseException)}
        for index in failed if again else ():
            self.look_anew(index)
        for error in failed.values():
            raise error
        return [each for each in answers if not isinstance(each, BaseException)]

    async def _of_met(
        self, call: Callable[[int], Awaitable[T]], *, of_all: bool = False
    ) -> dict[int, T]:
        """What each buffer that is there answers to a call.

        Who goes away meanwhile is met anew when it is back, as one that was away before, and is
        asked then; it is an error where an answer `of_all` is needed. Raises when one that is there
        fails, or does not answer in time.
        """
        there = self.met()
        answers = await asyncio.gather(*map(call, there), return_exceptions=True)
        found: dict[int, T] = {}
        for index, answer in zip(there, answers, strict=True):
            if isinstance(answer, BufferAway) and not of_all:
                self.look_anew(index)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                found[index] = answer
        return found

    def _granted(self, index: int) -> BufferGrant:
        """What a look at a buffer carries."""
        heard = self._ends_heard.get(index, ("", 0))
        return replace(self.grant_of(index), link_ports=self._link_ports, ends_heard=heard)

    def _pinged(self, index: int, info: BufferInfo) -> BufferInfo:
        """Take in what it answers to that."""
        self.known_ends.heard(info.ends)
        self._ends_heard[index] = (info.incarnation, info.ends_to)
        self._note(info)
        return info

    async def lead_found(
        self, index: int, claim: Identity, groups: Sequence[tuple[str, str]], *, adopt: bool
    ) -> LeadFound:
        """What there is to know of a replica that is to serve; see `ReplicaBuffer.take_lead`."""
        mine = self.claim_at(index, claim)
        found = await self._ask(index, lambda to: to.take_lead(mine, adopt, groups))
        self._pinged(index, found.info)
        return found

    async def have_serve(self, index: int, epoch: int, groups: Sequence[GroupKnown]) -> None:
        """Let a replica serve that leads under this epoch; see `ReplicaBuffer.serve`."""
        grant = self._granted(index)
        info = await self._ask(index, lambda to: to.serve(grant, epoch, groups))
        self._pinged(index, info)

    async def all_ends(self, timeout_s: float) -> dict[str, dict[PartitionId, LogEnds]]:
        """By queue, where each log stands; what cannot be asked now is missing. Only what has
        changed since it was asked before is told by the buffers."""
        answers = await asyncio.gather(
            *(self._all_ends_of(index, timeout_s) for index in range(self.count)),
            return_exceptions=True,
        )
        found: dict[str, dict[PartitionId, LogEnds]] = {}
        for answer in answers:
            if isinstance(answer, dict):
                for queue, ends in answer.items():
                    found.setdefault(queue, {}).update(ends)
        return {queue: dict(sorted(ends.items())) for queue, ends in found.items()}

    async def _all_ends_of(
        self, index: int, timeout_s: float
    ) -> dict[str, dict[PartitionId, LogEnds]]:
        heard = self._ends_of.setdefault(index, EndsHeard())
        end_s = time.monotonic() + timeout_s
        while True:
            left_s = max(0.0, end_s - time.monotonic())
            answer = await self._ask(index, lambda to: to.changed_ends(heard.heard), left_s)
            found = heard.take(answer)
            if answer.is_all:
                return found

    def _by_buffer(
        self, values: Mapping[PartitionId, int]
    ) -> Sequence[tuple[int, dict[PartitionId, int]]]:
        split: dict[int, dict[PartitionId, int]] = {}
        for partition, value in values.items():
            split.setdefault(partition % self.count, {})[partition] = value
        return list(split.items())

    async def _ask(
        self,
        index: int,
        call: Callable[[BufferClient], BufferReply[T]],
        timeout_s: float | None = None,
    ) -> T:
        """The answer of a buffer.

        Raises what it raises, BufferAway when it is not there, DeadlineExceeded when it is silent.
        """
        client = self.client(index)
        try:
            return await call(client).within(CALL_WAIT_S if timeout_s is None else timeout_s)
        except DeadlineExceeded as error:
            raise DeadlineExceeded(f"buffer {index} of {self._topology}: {error}") from error
        except SlotWaits:
            raise
        except BufferAway as error:
            raise BufferAway(
                f"{self.told(index)} is away and restarts by itself: try again ({error})"
            ) from error.__cause__ or error
