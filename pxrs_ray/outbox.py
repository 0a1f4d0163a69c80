"""`Outbox`: what a producer has sent and not yet seen acknowledged. Pure: told the time.

Rules of this file. The frames of a partition are numbered and sent in order, several calls at a
time; the log takes them in that order and answers a repeat as before, so a call whose answer was
lost is simply made again. A frame is given up only when its refusal is final or its deadline has
passed. Numbers that the log will never see (a frame was given up, or the log lost what it had
acknowledged) are closed up under a new producer epoch, once nothing of the partition is under
way: a call of the old epoch that arrives even later is fenced.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol

from pxrs_ray.errors import (
    DeadlineExceeded,
    DiskFull,
    LogLost,
    NotFound,
    PartitionFull,
    PxrsError,
    SequenceGap,
)
from pxrs_ray.log.frame import pack_header, unpack_header
from pxrs_ray.log.producer_state import ANSWERS_MAX
from pxrs_ray.log.wire import Appended, OutFrame, Refused
from pxrs_ray.model import PartitionId

BACKOFF_FIRST_MS = 10
BACKOFF_MOST_MS = 1_000
WAIT_FIRST_MS = 100
WAIT_AGAIN_MS = 2_000
ANSWER_MARGIN_MS = 200
_WAITED_FOR = (PartitionFull, DiskFull, LogLost, NotFound)


@dataclass(frozen=True, slots=True)
class OutboxLimits:
    """How much may be under way: calls and bytes a buffer; and how long a frame is tried.

    While a call to a buffer is under way, another one is made only with `call_bytes_min` or more:
    small appends gather by themselves when they come faster than the buffer answers. At most
    `lane_frames_max` frames of a partition are under way, no more than a log remembers answers.
    Without `renumber`, a frame that is given up takes the partition's later ones with it: for
    producers that will send the very same numbers again.
    """

    calls_max: int = 8
    call_bytes_max: int = 16 << 20
    call_bytes_min: int = 64 << 10
    call_frames_max: int = 1_000
    lane_frames_max: int = ANSWERS_MAX
    append_timeout_ms: int = 30_000
    renumber: bool = True


class Ticket(Protocol):
    """Whoever wants to know what became of a frame; called exactly once a frame."""

    def settle(self, index: int, answer: Appended | PxrsError) -> None:
        """Frame `index` of the ticket is in the log, or was given up."""


@dataclass(eq=False, slots=True)
class Frame:
    """One frame on its way."""

    partition: PartitionId
    header: bytes
    body: Any
    sequence: int
    deadline_ms: int
    ticket: Ticket
    index: int
    flying: bool = False

    @property
    def size_bytes(self) -> int:
        """What it weighs."""
        return len(self.header) + len(self.body)


@dataclass(eq=False, slots=True)
class Call:
    """Frames that go to one buffer in one call; `again`: some were refused before."""

    buffer: int
    frames: list[Frame]
    size_bytes: int
    again: bool = False
    abandoned: bool = False

    def wait_ms(self, now_ms: int) -> int:
        """How long the buffer may hold the call: briefly at first, so that the reason is known
        here soon; and never so long that the answer would come after a deadline.
        """
        longest = WAIT_AGAIN_MS if self.again else WAIT_FIRST_MS
        nearest_ms = min(frame.deadline_ms for frame in self.frames)
        return max(0, min(longest, nearest_ms - now_ms - ANSWER_MARGIN_MS))

    def arguments(self) -> list[OutFrame]:
        """What `Buffer.append` takes."""
        return [(frame.partition, frame.header, frame.body) for frame in self.frames]


@dataclass(slots=True)
class _Lane:
    """One partition's frames, oldest first."""

    epoch: int = 0
    next_sequence: int = 0
    frames: deque[Frame] = field(default_factory=deque)
    close_up: bool = False
    wait_until_ms: int = 0
    backoff_ms: int = BACKOFF_FIRST_MS
    refusal: PxrsError | None = None

    def flying(self) -> bool:
        return any(frame.flying for frame in self.frames)


