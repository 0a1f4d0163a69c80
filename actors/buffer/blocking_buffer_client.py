"""`BlockingBufferClient`: calls to a topology's buffers that block, for tools and worker threads.

Rules of this file. `CallTries` says when the same call is made again, and what is raised. Whatever
else comes is the caller's: an answer, or a refusal that is raised.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from pxrs_ray.actors.buffer.buffer_client import FETCH_BYTES_MAX, BufferClient, BufferReply
from pxrs_ray.actors.buffer.buffer_clients import BufferClients
from pxrs_ray.data.call_tries import ANSWER_S, CallFailure, CallTries, meaning_of, not_served
from pxrs_ray.data.protocol import Appended, Fetched, LogEnds, OutFrame, QueueSpec, Refused
from pxrs_ray.errors import NotFound, PxrsError
from pxrs_ray.model import Epoch, Message, Offset, PartitionId

T = TypeVar("T")

TRY_FOR_S = 60.0
APPEND_WAIT_MS = 2_000


class BlockingBufferClient:
    """See the rules at the head of this file. Any thread may use it.

    Partition p of every queue is on buffer p % `buffers`. A queue is given by its full name.
    """

    def __init__(
        self,
        topology: str,
        buffers: int,
        try_for_s: float = TRY_FOR_S,
        clients: BufferClients | None = None,
    ) -> None:
        self._topology = topology
        self._buffers = buffers
        self._try_for_s = try_for_s
        self._clients = clients or BufferClients(topology)

    def ends(self, queue: str) -> dict[PartitionId, LogEnds]:
        """The ends and the state of each log of a queue."""
        found: dict[PartitionId, LogEnds] = {}
        for index in range(self._buffers):
            mine = self._until_served(index, f"the ends of {queue}", lambda to: to.ends(queue))
            found |= mine
        return dict(sorted(found.items()))

    def ends_of(self, queue: str, partition: PartitionId) -> LogEnds:
        """The ends and the state of one log. Raises NotFound when there is none."""
        found = self._until_served(
            partition % self._buffers, f"the ends of {queue}", lambda to: to.ends(queue)
        )
        if partition not in found:
            raise NotFound(f"queue {queue!r} has no partition {partition}")
        return found[partition]

    def offsets_at(self, queue: str, timestamp_ms: int) -> dict[PartitionId, Offset]:
        """The first offset of each log that is not older; its end where none is."""
        found: dict[PartitionId, Offset] = {}
        for index in range(self._buffers):
            mine = self._until_served(
                index, f"offsets of {queue}", lambda to: to.offset_at(queue, timestamp_ms)
            )
            found |= mine
        return found

    def message(self, queue: str, partition: PartitionId, offset: Offset) -> Message:
        """One message. Raises OffsetOutOfRange, NotFound, LogCorrupted."""
        return self._until_served(
            partition % self._buffers,
            f"a message of partition {partition} of {queue}",
            lambda to: to.get_message(queue, partition, offset),
        )

    def fetch(
        self,
        queue: str,
        reader: str,
        partition: PartitionId,
        offset: Offset,
        *,
        epoch: Epoch = 0,
        bytes_max: int = FETCH_BYTES_MAX,
        wait_ms: int = 0,
    ) -> Fetched | Refused | None:
        """What one log has from `offset` on; None when there is nothing."""
        found = self._until_served(
            partition % self._buffers,
            f"reading partition {partition} of {queue}",
            lambda to: to.fetch(queue, reader, {partition: (epoch, offset)}, bytes_max, wait_ms),
        )
        return found[0] if found else None

    def append(self, queue: str, frame: OutFrame) -> Appended:
        """Append one frame; that a repeat adds nothing, its numbers see to. Raises a refusal."""
        answer = self.offer(queue, frame)
        if isinstance(answer, Refused):
            raise answer.error
        return answer

    def offer(self, queue: str, frame: OutFrame) -> Appended | Refused:
        """As `append`; a refusal is answered, with all that the log says of it."""
        partition = frame[0]
        [answer] = self._until_served(
            partition % self._buffers,
            f"appending to partition {partition} of {queue}",
            lambda to: to.append(queue, [frame], APPEND_WAIT_MS, size_bytes=len(frame[2])),
        )
        return answer

    def truncate(
        self, queue: str, partition: PartitionId, offset: Offset, *, force: bool = False
    ) -> None:
        """Let a log drop what lies below `offset`; with `force` also what a group has not passed.
        Raises what it refuses."""
        found = self._until_served(
            partition % self._buffers,
            f"truncating partition {partition} of {queue}",
            lambda to: to.truncate(queue, {partition: offset}, force),
        )
        refusal = found.get(partition)
        if isinstance(refusal, Refused):
            raise refusal.error

    def accept_loss(self, queue: str, partition: PartitionId) -> LogEnds:
        """Resume a lost log above its gap."""
        return self._until_served(
            partition % self._buffers,
            f"accepting the loss of partition {partition} of {queue}",
            lambda to: to.accept_loss(queue, partition),
        )

    def open(self, index: int, spec: QueueSpec) -> None:
        """Have one buffer make its logs of a queue, where they are not there yet."""
        self._until_served(
            index, f"opening {spec.queue}", lambda to: to.open(spec, {}, True), self._try_for_s
        )

    def _until_served(
        self,
        index: int,
        what: str,
        call: Callable[[BufferClient], BufferReply[T]],
        answer_s: float = ANSWER_S,
    ) -> T:
        what = f"buffer {index} of topology {self._topology!r}: {what}"
        tries = CallTries(what, time.monotonic(), self._try_for_s, answer_s)
        while True:
            try:
                wait_s = tries.wait_s(time.monotonic())
                found = call(self._clients.of(index)).result(wait_s)
                trouble = not_served(found)
                if trouble is None:
                    return found
            except PxrsError as error:
                if meaning_of(error) is CallFailure.AWAY:
                    self._clients.failed(index, error)
                trouble = error
            time.sleep(tries.again_in_s(trouble, time.monotonic()))
