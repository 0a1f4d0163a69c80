"""What the tests of senders share: one sender, real logs, and the calls in between."""

from __future__ import annotations

from pathlib import Path

from pxrs_ray.data.batch import Batch
from pxrs_ray.data.protocol import Appended, OutFrame, Refused
from pxrs_ray.errors import (
    PxrsError,
    SequenceGap,
)
from pxrs_ray.log.partition_log import PartitionLog
from pxrs_ray.producer.sender import Sender, SenderLimits
from tests.logs import MEMORY, NOW_MS, contents, open_log
from tests.settings import sender_limits

PARTITIONS, BUFFERS = 4, 2


class Notes:
    """A ticket: what became of each frame."""

    def __init__(self) -> None:
        self.settled: dict[int, int | PxrsError | None] = {}

    def settle(self, index: int, answer: Appended | PxrsError) -> None:
        assert index not in self.settled, "a frame was settled twice"
        self.settled[index] = answer.base_offset if isinstance(answer, Appended) else answer


class Harness:
    """One sender, and a log a partition."""

    def __init__(self, folder: Path, limits: SenderLimits | None = None) -> None:
        self.logs = {p: open_log(folder / str(p), MEMORY) for p in range(PARTITIONS)}
        self.sender = Sender(
            BUFFERS,
            limits or sender_limits(inflight_appends_max=3, call_frames_max=3, call_bytes_min=1),
        )
        self.notes = Notes()
        self.sent: dict[int, tuple[int, bytes]] = {}
        self.now_ms = NOW_MS

    def add(self, partition: int) -> None:
        index = len(self.sent)
        payload = b"%d" % index
        epoch, sequence = self.sender.numbers(partition)
        batch = Batch.of([payload], [payload], timestamp_ms=1)
        header, body = batch.to_wire(b"o" * 16, epoch, sequence)
        self.sender.add(partition, header, body, self.notes, index, self.now_ms)
        self.sent[index] = (partition, payload)

    def deliver(self, frames: list[OutFrame]) -> list[Appended | Refused]:
        return [_append(self.logs[frame[0]], frame, self.now_ms) for frame in frames]

    def pump(self) -> None:
        """Make every call that is due, until none is."""
        for _ in range(10):
            for call in list(self.sender.calls(self.now_ms)):
                self.sender.answered(call, self.deliver(call.arguments()), self.now_ms)

    def payloads(self, partition: int) -> list[bytes]:
        return list(contents(self.logs[partition]).values())

    def close(self) -> None:
        for log in self.logs.values():
            log.close()


def _append(log: PartitionLog, frame: OutFrame, now_ms: int) -> Appended | Refused:
    try:
        return log.append(frame[1], frame[2], now_ms)
    except SequenceGap as error:
        expected, heard = log.expected_sequence(frame[1]), log.heard(frame[1])
        return Refused(frame[0], error, expected_sequence=expected, heard=heard)
    except PxrsError as error:
        return Refused(frame[0], error)
