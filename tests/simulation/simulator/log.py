"""The simulated buffer: every partition's messages, the real producer state and the real fence.

Bytes, files and frames are no part of this: they have tests of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pxrs_ray.data.frame import FrameHeader, producer_id
from pxrs_ray.errors import Fenced, ProducerError
from pxrs_ray.log.producer_state import ProducerStates
from pxrs_ray.log.read_fence import ReadFence
from pxrs_ray.model import Epoch, Incarnation, MemberId, Offset, PartitionId
from tests.simulation.history import Appended, Fetched
from tests.simulation.simulator.store import GROUP
from tests.simulation.simulator.world import Process, World, once

FETCH_MESSAGES_MAX = 8
WAIT_MS = 300
PRODUCERS_MAX = 100
PRODUCER_IDLE_MS = 1_000_000
QUEUE = "queue"


@dataclass(frozen=True, slots=True)
class Line:
    """One message, as the log keeps it."""

    offset: Offset
    key: bytes
    message: str


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One message, as a producer sends it."""

    partition: PartitionId
    key: bytes
    message: str
    producer: str
    epoch: int
    sequence: int


Served = dict[PartitionId, tuple[Epoch, list[Line]]]


class LogProcess(Process):
    """All partition logs of the queue. It never loses anything: that is tested elsewhere."""

    role = "log"

    def __init__(self, world: World, folder: Path) -> None:
        super().__init__(world, "log")
        partitions = range(world.scenario.partitions)
        self.lines: dict[PartitionId, list[Line]] = {p: [] for p in partitions}
        self._producers = {p: _new_states() for p in partitions}
        self._fence_file = folder / "fences"
        self._fence = ReadFence(self._fence_file)
        self._waiting: list[Callable[[], None]] = []

    def end(self, partition: PartitionId) -> Offset:
        """The offset that the next message gets."""
        return len(self.lines[partition])

    def append(self, message: Outgoing, respond: Callable[[Offset | ProducerError], None]) -> None:
        """Append, unless it is there already; answer the offset."""
        partition = message.partition
        header = _header(message, self.end(partition))
        states = self._producers[partition]
        try:
            answer = states.repeat(header)
        except ProducerError as refused:
            respond(refused)
            return
        if answer is not None:
            respond(answer.base_offset)
            return
        states.record(header, self.world.now_ms)
        line = Line(self.end(partition), message.key, message.message)
        self.lines[partition].append(line)
        self.world.record(
            Appended(
                self.world.now_ms,
                partition,
                line.offset,
                message.key,
                message.message,
                message.producer,
                message.epoch,
                message.sequence,
            )
        )
        waiting, self._waiting = self._waiting, []
        for look in waiting:
            look()
        respond(line.offset)

    def fetch(
        self,
        member: MemberId,
        incarnation: Incarnation,
        positions: Mapping[PartitionId, tuple[Epoch, Offset]],
        respond: Callable[[Served], None],
    ) -> None:
        """Answer with messages, as soon as there are some; a fenced partition is left out."""

        def serve(last: bool) -> None:
            served: Served = {}
            for partition, (epoch, offset) in positions.items():
                try:
                    self._fence.check(QUEUE, GROUP, partition, epoch)
                except Fenced:
                    continue
                lines = self.lines[partition][offset : offset + FETCH_MESSAGES_MAX]
                if lines:
                    served[partition] = (epoch, lines)
                    self.world.record(
                        Fetched(
                            self.world.now_ms,
                            partition,
                            epoch,
                            member,
                            incarnation,
                            offset,
                            offset + len(lines),
                        )
                    )
            if served or last:
                respond(served)
            else:
                self._waiting.append(at_last)

        at_last = once(lambda: serve(True))
        serve(False)
        self.after(WAIT_MS, at_last)

    def fence(self, epochs: Mapping[PartitionId, Epoch]) -> None:
        """Refuse readers below these epochs from now on."""
        self._fence.fence(QUEUE, GROUP, epochs)

    def restart(self) -> None:
        """Come back as a new process does: from what is on the disk."""
        self.close()
        self._fence = ReadFence(self._fence_file)
        for partition, states in self._producers.items():
            self._producers[partition] = _new_states()
            self._producers[partition].restore(
                states.snapshot(self.end(partition)), self.end(partition)
            )

    def close(self) -> None:
        """Give the file back."""
        self._fence.close()


def _new_states() -> ProducerStates:
    return ProducerStates(PRODUCERS_MAX, PRODUCER_IDLE_MS)


def _header(message: Outgoing, base_offset: Offset) -> FrameHeader:
    return FrameHeader(
        messages=1,
        flags=0,
        base_offset=base_offset,
        producer_id=producer_id(message.producer),
        producer_epoch=message.epoch,
        sequence=message.sequence,
        timestamp_min_ms=0,
        timestamp_max_ms=0,
        body_bytes=8,
        body_checksum=_checksum(message.message),
    )


def _checksum(text: str) -> int:
    """A stand-in for a body's checksum."""
    return int.from_bytes(text.encode()[-8:], "little")
