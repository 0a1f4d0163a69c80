"""What is under way from a producer to its buffers: frames, the calls that carry them, and each
partition's pending. Data of the `Sender`, which alone changes it."""

from __future__ import annotations

from collections import deque
from dataclasses import field
from typing import Any, Protocol

from pxrs_ray.data.frame import Mark
from pxrs_ray.data.protocol import Appended, Heard, OutFrame
from pxrs_ray.errors import PxrsError
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.log.producer_state import ANSWERS_MAX
from pxrs_ray.model import PartitionId

WAIT_FIRST_MS = 100
WAIT_AGAIN_MS = 2_000
ANSWER_MARGIN_MS = 200


@dataclass(frozen=True, slots=True)
class SenderLimits:
    """How much may be under way: calls and bytes a buffer; and how long a frame is tried.

    While a call to a buffer is under way, another one is made only with `call_bytes_min` or more:
    small appends gather by themselves when they come faster than the buffer answers. At most
    `partition_frames_max` frames of a partition are under way: a log remembers that many answers.
    """

    inflight_appends_max: int
    append_timeout_ms: int
    # What no option sets.
    call_bytes_max: int = 16 << 20
    call_bytes_min: int = 64 << 10
    call_frames_max: int = 1_000
    partition_frames_max: int = ANSWERS_MAX


class Ticket(Protocol):
    """Receives the result of a frame; called exactly once a frame."""

    def settle(self, index: int, answer: Appended | PxrsError) -> None:
        """Frame `index` of the ticket is in the log, or was given up."""


@dataclass(eq=False, slots=True)
class Frame:
    """One frame under way. `sent`: the log may have it, under its present number or an earlier
    one."""

    partition: PartitionId
    header: bytes
    body: Any
    sequence: int
    deadline_ms: int
    ticket: Ticket
    index: int
    flying: bool = False
    sent: bool = False
    former: dict[int, int] = field(default_factory=dict)  # the sequences it had in former epochs

    @property
    def size_bytes(self) -> int:
        """What it weighs."""
        return len(self.header) + len(self.body)


@dataclass(eq=False, slots=True)
class Call:
    """Frames that go to one buffer in one call; `again`: some were refused before; `asking`: the
    number before some of them may never come, so that waiting for it makes no sense.
    """

    buffer: int
    frames: list[Frame]
    size_bytes: int
    again: bool = False
    asking: bool = False
    abandoned: bool = False

    def wait_ms(self, now_ms: int) -> int:
        """How long the buffer may hold the call: briefly at first, so that the reason is known
        here soon; and never so long that the answer would come after a deadline.
        """
        if self.asking:
            return 0
        longest = WAIT_AGAIN_MS if self.again else WAIT_FIRST_MS
        nearest_ms = min(frame.deadline_ms for frame in self.frames)
        return max(0, min(longest, nearest_ms - now_ms - ANSWER_MARGIN_MS))

    def arguments(self) -> list[OutFrame]:
        """What `Buffer.append` takes."""
        return [(frame.partition, frame.header, frame.body) for frame in self.frames]


@dataclass(slots=True)
class PendingFrames:
    """One partition's frames that are not acknowledged yet, oldest first.

    `doubt`: a frame was given up, and the log has not said yet whether it had come. `hole`: the log
    waits for a number that will never come. `heard`: the producer's position in the log at that
    time. `follows`: the mark that the first frame of the epoch carries.
    """

    epoch: int = 0
    next_sequence: int = 0
    frames: deque[Frame] = field(default_factory=deque)
    doubt: bool = False
    hole: bool = False
    heard: Heard | None = None
    follows: Mark | None = None
    wait_until_ms: int = 0
    refusals: int = 0
    refusal: PxrsError | None = None

    def flying(self) -> bool:
        """Whether an answer is awaited for any of them."""
        return any(frame.flying for frame in self.frames)
