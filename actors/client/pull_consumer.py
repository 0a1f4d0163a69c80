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

import queue
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from pxrs_ray.actors.cluster.blocking_client import BlockingCoordinatorClient
from pxrs_ray.actors.consumer.group_member import GroupMember
from pxrs_ray.actors.consumer.specs import GroupSpec
from pxrs_ray.closing import Closing
from pxrs_ray.consumer.delivery import DeliveredBatch, DeliveryContext
from pxrs_ray.data.batch import Batch
from pxrs_ray.errors import DeadlineExceeded, PxrsError, UsageError
from pxrs_ray.group.events import Assignment
from pxrs_ray.group.member_lease import Title
from pxrs_ray.model import Epoch, Grant, Incarnation, MemberId, Offset, PartitionId
from pxrs_ray.processing.scheduler import Standing
from pxrs_ray.supervision.restart_rules import told
from pxrs_ray.supervision.supervisor import LoopThread

T = TypeVar("T")

CALL_WAIT_S = 30.0
LEAVE_WAIT_S = 30.0
LEASE_LOOK_S = 0.01


@dataclass(slots=True)
class _Place:
    """How far the caller is with one partition: committed to, and taken."""

    grant: Grant
    done: Offset
    taken: Offset
    queued_bytes: int = 0
    draining: bool = False


@dataclass(frozen=True, slots=True)
class _Skip:
    """Continue at `to`: the log has nothing before it."""

    partition: PartitionId
    to: Offset


