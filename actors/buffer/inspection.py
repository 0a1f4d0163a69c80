"""`Inspection`: a buffer's read-only answers for tools and status, which need no lease.

Rules of this file. An answer may be out of date when it arrives, so nothing is decided by it that a
lease would have to guard.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pxrs_ray.actors.buffer.buffer_stats import stats_of
from pxrs_ray.actors.buffer.log_reader import message_at
from pxrs_ray.actors.buffer.serving_state import ServingState
from pxrs_ray.data.protocol import BufferStats, ChangedEnds, LogEnds
from pxrs_ray.errors import PxrsError
from pxrs_ray.log.log_copy import Bytes, FileState, Piece, read_piece, slot_files
from pxrs_ray.model import Message, Offset, PartitionId
from pxrs_ray.supervision.supervisor import off_loop

# Of how many logs one answer tells: it is heard then, also when the next one comes too late.
ENDS_TOLD_MOST = 1_000


class Inspection(ServingState):
    """The read-only part of `Buffer`. See the rules at the head of this file."""

    async def ends(self, queue: str) -> dict[PartitionId, LogEnds]:
        """The ends and the state of each log of `queue` on this buffer."""
        return self._with_epochs(queue, self._manager.ends(queue))

    async def changed_ends(self, heard: tuple[str, int]) -> ChangedEnds:
        """The same of the logs of every queue, as far as they have changed since it was `heard`:
        the incarnation and the number of the change that an earlier answer bore. So many at
        most: ask again where that is not all."""
        manager, (incarnation, since) = self._manager, heard
        since = since if incarnation == self._incarnation else 0
        to, changed, is_all = manager.changed_ends(since, ENDS_TOLD_MOST)
        ends = {queue: self._with_epochs(queue, found) for queue, found in changed.items()}
        return ChangedEnds(self._incarnation, to, manager.queue_ids, ends, is_all)

    def _with_epochs(
        self, queue: str, ends: Mapping[PartitionId, LogEnds]
    ) -> dict[PartitionId, LogEnds]:
        of_log = self._fence.of_log
        return {p: replace(end, epochs=of_log(queue, p)) for p, end in ends.items()}

    async def offset_at(
        self, queue: str, timestamp_ms: int, partitions: Sequence[PartitionId] | None = None
    ) -> dict[PartitionId, Offset]:
        """The first offset with a timestamp of at least `timestamp_ms`; the end when none has."""
        if partitions is None:
            partitions = list(self._manager.ends(queue))
        logs = [self._manager.log(queue, partition) for partition in partitions]
        return await self._reader.run(
            lambda: {log.partition: log.offset_at(timestamp_ms) for log in logs}
        )

    async def timestamps(
        self, queue: str, offsets: Mapping[PartitionId, Offset]
    ) -> dict[PartitionId, int]:
        """The timestamp of the message at each offset; what is not there is left out."""

        def run() -> dict[PartitionId, int]:
            found = {}
            for partition, offset in offsets.items():
                try:
                    message = message_at(self._manager.log(queue, partition), offset)
                    found[partition] = message.timestamp_ms
                except PxrsError:
                    continue
            return found

        return await self._reader.run(run)

    async def get_message(self, queue: str, partition: PartitionId, offset: Offset) -> Message:
        """Read one message, for inspection. Raises OffsetOutOfRange, NotFound, LogCorrupted."""
        log = self._manager.log(queue, partition)
        return await self._reader.run(lambda: message_at(log, offset))

    async def stats(self) -> BufferStats:
        """What it did and holds, for `status`, metrics and benchmarks."""
        free = await off_loop(self._files.free_bytes, self._folder)
        return stats_of(self._counts, self._manager, self._writer, free)

    async def slot_files(self) -> list[FileState]:
        """Every file of this buffer, closed or not, for a copy to another disk."""
        return await off_loop(slot_files, self._files, self._folder, self._index, self._buffers)

    async def read_piece(self, piece: Piece) -> Bytes:
        """Some bytes of one of them."""
        return await off_loop(read_piece, self._files, self._folder, piece)