class Outbox:
    """See the rules at the head of this file. Not thread-safe."""

    def __init__(self, buffers: int, limits: OutboxLimits) -> None:
        self._buffers = buffers
        self._limits = limits
        self._lanes: dict[PartitionId, _Lane] = {}
        self._calls: dict[int, set[Call]] = {index: set() for index in range(buffers)}
        self.pending_bytes = 0
        self.pending_frames = 0
        self.epochs_raised = 0

    def numbers(self, partition: PartitionId) -> tuple[int, int]:
        """The epoch and the sequence that the partition's next frame must bear."""
        lane = self._lanes.setdefault(partition, _Lane())
        return lane.epoch, lane.next_sequence

    def busy(self) -> bool:
        """Whether every buffer will answer a call soon: what is small can gather until then."""
        return all(any(not call.again for call in calls) for calls in self._calls.values())

    def add(
        self,
        partition: PartitionId,
        header: bytes,
        body: Any,
        ticket: Ticket,
        index: int,
        now_ms: int,
    ) -> None:
        """Take a frame that bears `numbers(partition)`."""
        lane = self._lanes[partition]
        deadline_ms = now_ms + self._limits.append_timeout_ms
        frame = Frame(partition, header, body, lane.next_sequence, deadline_ms, ticket, index)
        lane.next_sequence += 1
        lane.frames.append(frame)
        self.pending_bytes += frame.size_bytes
        self.pending_frames += 1

    def calls(self, now_ms: int) -> Iterator[Call]:
        """Every call that should be made now; each must end in `answered` or `failed`."""
        waiting: dict[int, list[_Lane]] = {}
        for partition, lane in self._lanes.items():
            if lane.wait_until_ms <= now_ms:
                lane.wait_until_ms = 0
            if lane.frames and not lane.close_up and not lane.wait_until_ms:
                waiting.setdefault(partition % self._buffers, []).append(lane)
        for buffer, lanes in waiting.items():
            under_way = self._calls[buffer]
            while len(under_way) < self._limits.calls_max:
                call = self._fill(buffer, lanes)
                answer_soon = any(not other.again for other in under_way)
                small = call.size_bytes < self._limits.call_bytes_min
                if not call.frames or (answer_soon and small):
                    break
                for frame in call.frames:
                    frame.flying = True
                under_way.add(call)
                yield call

    def _fill(self, buffer: int, lanes: list[_Lane]) -> Call:
        """The frames that could go next; they do not fly yet."""
        call = Call(buffer, [], 0)
        for lane in lanes:
            flying = sum(frame.flying for frame in lane.frames)
            ready = (frame for frame in lane.frames if not frame.flying)
            for frame in islice(ready, max(0, self._limits.lane_frames_max - flying)):
                size = call.size_bytes + frame.size_bytes
                if call.frames and (
                    size > self._limits.call_bytes_max
                    or len(call.frames) >= self._limits.call_frames_max
                ):
                    return call
                call.again = call.again or lane.refusal is not None
                call.frames.append(frame)
                call.size_bytes = size
        return call

    def answered(self, call: Call, answers: Sequence[Appended | Refused], now_ms: int) -> None:
        """Take in what the buffer said to each frame of `call`."""
        if not self._land(call):
            return
        for frame, answer in zip(call.frames, answers, strict=True):
            lane = self._lanes[frame.partition]
            if isinstance(answer, Appended):
                lane.backoff_ms, lane.refusal = BACKOFF_FIRST_MS, None
                self._settle(lane, frame, answer)
            else:
                self._refused(lane, frame, answer, now_ms)
        for partition in {frame.partition for frame in call.frames}:
            self._close_up(self._lanes[partition])

    def failed(self, call: Call, error: PxrsError, now_ms: int) -> None:
        """The call's outcome is unknown: make it again, until its frames' deadlines."""
        if not self._land(call):
            return
        for frame in call.frames:
            lane = self._lanes[frame.partition]
            lane.refusal = error
            self._back_off(lane, now_ms)
        for partition in {frame.partition for frame in call.frames}:
            self._close_up(self._lanes[partition])

    def _land(self, call: Call) -> bool:
        """The call is over; False when nobody waits for it any more."""
        if call.abandoned:
            return False
        self._calls[call.buffer].discard(call)
        for frame in call.frames:
            frame.flying = False
        return True

    def _refused(self, lane: _Lane, frame: Frame, answer: Refused, now_ms: int) -> None:
        error = answer.error
        if isinstance(error, SequenceGap):  # no trouble of its own: an earlier frame was refused
            oldest = lane.frames[0].sequence if lane.frames else frame.sequence
            if answer.expected_sequence is not None and answer.expected_sequence < oldest:
                # The log lost what it had acknowledged.
                if self._limits.renumber:
                    lane.close_up = True
                else:
                    self._give_up(lane, frame, error)
            return
        lane.refusal = error
        if isinstance(error, _WAITED_FOR) and now_ms < frame.deadline_ms:
            self._back_off(lane, now_ms)
        else:
            self._give_up(lane, frame, error)

    def _back_off(self, lane: _Lane, now_ms: int) -> None:
        if lane.wait_until_ms <= now_ms:
            lane.wait_until_ms = now_ms + lane.backoff_ms
            lane.backoff_ms = min(lane.backoff_ms * 2, BACKOFF_MOST_MS)

    def _give_up(self, lane: _Lane, frame: Frame, error: PxrsError) -> None:
        if self._limits.renumber:
            lane.close_up = True
            self._settle(lane, frame, error)
            return
        for each in list(lane.frames):
            self._settle(lane, each, error)

    def _settle(self, lane: _Lane, frame: Frame, answer: Appended | PxrsError) -> None:
        try:
            lane.frames.remove(frame)
        except ValueError:
            return  # given up before this answer came
        self.pending_bytes -= frame.size_bytes
        self.pending_frames -= 1
        frame.ticket.settle(frame.index, answer)

    def _close_up(self, lane: _Lane) -> None:
        """Number the lane's frames from 0 in a new epoch, when that is due and nothing flies."""
        if not lane.close_up or lane.flying():
            return
        lane.close_up = False
        lane.epoch += 1
        lane.next_sequence = 0
        self.epochs_raised += 1
        for frame in lane.frames:
            header = unpack_header(frame.header)
            header = header._replace(producer_epoch=lane.epoch, sequence=lane.next_sequence)
            frame.header, frame.sequence = pack_header(header), lane.next_sequence
            lane.next_sequence += 1

    def expire(self, now_ms: int) -> None:
        """Give up every frame whose deadline has passed, and calls that hold only such frames."""
        for lane in self._lanes.values():
            while lane.frames and lane.frames[0].deadline_ms <= now_ms:
                frame = lane.frames[0]
                self._give_up(lane, frame, self._too_late(frame, lane.refusal))
                frame.flying = False
        for calls in self._calls.values():
            for call in [c for c in calls if all(f.deadline_ms <= now_ms for f in c.frames)]:
                call.abandoned = True
                calls.discard(call)
        for lane in self._lanes.values():
            self._close_up(lane)

    def _too_late(self, frame: Frame, refusal: PxrsError | None) -> PxrsError:
        if isinstance(refusal, _WAITED_FOR) and not frame.flying:
            return refusal
        return DeadlineExceeded(
            f"partition {frame.partition} did not acknowledge an append within "
            f"{self._limits.append_timeout_ms} ms: it may or may not be in the log"
            + (f" (last trouble: {refusal})" if refusal is not None else "")
        )

    def next_look_ms(self) -> int | None:
        """When `calls` or `expire` may have something new without any answer; None: never."""
        moments = []
        for lane in self._lanes.values():
            if lane.frames:
                moments.append(lane.frames[0].deadline_ms)
                if lane.wait_until_ms and not lane.flying():
                    moments.append(lane.wait_until_ms)
        return min(moments, default=None)

    def trouble(self) -> str:
        """What holds frames up, for people; '' when nothing does."""
        held = {p: lane for p, lane in self._lanes.items() if lane.frames}
        if not held:
            return ""
        fullest = max(held, key=lambda p: sum(f.size_bytes for f in held[p].frames))
        size = sum(f.size_bytes for f in held[fullest].frames)
        refusal = held[fullest].refusal
        why = f"its log says: {refusal}" if refusal is not None else "it has not answered yet"
        return f"partition {fullest} holds most of it, {size} bytes; {why}"