class PullConsumer(Closing):
    """Iterate it for batches; `commit()` what was taken. Use it from one thread at a time."""

    def __init__(
        self,
        topology: str,
        group: str,
        member: MemberId | None = None,
        on_assigned: Callable[[PartitionId, Offset], None] | None = None,
        on_revoked: Callable[[PartitionId], None] | None = None,
    ) -> None:
        self.member = member or f"pull-{uuid.uuid4().hex[:8]}"
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._batches: deque[tuple[Batch | _Skip, Epoch, int]] = deque()
        self._wake = threading.Condition()
        self._places: dict[PartitionId, _Place] = {}
        self._news: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._closed = False
        call = BlockingCoordinatorClient(topology)
        self._spec: GroupSpec = call("group_spec", group)
        token = uuid.uuid4().hex
        incarnation, assignment = call("member", group, "join", self.member, token)
        self._thread = LoopThread(f"pxrs-pull-{self.member}")
        self._loop = self._thread.loop
        self._runtime = self._run(self._begin(incarnation, token, assignment))

    async def _begin(
        self, incarnation: Incarnation, token: str, assignment: Assignment | None
    ) -> GroupMember:
        runtime = GroupMember(self._spec, self.member, incarnation, token, self)
        self._runtime = runtime
        runtime.start(assignment)
        return runtime

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
            self._tell_news()
            self._check()
            with self._wake:
                is_over = self._runtime.lease.is_over()
                found = None if is_over else self._next()
                if found is not None:
                    break
                left_s = end_s - time.monotonic()
                if left_s <= 0:
                    return None
                self._wake.wait(min(left_s, LEASE_LOOK_S) if is_over else left_s)
        batch, epoch, size_bytes, place = found
        was_full = place.queued_bytes >= self._spec.config.pull_bytes_max
        place.queued_bytes -= size_bytes
        if was_full:
            self._loop.call_soon_threadsafe(self._runtime.reading.wake)
        runtime = self._runtime
        held = partial(runtime.holds, runtime.session, batch.partition, epoch)
        shared = DeliveryContext(
            self._spec.queue,
            self._spec.group,
            self.member,
            runtime.session.incarnation,
            batch.partition,
            epoch,
            place.grant.attempts + 1,
            topology_id=self._spec.topology_id,
            title=Title(held),
        )
        return DeliveredBatch(batch, shared)

    def _next(self) -> tuple[Batch, Epoch, int, _Place] | None:
        while self._batches:
            batch, epoch, size_bytes = self._batches.popleft()
            place = self._places.get(batch.partition)
            if place is None or place.grant.epoch != epoch or place.draining:
                continue
            if isinstance(batch, _Skip):
                place.done = batch.to if place.done == place.taken else place.done
                place.taken = batch.to
                continue
            place.taken = batch.end_offset
            return batch, epoch, size_bytes, place
        return None

    def commit(self) -> None:
        """Commit everything that was taken; returns when it is durable.

        What belonged to a partition that was lost meanwhile is not committed: it is, or will be,
        delivered to the new owner.
        """
        with self._wake:
            for place in self._places.values():
                place.done = place.taken
        self._run(self._commit())
        self._tell_news()
        self._check()

    async def _commit(self) -> None:
        await self._runtime.commit_now()
        self._release_drained()

    @property
    def partitions(self) -> dict[PartitionId, Offset]:
        """What this consumer owns now, and the next offset that it will be given of each."""
        with self._wake:
            return {p: place.taken for p, place in sorted(self._places.items())}

    def close(self) -> None:
        """Hand everything back and leave; what was taken and not committed is delivered again."""
        if self._closed:
            return
        self._closed = True
        try:
            with self._wake:
                for place in self._places.values():
                    place.taken = place.done
            if self._runtime.failed is None and not self._runtime.ended.is_set():
                self._run(self._runtime.leave("closed", LEAVE_WAIT_S), LEAVE_WAIT_S * 2 + 1)
        finally:
            self._run(self._runtime.close())
            self._thread.close()
            self._tell_news()

    def _check(self) -> None:
        if self._runtime.failed is not None:
            error = self._runtime.failed
            if isinstance(error, PxrsError):
                raise error
            raise UsageError(f"consumer {self.member} has failed: {told(error)}") from error

    def _tell_news(self) -> None:
        """Call the caller's callbacks, on the caller's own thread."""
        while True:
            try:
                tell = self._news.get_nowait()
            except queue.Empty:
                return
            tell()

    # --- Hooks: called by the runtime, on its loop ------------------------------------------------

    def started(self, grant: Grant) -> None:
        """A partition is ours."""
        with self._wake:
            self._places[grant.partition] = _Place(grant, grant.checkpoint, grant.checkpoint)
            self._wake.notify_all()
        if self._on_assigned is not None:
            told = self._on_assigned
            self._news.put(lambda: told(grant.partition, grant.checkpoint))

    def preparing(self, grant: Grant) -> None:
        """There is nothing to load."""
        place = f"being ready for partition {grant.partition}"
        self._runtime.supervisor.once(place, self._runtime.prepared(grant.partition))

    def unprepared(self, partition: PartitionId) -> None:
        """There is nothing to drop."""

    def received(self, partition: PartitionId, epoch: Epoch, batch: Batch, size_bytes: int) -> None:
        """Messages came."""
        with self._wake:
            place = self._places.get(partition)
            if place is None or place.grant.epoch != epoch:
                return
            place.queued_bytes += size_bytes
            self._batches.append((batch, epoch, size_bytes))
            self._wake.notify_all()

    def skipped(self, partition: PartitionId, epoch: Epoch, to: Offset) -> None:
        """The log has a gap: go on behind it, after what waits."""
        with self._wake:
            self._batches.append((_Skip(partition, to), epoch, 0))

    def draining(self, partition: PartitionId) -> None:
        """Give the partition back as soon as nothing of it is in the caller's hands."""
        with self._wake:
            place = self._places.get(partition)
            if place is not None:
                place.draining = True
        self._release_drained()

    def _release_drained(self) -> None:
        with self._wake:
            ready = [
                place
                for place in self._places.values()
                if place.draining and (place.taken == place.done or self._closed)
            ]
        for place in ready:
            self._runtime.stopped(place.grant.partition, place.grant.epoch)
            self._forget(place.grant.partition)

    def dropped(self, partition: PartitionId) -> None:
        """The partition is lost."""
        self._forget(partition)

    def _forget(self, partition: PartitionId) -> None:
        with self._wake:
            known = self._places.pop(partition, None)
            self._wake.notify_all()
        if known is not None and self._on_revoked is not None:
            told = self._on_revoked
            self._news.put(lambda: told(partition))

    def progress(self, partition: PartitionId, epoch: Epoch) -> Standing | None:
        """How far the caller has committed."""
        place = self._places.get(partition)
        if place is None or place.grant.epoch != epoch:
            return None
        grant = place.grant
        if place.done == grant.checkpoint:
            return Standing(place.done, grant.attempts, grant.detail)
        return Standing(place.done)

    def queued_bytes(self, partition: PartitionId) -> int:
        """What the caller has not taken yet."""
        place = self._places.get(partition)
        return place.queued_bytes if place is not None else 0

    def rejoined(self, incarnation: Incarnation) -> None:
        """Nothing to do: what was held was dropped."""
