"""`PartitionClient`: blocking reads and writes of one partition's log, for tools and worker
threads."""

from __future__ import annotations

from collections.abc import Iterator

from pxrs_ray.actors.buffer.blocking_buffer_client import TRY_FOR_S, BlockingBufferClient
from pxrs_ray.data.batch import Batch, batches
from pxrs_ray.data.call_tries import next_to_read
from pxrs_ray.data.protocol import LogEnds, Refused
from pxrs_ray.model import Epoch, Offset, PartitionId

READ_BYTES = 4 << 20


class PartitionClient:
    """See `BlockingBufferClient` for what it waits for, and what it raises.

    `queue` is the full name. `reader` reads under `epoch`: a group under the epoch of its
    ownership, any other reader under 0.
    """

    def __init__(
        self,
        topology: str,
        buffers: int,
        queue: str,
        partition: PartitionId,
        reader: str = "?tool",
        epoch: Epoch = 0,
        try_for_s: float = TRY_FOR_S,
    ) -> None:
        self.queue = queue
        self.partition = partition
        # Up to where the log was found to have dropped what it had, by a read from before that.
        self.dropped_to: Offset = 0
        self._buffers = BlockingBufferClient(topology, buffers, try_for_s)
        self._reader = reader
        self._epoch = epoch

    def ends(self) -> LogEnds:
        """The ends and the state of the log. Raises NotFound when there is none."""
        return self._buffers.ends_of(self.queue, self.partition)

    def read(self, offset: Offset, wait_ms: int = 0) -> Iterator[Batch]:
        """What there is from `offset` on, until the end that the log has when it is reached.

        What the log no longer has is passed over, and `dropped_to` says so. `wait_ms` is how long
        to wait for the first.
        """
        while True:
            part = self._buffers.fetch(
                self.queue,
                self._reader,
                self.partition,
                offset,
                epoch=self._epoch,
                bytes_max=READ_BYTES,
                wait_ms=wait_ms,
            )
            if part is None:
                return
            if isinstance(part, Refused):
                start = next_to_read(part, offset)
                if start is None:
                    return
                offset = self.dropped_to = start
                continue
            yield from batches(part, offset)
            offset, wait_ms = part.next_offset, 0

    def drop_before(self, offset: Offset) -> None:
        """Let the log drop what lies below `offset`, as far as it can. Raises what it refuses."""
        self._buffers.truncate(self.queue, self.partition, offset)

    def append(self, batch: Batch, producer: bytes, epoch: int, sequence: int) -> Offset | None:
        """Append; answers the first offset. None: it was there already, so long ago that the log
        has forgotten where. Raises what the log refuses with.

        It needs a producer's identity, epoch and sequence, so repeating the call is harmless.
        """
        header, body = batch.to_wire(producer, epoch, sequence)
        return self._buffers.append(self.queue, (self.partition, header, body)).base_offset
