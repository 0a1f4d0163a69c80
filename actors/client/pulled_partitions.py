"""`PulledPartitions`: what a `PullConsumer` owns, between its member's loops and its caller.

Rules of this file. A `GroupMember` calls it on its event loop (`MemberCallbacks`), the caller on a
thread of its own; a lock lets one of them in. What the caller gets and what counts as done, the
`PulledPositions` say. Here the caller waits, and hears news on its own thread.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping

from pxrs_ray.actors.consumer.group_member import GroupMember
from pxrs_ray.consumer.pulled_positions import PulledPositions, Taken
from pxrs_ray.data.batch import Batch
from pxrs_ray.model import Epoch, Grant, Incarnation, Offset, PartitionId, Progress

LEASE_LOOK_S = 0.01

OnAssigned = Callable[[PartitionId, Offset], None]
OnRevoked = Callable[[PartitionId], None]


class PulledPartitions:
    """The callbacks of one pulling member, and what its caller takes."""

    def __init__(self, on_assigned: OnAssigned | None, on_revoked: OnRevoked | None) -> None:
        self.runtime: GroupMember  # set before its loops begin
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._positions = PulledPositions()
        self._wake = threading.Condition()
        self._news: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    # --- the caller's side ------------------------------------------------------------------------

    def take(self, end_s: float) -> Taken | None:
        """The next batch. None when there was something to look at (news, a failure), or the time
        is over."""
        with self._wake:
            is_over = self.runtime.lease.is_over()
            bytes_max = self.runtime.spec.config.pull_bytes_max
            found = None if is_over else self._positions.take(bytes_max)
            if found is None:
                left_s = max(0.0, end_s - time.monotonic())
                self._wake.wait(min(left_s, LEASE_LOOK_S) if is_over else left_s)
            return found

    def note_done(self, offsets: Mapping[PartitionId, Offset] | None = None) -> None:
        """All that was taken is done; with `offsets`, of those partitions what is before them."""
        with self._wake:
            self._positions.note_done(offsets)

    def taken(self) -> dict[PartitionId, Offset]:
        """The next offset that the caller will be given of each partition."""
        with self._wake:
            return self._positions.taken()

    def close(self) -> None:
        """What was taken and is not done is nobody's work any more."""
        with self._wake:
            self._positions.close()

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
            self._positions.begin(grant)
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
            if self._positions.put(partition, epoch, batch, size_bytes):
                self._wake.notify_all()

    def skipped(self, partition: PartitionId, epoch: Epoch, to: Offset) -> None:
        """The log has a gap: go on behind it, after what waits."""
        with self._wake:
            self._positions.skip(partition, epoch, to)

    def draining(self, partition: PartitionId) -> None:
        """Give the partition back as soon as nothing of it is in the caller's hands."""
        with self._wake:
            self._positions.drain(partition)
        self.release_drained()

    def release_drained(self) -> None:
        """Hand back what drains and is in nobody's hands."""
        with self._wake:
            ready = self._positions.ready()
        for partition, epoch in ready:
            self.runtime.stopped(partition, epoch)
            self._forget(partition)

    def dropped(self, partition: PartitionId) -> None:
        """The partition is lost."""
        self._forget(partition)

    def _forget(self, partition: PartitionId) -> None:
        with self._wake:
            known = self._positions.forget(partition)
            self._wake.notify_all()
        if known and self._on_revoked is not None:
            told = self._on_revoked
            self._news.put(lambda: told(partition))

    def progress(self, partition: PartitionId, epoch: Epoch) -> Progress | None:
        """How far the caller has committed."""
        return self._positions.progress(partition, epoch)

    def queued_bytes(self, partition: PartitionId) -> int:
        """What the caller has not taken yet."""
        return self._positions.queued_bytes(partition)

    def rejoined(self, incarnation: Incarnation) -> None:
        """Nothing to do: what was held was dropped."""
