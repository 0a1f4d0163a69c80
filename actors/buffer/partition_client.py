"""`PartitionClient`: blocking reads and writes of one partition's log, for tools and worker
threads.

Rules of this file. A buffer that is away, or may not serve, is asked again until a deadline; what
it refuses is raised. An append needs a producer identity, epoch and sequence, so repeating the call
is harmless.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from pxrs_ray.actors.buffer.retry_until_served import lease_over
from pxrs_ray.actors.cluster.ray_errors import find_buffer, ours
from pxrs_ray.data.batch import Batch, batches
from pxrs_ray.data.protocol import Appended, Fetched, LogEnds, Refused
from pxrs_ray.errors import (
    BufferAway,
    DeadlineExceeded,
    LeaseOver,
    NotFound,
    OffsetOutOfRange,
    PxrsError,
)
from pxrs_ray.model import Epoch, Offset, PartitionId

CALL_WAIT_S = 10.0
TRY_FOR_S = 60.0
PAUSE_S = 0.2
APPEND_WAIT_MS = 2_000
READ_BYTES = 4 << 20


class PartitionClient:
    """See the rules at the head of this file. Use it from one thread at a time.

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
        self._topology = topology
        self._index = partition % buffers
        self._reader = reader
        self._epoch = epoch
        self._try_for_s = try_for_s
        self._buffer: Any = None

    def _call(self, what: str, make: Callable[[Any], Any]) -> Any:
        end_s = time.monotonic() + self._try_for_s
        while True:
            try:
                if self._buffer is None:
                    self._buffer = find_buffer(self._topology, self._index)
                found = make(self._buffer).future().result(CALL_WAIT_S)
                if (refusal := lease_over(found)) is None:
                    return found
                raise refusal
            except Exception as error:
                answer = ours(error)
                if not isinstance(answer, (BufferAway, LeaseOver, NotFound)):
                    raise answer from None
                self._buffer = None
                if time.monotonic() > end_s:
                    raise DeadlineExceeded(
                        f"partition {self.partition} of {self.queue}: {what} was not possible in "
                        f"{self._try_for_s:g} s: {answer}"
                    ) from error
            time.sleep(PAUSE_S)

    def ends(self) -> LogEnds:
        """The ends and the state of the log. Raises NotFound when there is none."""
        found: dict[PartitionId, LogEnds] = self._call(
            "asking for its end", lambda buffer: buffer.ends.remote(self.queue)
        )
        if self.partition not in found:
            raise NotFound(f"queue {self.queue!r} has no partition {self.partition}")
        return found[self.partition]

    def read(self, offset: Offset, wait_ms: int = 0) -> Iterator[Batch]:
        """What there is from `offset` on, until the end that the log has when it is reached.

        What the log no longer has is passed over. `wait_ms` is how long to wait for the first.
        """
        while True:
            parts = self._call("reading", partial(self._fetch, offset, wait_ms))
            if not parts:
                return
            part: Fetched | Refused = parts[0]
            if isinstance(part, Refused):
                start = part.start_offset
                if not isinstance(part.error, OffsetOutOfRange) or start is None:
                    raise part.error
                if start <= offset:
                    return
                offset = start
                continue
            yield from batches(part, offset)
            offset, wait_ms = part.next_offset, 0

    def _fetch(self, offset: Offset, wait_ms: int, buffer: Any) -> Any:
        places = {self.partition: (self._epoch, offset)}
        return buffer.fetch.remote(self.queue, self._reader, places, READ_BYTES, wait_ms)

    def drop_before(self, offset: Offset) -> None:
        """Let the log drop what lies below `offset`, as far as it can. Raises what it refuses."""
        found = self._call(
            "truncating",
            lambda buffer: buffer.truncate.remote(self.queue, {self.partition: offset}),
        )
        if isinstance(found.get(self.partition), Refused):
            refusal: PxrsError = found[self.partition].error
            raise refusal

    def append(self, batch: Batch, producer: bytes, epoch: int, sequence: int) -> Offset | None:
        """Append; answers the first offset. None: it was there already, so long ago that the log
        has forgotten where. Raises what the log refuses with."""
        header, body = batch.to_wire(producer, epoch, sequence)
        frames = [(self.partition, header, body)]
        [answer] = self._call(
            "appending", lambda buffer: buffer.append.remote(self.queue, frames, APPEND_WAIT_MS)
        )
        if isinstance(answer, Refused):
            refusal: PxrsError = answer.error
            raise refusal
        assert isinstance(answer, Appended)
        return answer.base_offset
