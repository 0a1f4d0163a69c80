"""`Appender`: appends frames to a queue's buffers, several calls at a time, repeated until they are
answered.

Rules of this file. Calls of one buffer may overtake each other: the logs put frames in order by
sequence, and a repeat adds nothing, so a call without an answer is simply sent again. A frame that
waits for space in a full partition waits in the buffer. Nothing waits longer than `stall_s` while
no frame is accepted; memory is bounded by `window` calls a buffer.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from pxrs_ray.actors.buffer.buffer_client import BufferReply
from pxrs_ray.actors.buffer.buffer_clients import BufferClients
from pxrs_ray.actors.buffer.call_failure import CallFailure, failure_of
from pxrs_ray.data.protocol import Appended, OutFrame, Refused
from pxrs_ray.errors import DeadlineExceeded, NotFound, PartitionFull, PxrsError, SequenceGap
from pxrs_ray.spark.queue_ref import Target

APPEND_WAIT_MS = 5_000
ANSWER_S = 5.0
PAUSE_S = 0.1
# Answers that are worth another try: readers make room, a predecessor arrives, the queue is opened.
PASSING = (PartitionFull, SequenceGap, NotFound)


@dataclass(slots=True)
class _Call:
    frames: list[OutFrame]
    reply: BufferReply[list[Appended | Refused]] | PxrsError


class Appender:
    """One process's connection to one queue. Not thread-safe; `drain` before relying on
    anything."""

    def __init__(self, target: Target, window: int = 3, stall_s: float = 300.0) -> None:
        self.repeated = 0
        self.appended = 0
        self._target = target
        self._window = window
        self._stall_s = stall_s
        # Buffers answer before we lose patience, so that we can say what they wait for.
        self._wait_ms = min(APPEND_WAIT_MS, round(stall_s * 500))
        self._buffers = BufferClients(target.topology)
        self._calls: dict[int, deque[_Call]] = {i: deque() for i in range(target.buffers)}
        self._moved_s = time.monotonic()

    def send(self, frames: Sequence[OutFrame]) -> None:
        """Send frames on their way; waits while too many are. Raises what refuses them."""
        if not any(self._calls.values()):
            self._moved_s = time.monotonic()
        split: dict[int, list[OutFrame]] = {}
        for frame in frames:
            split.setdefault(frame[0] % self._target.buffers, []).append(frame)
        for index, mine in split.items():
            while len(self._calls[index]) >= self._window:
                self._settle(index)
            self._calls[index].append(_Call(mine, self._append(index, mine)))

    def drain(self) -> None:
        """Return when every frame is acknowledged. Raises what refuses one."""
        for index, calls in self._calls.items():
            while calls:
                self._settle(index)

    def _append(
        self, index: int, frames: list[OutFrame]
    ) -> BufferReply[list[Appended | Refused]] | PxrsError:
        try:
            return self._buffers.of(index).append(
                self._target.queue,
                frames,
                self._wait_ms,
                size_bytes=sum(len(body) for _, _, body in frames),
            )
        except PxrsError as error:
            return error

    def _settle(self, index: int) -> None:
        """Take the answer of the oldest call, and send again what it could not take."""
        call = self._calls[index][0]
        answers, trouble = self._answers(index, call)
        left = []
        for frame, answer in zip(call.frames, answers, strict=True):
            if isinstance(answer, Appended):
                self.appended += not answer.repeated
                self.repeated += answer.repeated
                self._moved_s = time.monotonic()
            elif answer is None or _may_pass(answer.error):
                trouble = trouble or (answer.error if answer is not None else None)
                left.append(frame)
            else:
                raise answer.error
        if not left:
            self._calls[index].popleft()
            return
        waited_s = time.monotonic() - self._moved_s
        if waited_s > self._stall_s:
            raise self._stalled(index, left, trouble, waited_s)
        if not isinstance(trouble, PartitionFull):
            time.sleep(PAUSE_S)
        call.frames, call.reply = left, self._append(index, left)

    def _answers(
        self, index: int, call: _Call
    ) -> tuple[Sequence[Appended | Refused | None], PxrsError | None]:
        """One answer a frame; None where the call failed as a whole, with the reason."""
        error = call.reply if isinstance(call.reply, PxrsError) else None
        try:
            if isinstance(call.reply, BufferReply):
                left_s = self._stall_s - (time.monotonic() - self._moved_s)
                return call.reply.result(max(left_s, self._wait_ms / 1_000 + ANSWER_S)), None
        except PxrsError as raised:
            error = raised
        assert error is not None
        if failure_of(error) is not CallFailure.AWAY:
            raise error
        self._buffers.failed(index, error)
        return [None] * len(call.frames), error

    def _stalled(
        self, index: int, left: list[OutFrame], trouble: PxrsError | None, waited_s: float
    ) -> PxrsError:
        partitions = sorted({frame[0] for frame in left})
        where = (
            f"partitions {partitions} of queue {self._target.queue!r} (buffer {index} of topology "
            f"{self._target.topology!r}) took nothing for {waited_s:.0f} s"
        )
        if isinstance(trouble, PartitionFull):
            return PartitionFull(f"{where}: they are full, and no group makes room: {trouble}")
        return DeadlineExceeded(f"{where}: {trouble or 'no answer'}; see `pxrs doctor`")


def _may_pass(error: PxrsError) -> bool:
    return isinstance(error, PASSING) or failure_of(error) is CallFailure.AWAY
