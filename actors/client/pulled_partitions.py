"""`PulledPartitions`: what a `PullConsumer` owns, between its member's loops and its caller.

Rules of this file. A `GroupMember` calls it on its event loop (`MemberCallbacks`), the caller on a
thread of its own. A batch counts as done once it was committed after it was taken. A partition that
moves is handed over when the caller has committed what it took of it, or has taken nothing.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pxrs_ray.actors.consumer.group_member import GroupMember
from pxrs_ray.data.batch import Batch
from pxrs_ray.model import Epoch, Grant, Incarnation, Offset, PartitionId, Progress

LEASE_LOOK_S = 0.01

OnAssigned = Callable[[PartitionId, Offset], None]
OnRevoked = Callable[[PartitionId], None]


@dataclass(slots=True)
class PullPosition:
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


class PulledPartitions:
    """The callbacks of one pulling member, and what its caller takes."""

    def __init__(self, on_assigned: OnAssigned | None, on_revoked: OnRevoked | None) -> None:
        self.runtime: GroupMember  # set before its loops begin
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._batches: deque[tuple[Batch | _Skip, Epoch, int]] = deque()
        self._wake = threading.Condition()
        self._positions: dict[PartitionId, PullPosition] = {}
        self._news: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._closed = False

    # --- the caller's side ------------------------------------------------------------------------

    def take(self, end_s: float) -> tuple[Batch, PullPosition, bool] | None:
        """The next batch, its position, and whether its partition was full before.

        None when there was something to look at (news, a failure), or the time is over.
        """
        with self._wake:
            is_over = self.runtime.lease.is_over()
            found = None if is_over else self._next()
            if found is None:
                left_s = max(0.0, end_s - time.monotonic())
                self._wake.wait(min(left_s, LEASE_LOOK_S) if is_over else left_s)
                return None
            batch, size_bytes, position = found
            was_full = position.queued_bytes >= self.runtime.spec.config.pull_bytes_max
            position.queued_bytes -= size_bytes
            return batch, position, was_full

    def _next(self) -> tuple[Batch, int, PullPosition] | None:
        while self._batches:
            batch, epoch, size_bytes = self._batches.popleft()
            position = self._positions.get(batch.partition)
            if position is None or position.grant.epoch != epoch or position.draining:
                continue
            if isinstance(batch, _Skip):
                position.done = batch.to if position.done == position.taken else position.done
                position.taken = batch.to
                continue
            position.taken = batch.end_offset
            return batch, size_bytes, position
        return None

    def note_done(self, offsets: Mapping[PartitionId, Offset] | None = None) -> None:
        """All that was taken is done; with `offsets`, of those partitions what is before them.

        What was taken of a partition that is no longer ours counts for nothing.
        """
        with self._wake:
            if offsets is None:
                for position in self._positions.values():
                    position.done = position.taken
                return
            for partition, offset in offsets.items():
                found = self._positions.get(partition)
                if found is not None:
                    found.done = min(max(found.done, offset), found.taken)

    def taken(self) -> dict[PartitionId, Offset]:
        """The next offset that the caller will be given of each partition."""
        with self._wake:
            return {p: position.taken for p, position in sorted(self._positions.items())}

    def close(self) -> None:
        """What was taken and is not done is nobody's work any more."""
        self._closed = True
        with self._wake:
            for position in self._positions.values():
                position.taken = position.done

    def tell_news(self) -> None:
        """Call the caller's callbacks, on the caller's own thread."""
        while True:
            try:
                tell = self._news.get_nowait()
            except queue.Empty:
                return
            tell()

    # --- MemberCallbacks: on the member's event loop ----------------------------------------------

    def started(self, grant: Grant) -> None:
        """A partition is ours."""
        with self._wake:
            position = PullPosition(grant, grant.checkpoint, grant.checkpoint)
            self._positions[grant.partition] = position
            self._wake.notify_all()
        if self._on_assigned is not None:
            told = self._on_assigned
            self._news.put(lambda: told(grant.partition, grant.checkpoint))

    def preparing(self, grant: Grant) -> None:
        """There is nothing to load."""
        place = f"being ready for partition {grant.partition}"
        self.runtime.supervisor.once(place, self.runtime.prepared(grant.partition))

    def unprepared(self, partition: PartitionId) -> None:
        """There is nothing to drop."""

    def received(self, partition: PartitionId, epoch: Epoch, batch: Batch, size_bytes: int) -> None:
        """Messages came."""
        with self._wake:
            position = self._positions.get(partition)
            if position is None or position.grant.epoch != epoch:
                return
            position.queued_bytes += size_bytes
            self._batches.append((batch, epoch, size_bytes))
            self._wake.notify_all()

    def skipped(self, partition: PartitionId, epoch: Epoch, to: Offset) -> None:
        """The log has a gap: go on behind it, after what waits."""
        with self._wake:
            self._batches.append((_Skip(partition, to), epoch, 0))

    def draining(self, partition: PartitionId) -> None:
        """Give the partition back as soon as nothing of it is in the caller's hands."""
        with self._wake:
            position = self._positions.get(partition)
            if position is not None:
                position.draining = True
        self.release_drained()

    def release_drained(self) -> None:
        """Hand back what drains and is in nobody's hands."""
        with self._wake:
            ready = [
                position
                for position in self._positions.values()
                if position.draining and (position.taken == position.done or self._closed)
            ]
        for position in ready:
            self.runtime.stopped(position.grant.partition, position.grant.epoch)
            self._forget(position.grant.partition)

    def dropped(self, partition: PartitionId) -> None:
        """The partition is lost."""
        self._forget(partition)

    def _forget(self, partition: PartitionId) -> None:
        with self._wake:
            known = self._positions.pop(partition, None)
            self._wake.notify_all()
        if known is not None and self._on_revoked is not None:
            told = self._on_revoked
            self._news.put(lambda: told(partition))

    def progress(self, partition: PartitionId, epoch: Epoch) -> Progress | None:
        """How far the caller has committed."""
        position = self._positions.get(partition)
        if position is None or position.grant.epoch != epoch:
            return None
        grant = position.grant
        if position.done == grant.checkpoint:
            return Progress(position.done, grant.attempts, grant.detail)
        return Progress(position.done)

    def queued_bytes(self, partition: PartitionId) -> int:
        """What the caller has not taken yet."""
        position = self._positions.get(partition)
        return position.queued_bytes if position is not None else 0

    def rejoined(self, incarnation: Incarnation) -> None:
        """Nothing to do: what was held was dropped."""
