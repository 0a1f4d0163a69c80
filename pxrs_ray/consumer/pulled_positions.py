"""`PulledPositions`: what a pulling caller gets next, and what counts as done. Pure.

Rules of this file. The caller takes batches; the member's machine says what begins, drains and is
dropped. Only one of them may enter at a time. A batch counts as done once that is said after it was
taken. A partition that moves yields nothing more, and may be handed back when the caller holds
nothing of it. Messages of an older epoch are dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from pxrs_ray.data.batch import Batch
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Epoch, Grant, Offset, PartitionId, Progress


@dataclass(slots=True)
class PullPosition:
    """How far the caller is with one partition: committed to, and taken.

    `given` is where the last batch of it ends: between there and `taken` the log has nothing.
    """

    grant: Grant
    done: Offset
    taken: Offset
    given: Offset
    queued_bytes: int = 0
    draining: bool = False

    def reach(self, offset: Offset) -> None:
        """What is before `offset` is done, as far as it was taken; so is a gap right behind it."""
        if offset >= self.given:
            self.done = self.taken
        else:
            self.done = max(self.done, offset)


@dataclass(frozen=True, slots=True)
class Taken:
    """What the caller gets. `was_full`: nothing more of its partition was fetched until now."""

    batch: Batch
    grant: Grant
    was_full: bool


class PulledPositions:
    """See the rules at the head of this file."""

    def __init__(self) -> None:
        # What waits, in order; an offset is where it goes on: the log has nothing before it.
        self._waiting: deque[tuple[PartitionId, Epoch, Batch | Offset, int]] = deque()
        self._positions: dict[PartitionId, PullPosition] = {}
        self._closed = False

    def _of(self, partition: PartitionId, epoch: Epoch) -> PullPosition | None:
        position = self._positions.get(partition)
        return position if position is not None and position.grant.epoch == epoch else None

    # --- the caller -------------------------------------------------------------------------------

    def take(self, bytes_max: int) -> Taken | None:
        """The next batch, in the order in which they came; `bytes_max` is what makes one full."""
        while self._waiting and not self._closed:
            partition, epoch, batch, size_bytes = self._waiting.popleft()
            position = self._of(partition, epoch)
            if position is None or position.draining:
                continue
            if isinstance(batch, int):
                position.taken = batch
                position.reach(position.done)
                continue
            position.taken = position.given = batch.end_offset
            was_full = position.queued_bytes >= bytes_max
            position.queued_bytes -= size_bytes
            return Taken(batch, position.grant, was_full)
        return None

    def note_done(self, offsets: Mapping[PartitionId, Offset] | None = None) -> None:
        """All that was taken is done; with `offsets`, of those partitions what is before them.

        What was taken of a partition that is no longer ours counts for nothing.
        """
        if offsets is None:
            for position in self._positions.values():
                position.done = position.taken
            return
        for partition, offset in offsets.items():
            found = self._positions.get(partition)
            if found is not None:
                found.reach(offset)

    def taken(self) -> dict[PartitionId, Offset]:
        """The next offset that the caller will be given of each partition."""
        return {p: position.taken for p, position in sorted(self._positions.items())}

    def close(self) -> None:
        """The caller takes nothing more; what it took and is not done is nobody's work any more."""
        self._closed = True
        for position in self._positions.values():
            position.taken = position.given = position.done

    # --- the member -------------------------------------------------------------------------------

    def begin(self, grant: Grant) -> None:
        """A partition is ours."""
        at = grant.checkpoint
        self._positions[grant.partition] = PullPosition(grant, at, at, at)

    def put(self, partition: PartitionId, epoch: Epoch, batch: Batch, size_bytes: int) -> bool:
        """Messages came; False when nobody here wants them."""
        position = self._of(partition, epoch)
        if position is None:
            return False
        position.queued_bytes += size_bytes
        self._waiting.append((partition, epoch, batch, size_bytes))
        return True

    def skip(self, partition: PartitionId, epoch: Epoch, to: Offset) -> None:
        """The log has a gap: go on behind it, after what waits."""
        self._waiting.append((partition, epoch, to, 0))

    def drain(self, partition: PartitionId) -> None:
        """Give nothing more of this partition: it moves."""
        position = self._positions.get(partition)
        if position is not None:
            position.draining = True

    def ready(self) -> list[tuple[PartitionId, Epoch]]:
        """What moves and is in nobody's hands: say that it stopped, then `forget` it."""
        return [
            (partition, position.grant.epoch)
            for partition, position in self._positions.items()
            if position.draining and (position.taken == position.done or self._closed)
        ]

    def forget(self, partition: PartitionId) -> bool:
        """The partition is handed back, or lost; False when it was not here."""
        return self._positions.pop(partition, None) is not None

    def progress(self, partition: PartitionId, epoch: Epoch) -> Progress | None:
        """How far the caller says it is."""
        position = self._of(partition, epoch)
        if position is None:
            return None
        grant = position.grant
        if position.done == grant.checkpoint:
            return Progress(position.done, grant.attempts, grant.detail)
        return Progress(position.done)

    def queued_bytes(self, partition: PartitionId) -> int:
        """What the caller has not taken yet."""
        position = self._positions.get(partition)
        return position.queued_bytes if position is not None else 0
