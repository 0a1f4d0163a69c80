"""`QuarantineLog`: one partition's quarantine, kept in the log of the same number.

Rules of this file. Calls block: they are made on worker threads. The owner appends under a
producer identity that belongs to (group, partition) and under the epoch of its ownership, so the
log itself refuses an owner whose time is over; an append whose answer is lost is made again with
the same number and adds nothing twice.
"""

from __future__ import annotations

import hashlib
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from pxrs_ray.actors.failures import BufferAway, find_buffer, ours
from pxrs_ray.actors.specs import GroupSpec
from pxrs_ray.batch import Batch, batches
from pxrs_ray.errors import DeadlineExceeded, NotFound, OffsetOutOfRange, PxrsError
from pxrs_ray.log.wire import Fetched, Refused
from pxrs_ray.model import Epoch, Message, Offset, PartitionId
from pxrs_ray.processing.quarantine import Quarantine, Record, headers_of

CALL_WAIT_S = 10.0
TRY_FOR_S = 60.0
PAUSE_S = 0.2
APPEND_WAIT_MS = 2_000
READ_BYTES = 4 << 20
OPERATOR = "pxrs-operator"


class QuarantineLog:
    """Reads and writes partition `partition` of a group's quarantine queue."""

    def __init__(
        self,
        spec: GroupSpec,
        partition: PartitionId,
        producer: bytes,
        epoch: Epoch,
        reader: str,
    ) -> None:
        assert spec.quarantine, "the group has no quarantine"
        self.queue = spec.quarantine
        self.partition = partition
        self.state = Quarantine()
        self.lock = threading.RLock()
        self._spec = spec
        self._producer = producer
        self._epoch = epoch
        self._reader = reader
        self._sequence = 0
        self._buffer: Any = None

    @classmethod
    def of_owner(cls, spec: GroupSpec, partition: PartitionId, epoch: Epoch) -> QuarantineLog:
        """As the owner of the partition under `epoch`."""
        name = f"{spec.topology}/{spec.group}/{partition}".encode()
        producer = hashlib.blake2b(name, digest_size=16).digest()
        return cls(spec, partition, producer, epoch, spec.group)

    @classmethod
    def of_operator(cls, spec: GroupSpec, partition: PartitionId) -> QuarantineLog:
        """As somebody who looks, and asks the owner for something."""
        return cls(spec, partition, uuid.uuid4().bytes, 0, OPERATOR)

    def _call(self, what: str, make: Callable[[Any], Any], try_for_s: float = TRY_FOR_S) -> Any:
        """Call the buffer until it answers. Raises what it refused with, or DeadlineExceeded."""
        end_s = time.monotonic() + try_for_s
        while True:
            try:
                if self._buffer is None:
                    index = self.partition % self._spec.buffers
                    self._buffer = find_buffer(self._spec.topology, index)
                return make(self._buffer).future().result(CALL_WAIT_S)
            except Exception as error:
                answer = ours(error)
                if not isinstance(answer, (BufferAway, NotFound)):
                    raise answer from None
                self._buffer = None
                if time.monotonic() > end_s:
                    raise DeadlineExceeded(
                        f"quarantine {self.queue}, partition {self.partition}: {what} was not "
                        f"possible in {try_for_s:g} s: {answer}"
                    ) from error
            time.sleep(PAUSE_S)

    def refresh(self) -> Quarantine:
        """Take in what is new in the log."""
        with self.lock:
            for record in self.records(self.state.next_position):
                self.state.apply(record)
            return self.state

    def records(self, position: Offset, count: int | None = None) -> list[Message]:
        """The records from `position` on, all of them or `count`."""
        found: list[Message] = []
        while count is None or len(found) < count:
            parts = self._call("reading", partial(self._fetch, position))
            if not parts:
                return found
            part: Fetched | Refused = parts[0]
            if isinstance(part, Refused):
                start = part.start_offset
                if not isinstance(part.error, OffsetOutOfRange) or start is None:
                    raise part.error
                if start <= position:
                    return found
                position = start
                continue
            for batch in batches(part, position):
                found += batch
            position = part.next_offset
        return found[:count]

    def _fetch(self, position: Offset, buffer: Any) -> Any:
        places = {self.partition: (self._epoch, position)}
        return buffer.fetch.remote(self.queue, self._reader, places, READ_BYTES, 0)

    def append(self, messages: Sequence[Message]) -> None:
        """Append records; returns when they are in the log, and in `state`."""
        with self.lock:
            batch = Batch.of(
                [message.key for message in messages],
                [message.payload for message in messages],
                timestamp_ms=0,
                timestamps_ms=[message.timestamp_ms for message in messages],
                headers=[message.headers for message in messages],
                ids=[message.id for message in messages],
            )
            header, body = batch.to_wire(self._producer, self._epoch, self._sequence)
            frame = (self.partition, header, body)
            answers = self._call(
                "appending",
                lambda buffer: buffer.append.remote(self.queue, [frame], APPEND_WAIT_MS),
            )
            if isinstance(answers[0], Refused):
                refusal: PxrsError = answers[0].error
                raise refusal
            self._sequence += 1
            self.refresh()

    def note(self, kind: Record, key: bytes | None, **values: object) -> None:
        """Append one record about `key` that carries no message."""
        self.append([Message(self.partition, -1, key, b"", now_ms(), headers_of(kind, **values))])


def now_ms() -> int:
    """The wall clock, for people."""
    return time.time_ns() // 1_000_000
