"""`QueueLook`: a look at what a queue's logs have; a producer has it too."""

from __future__ import annotations

from pxrs_ray.actors.buffer.blocking_buffer_client import BlockingBufferClient
from pxrs_ray.closing import Closing
from pxrs_ray.model import Message, Offset, PartitionId


class QueueLook(Closing):
    """Looks at the logs of one queue, by its full name."""

    def __init__(self, queue: str, logs: BlockingBufferClient) -> None:
        self._queue = queue
        self._logs = logs

    def get_message(self, partition: PartitionId, offset: Offset) -> Message:
        """One message, for inspection. Raises OffsetOutOfRange, NotFound, LogCorrupted."""
        return self._logs.message(self._queue, partition, offset)

    def latest_offset(self, partition: PartitionId) -> Offset:
        """The offset that the partition's next message gets."""
        return self._logs.ends_of(self._queue, partition).end_offset
