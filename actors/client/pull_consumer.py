"""`PullConsumer`: a full member of a group in the caller's own process.

    with group.consumer() as consumer:
        for batch in consumer:
            ...
            consumer.commit()

Rules of this file. A background thread runs a `GroupMember`; the caller's thread takes batches and
commits. A batch counts as done once `commit()` is called after it was taken, and not before. A
partition that moves is handed over when the caller has committed what it took of it, or has taken
nothing. At the revoke deadline it is taken away, and what was not committed is delivered again to
its next owner.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from pxrs_ray.actors.client.pulled_partitions import (
    OnAssigned,
    OnRevoked,
    PulledPartitions,
)
from pxrs_ray.actors.cluster.blocking_client import BlockingCoordinatorClient
from pxrs_ray.actors.cluster.coordinator_client import CoordinatorClient
from pxrs_ray.actors.consumer.group_member import GroupMember
from pxrs_ray.actors.consumer.member_requests import GetGroupSpec, JoinGroup
from pxrs_ray.actors.consumer.reply_sender import ReplySender
from pxrs_ray.closing import Closing
from pxrs_ray.consumer.delivery import DeliveredBatch, DeliveryContext
from pxrs_ray.consumer.pulled_positions import Taken
from pxrs_ray.errors import DeadlineExceeded, PxrsError, UsageError
from pxrs_ray.group.events import Assignment
from pxrs_ray.group.member_lease import Title
from pxrs_ray.model import Incarnation, MemberId, Offset, PartitionId
from pxrs_ray.supervision.restart_rules import told
from pxrs_ray.supervision.supervisor import LoopThread

T = TypeVar("T")

CALL_WAIT_S = 30.0
LEAVE_WAIT_S = 30.0
OPTIONS_LOOK_S = 5.0


class PullConsumer(Closing):
    """Iterate it for batches; `commit()` what was taken. Use it from one thread at a time."""

    def __init__(
        self,
        topology: str,
        group: str,
        member: MemberId | None = None,
        on_assigned: OnAssigned | None = None,
        on_revoked: OnRevoked | None = None,
    ) -> None:
        self.member = member or f"pull-{uuid.uuid4().hex[:8]}"
        self._pulled = PulledPartitions(on_assigned, on_revoked)
        self._closed = False
        coordinator = BlockingCoordinatorClient(topology)
        self._spec = coordinator.call(GetGroupSpec(group))
        self._replies = ReplySender(self._spec)
        token = uuid.uuid4().hex
        incarnation, assignment = coordinator.call(JoinGroup(group, self.member, token))
        self._thread = LoopThread(f"pxrs-pull-{self.member}")
        self._loop = self._thread.loop
        self._runtime = self._run(self._begin(incarnation, token, assignment))

    async def _begin(
        self, incarnation: Incarnation, token: str, assignment: Assignment | None
    ) -> GroupMember:
        runtime = GroupMember(self._spec, self.member, incarnation, token, self._pulled)
        self._pulled.runtime = runtime
        runtime.start(assignment)
        runtime.supervisor.keep("options", partial(self._follow_options, runtime))
        return runtime

    async def _follow_options(self, runtime: GroupMember) -> None:
        """Take over what changes live: nobody can call a consumer that is in a user's program."""
        coordinator = CoordinatorClient(self._spec.topology)
        while not runtime.ended.is_set():
            await asyncio.sleep(OPTIONS_LOOK_S)
            with suppress(PxrsError):  # away, or its group is gone: its other requests tell that
                spec = await coordinator.call(GetGroupSpec(self._spec.group))
                if spec != runtime.spec:
                    runtime.reconfigure(spec)

    def _run(self, work: Coroutine[Any, Any, T], timeout_s: float = CALL_WAIT_S) -> T:
        try:
            return self._thread.begin(work).result(timeout_s)
        except TimeoutError:
            raise DeadlineExceeded(
                f"consumer {self.member} of {self._spec.group}: not done in {timeout_s:g} s"
            ) from None

    # --- the caller's side ------------------------------------------------------------------------

    def __iter__(self) -> Iterator[DeliveredBatch]:
        while not self._closed:
            batch = self.poll(1.0)
            if batch is not None:
                yield batch

    def poll(self, timeout_s: float = 1.0) -> DeliveredBatch | None:
        """The next batch of any partition, or None when none came in time.

        While this consumer's lease is over there is none: others may own what it read.
        Raises Fenced when another consumer took this one's name.
        """
        end_s = time.monotonic() + timeout_s
        while True:
            self._pulled.tell_news()
            self._check()
            found = self._pulled.take(end_s)
            if found is not None:
                return self._delivered(found)
            if time.monotonic() >= end_s:
                return None

    def _delivered(self, found: Taken) -> DeliveredBatch:
        runtime, batch, grant = self._runtime, found.batch, found.grant
        epoch = grant.epoch
        if found.was_full:
            self._loop.call_soon_threadsafe(runtime.read_on)
        held = partial(runtime.holds, runtime.session, batch.partition, epoch)
        shared = DeliveryContext(
            self._spec.queue,
            self._spec.group,
            self.member,
            runtime.session.incarnation,
            batch.partition,
            epoch,
            grant.attempts + 1,
            topology_id=self._spec.topology_id,
            title=Title(held),
            replier=self._replies.reply,
        )
        return DeliveredBatch(batch, shared)

    def commit(self, offsets: Mapping[PartitionId, Offset] | None = None) -> None:
        """Commit everything that was taken; returns when it is durable.

        With `offsets`, only what is before them: a partition's next message is the one at its
        offset. What belonged to a partition that was lost meanwhile is not committed: it is, or
        will be, delivered to the new owner.
        """
        self._pulled.note_done(offsets)
        self._run(self._commit())
        self._pulled.tell_news()
        self._check()

    async def _commit(self) -> None:
        await self._runtime.commit_now()
        self._pulled.release_drained()

    @property
    def partitions(self) -> dict[PartitionId, Offset]:
        """What this consumer owns now, and the next offset that it will be given of each."""
        return self._pulled.taken()

    def close(self) -> None:
        """Hand everything back and leave; what was taken and not committed is delivered again."""
        if self._closed:
            return
        self._closed = True
        try:
            self._pulled.close()
            if self._runtime.failed is None and not self._runtime.ended.is_set():
                self._run(self._runtime.leave("closed", LEAVE_WAIT_S), LEAVE_WAIT_S * 2 + 1)
        finally:
            self._run(self._runtime.close())
            self._thread.close()
            self._pulled.tell_news()
            self._replies.close()

    def _check(self) -> None:
        if self._runtime.failed is not None:
            error = self._runtime.failed
            if isinstance(error, PxrsError):
                raise error
            raise UsageError(f"consumer {self.member} has failed: {told(error)}") from error
