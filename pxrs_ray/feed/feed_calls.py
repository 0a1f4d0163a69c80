"""`FeedCalls`: which frames of a feed go to which buffer now, and what an answer means.

Rules of this file. Calls of one buffer may overtake each other: the logs put frames in order by
sequence, and a repeat adds nothing, so a call without an answer is simply made again. A frame that
waits for space in a full partition waits in the buffer. Nothing waits longer than `stall_ms` while
no frame is accepted; memory is bounded by `window` calls a buffer. No input or output: whoever
carries the calls gives the time and the answers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from pxrs_ray.data.protocol import Appended, OutFrame, Refused
from pxrs_ray.errors import (
    BufferAway,
    DeadlineExceeded,
    LeaseOver,
    NotFound,
    PartitionFull,
    PxrsError,
    SequenceGap,
)
from pxrs_ray.late_dataclass import dataclass

APPEND_WAIT_MS = 5_000
ANSWER_MS = 5_000
PAUSE_MS = 100
WINDOW = 3
# Answers that are worth another try: readers make room, a predecessor arrives, the queue is opened,
# the buffer comes back.
PASSING = (PartitionFull, SequenceGap, NotFound, BufferAway, DeadlineExceeded, LeaseOver)

Answers = Sequence[Appended | Refused]


@dataclass(eq=False, slots=True)
class FeedCall:
    """Frames for one buffer. It may be made (again) from `not_before_ms` on."""

    buffer: int
    frames: list[OutFrame]
    not_before_ms: int


class FeedCalls:
    """One writer's frames under way to one queue. `appended` and `repeated` count frames.

    `uncompared` of the repeats were there for so long that the log could not say whether they
    were the same.

    Once an answer has raised what refuses a frame, nothing more is to be asked of it.
    """

    def __init__(
        self,
        topology: str,
        queue: str,
        buffers: int,
        stall_ms: int,
        now_ms: int,
        window: int = WINDOW,
    ) -> None:
        self.appended = 0
        self.repeated = 0
        self.uncompared = 0
        # Buffers answer before we lose patience, so that we can say what they wait for.
        self.wait_ms = min(APPEND_WAIT_MS, stall_ms // 2)
        self._place = f"queue {queue!r} (buffer {{}} of topology {topology!r})"
        self._buffers = buffers
        self._stall_ms = stall_ms
        self._window = window
        self._calls: dict[int, deque[FeedCall]] = {at: deque() for at in range(buffers)}
        self._moved_ms = now_ms

    def crowded(self, frames: Sequence[OutFrame]) -> FeedCall | None:
        """The oldest call of a buffer that can take no more of `frames`; None: put them."""
        for buffer in {frame[0] % self._buffers for frame in frames}:
            if len(self._calls[buffer]) >= self._window:
                return self._calls[buffer][0]
        return None

    def put(self, frames: Sequence[OutFrame], now_ms: int) -> list[FeedCall]:
        """Take frames, and answer the calls to be made for them."""
        if not any(self._calls.values()):
            self._moved_ms = now_ms
        split: dict[int, list[OutFrame]] = {}
        for frame in frames:
            split.setdefault(frame[0] % self._buffers, []).append(frame)
        made = [FeedCall(buffer, mine, now_ms) for buffer, mine in split.items()]
        for call in made:
            self._calls[call.buffer].append(call)
        return made

    def oldest(self) -> FeedCall | None:
        """A call that is not over yet, the oldest of its buffer; None when all is in the logs."""
        return next((calls[0] for calls in self._calls.values() if calls), None)

    def patience_ms(self, now_ms: int) -> int:
        """How long an answer is waited for."""
        return max(self._stall_ms - (now_ms - self._moved_ms), self.wait_ms + ANSWER_MS)

    def answered(self, call: FeedCall, answers: Answers, now_ms: int) -> bool:
        """Take a buffer's answer, one a frame. True when the call is over; else it is made again.

        Raises what refuses a frame, and what a frame has waited for in vain.
        """
        left: list[OutFrame] = []
        trouble: PxrsError | None = None
        for frame, answer in zip(call.frames, answers, strict=True):
            if isinstance(answer, Appended):
                self.appended += not answer.repeated
                self.repeated += answer.repeated
                self.uncompared += answer.base_offset is None
                self._moved_ms = now_ms
            elif isinstance(answer.error, PASSING):
                trouble = trouble or answer.error
                left.append(frame)
            else:
                raise answer.error
        return self._left(call, left, trouble, now_ms)

    def failed(self, call: FeedCall, error: PxrsError, now_ms: int) -> bool:
        """A call had no answer, for no buffer has served it; the rest is as with `answered`."""
        return self._left(call, call.frames, error, now_ms)

    def _left(
        self, call: FeedCall, left: list[OutFrame], trouble: PxrsError | None, now_ms: int
    ) -> bool:
        if not left:
            self._calls[call.buffer].remove(call)
            return True
        waited_ms = now_ms - self._moved_ms
        if waited_ms > self._stall_ms:
            raise self._stalled(call.buffer, left, trouble, waited_ms)
        call.frames = left
        call.not_before_ms = now_ms + (0 if isinstance(trouble, PartitionFull) else PAUSE_MS)
        return False

    def _stalled(
        self, buffer: int, left: list[OutFrame], trouble: PxrsError | None, waited_ms: int
    ) -> PxrsError:
        partitions = sorted({frame[0] for frame in left})
        where = (
            f"partitions {partitions} of {self._place.format(buffer)} took nothing for "
            f"{waited_ms / 1_000:.0f} s"
        )
        if isinstance(trouble, PartitionFull):
            return PartitionFull(f"{where}: they are full, and no group makes room: {trouble}")
        return DeadlineExceeded(f"{where}: {trouble or 'no answer'}; see `pxrs doctor`")
