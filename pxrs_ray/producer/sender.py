"""`Sender`: what a producer has sent and not yet seen acknowledged. Pure: the caller passes the
time.

Rules of this file. The frames of a partition are numbered and sent in order, several calls at a
time. The log takes them in that order and answers a repeat as before, so a call whose answer was
lost is simply repeated. A frame is given up only when its refusal is final or its deadline has
passed. Whether it is in the log, only the log can say: the later frames keep their numbers until
the log says that it waits for one that will never come (a frame was given up, or the log lost what
it had acknowledged). Then, once nothing of the partition is under way, they are numbered anew in a
new epoch, whose first frame names the producer's position in the log: when a call of the old epoch
has arrived meanwhile, the log refuses the frame and says what it has. A call that arrives even
later is fenced.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from pxrs_ray.backoff import pause_after
from pxrs_ray.data.frame import NOBODY, mark, pack_header, unpack_header
from pxrs_ray.data.protocol import Appended, Refused
from pxrs_ray.errors import (
    DeadlineExceeded,
    DiskFull,
    LogLost,
    NotFound,
    PartitionFull,
    ProducerFenced,
    PxrsError,
    SequenceGap,
)
from pxrs_ray.model import PartitionId
from pxrs_ray.producer.in_flight import Call as Call
from pxrs_ray.producer.in_flight import Frame, PendingFrames, Ticket
from pxrs_ray.producer.in_flight import SenderLimits as SenderLimits
from pxrs_ray.supervision.passing_trouble import passes

BACKOFF_FIRST_MS = 10
BACKOFF_MOST_MS = 1_000

# The log said no, and may say yes later: the frame is surely not in it.
_WAITED_FOR = (PartitionFull, DiskFull, LogLost, NotFound)


class Sender:
    """See the rules at the head of this file. Not thread-safe."""

    def __init__(self, buffers: int, limits: SenderLimits) -> None:
        self.buffers = buffers
        self._limits = limits
        self._pending: dict[PartitionId, PendingFrames] = {}
        self._calls: dict[int, set[Call]] = {index: set() for index in range(buffers)}
        self.pending_bytes = 0
        self.pending_frames = 0
        self.epochs_raised = 0
        self.fenced: ProducerFenced | None = None

    def numbers(self, partition: PartitionId) -> tuple[int, int]:
        """The epoch and the sequence that the partition's next frame must bear."""
        pending = self._pending.setdefault(partition, PendingFrames())
        return pending.epoch, pending.next_sequence

    def buffer_of(self, partition: PartitionId) -> int:
        """Which buffer holds the partition."""
        return partition % self.buffers

    def gathers(self, buffer: int) -> bool:
        """Whether the buffer will answer a call soon: what is small can gather until then."""
        return any(not call.again for call in self._calls[buffer])

    def is_small(self, size_bytes: int) -> bool:
        """Whether so much is too little for a call beside another one."""
        return size_bytes < self._limits.call_bytes_min

    def awaits(self) -> bool:
        """Whether any answer is to come."""
        return any(self._calls.values())

    def busy(self) -> bool:
        """Whether every buffer will answer a call soon."""
        return all(map(self.gathers, self._calls))

    def add(
        self,
        partition: PartitionId,
        header: bytes,
        body: Any,
        ticket: Ticket,
        index: int,
        now_ms: int,
    ) -> None:
        """Take a frame that bears `numbers(partition)`; given up at once when another producer of
        this identity took over.
        """
        if self.fenced is not None:
            ticket.settle(index, self.fenced)
            return
        pending = self._pending[partition]
        deadline_ms = now_ms + self._limits.append_timeout_ms
        frame = Frame(partition, header, body, pending.next_sequence, deadline_ms, ticket, index)
        if pending.follows is not None and pending.next_sequence == 0:
            self._number(pending, frame)
        pending.next_sequence += 1
        pending.frames.append(frame)
        self.pending_bytes += frame.size_bytes
        self.pending_frames += 1

    def calls(self, now_ms: int) -> Iterator[Call]:
        """Every call that should be made now; each must end in `answered` or `failed`."""
        waiting: dict[int, list[PendingFrames]] = {}
        for partition, pending in self._pending.items():
            if pending.wait_until_ms <= now_ms:
                pending.wait_until_ms = 0
            if pending.frames and not pending.hole and not pending.wait_until_ms:
                waiting.setdefault(self.buffer_of(partition), []).append(pending)
        for buffer, wanted in waiting.items():
            under_way = self._calls[buffer]
            while len(under_way) < self._limits.inflight_appends_max:
                call = self._fill(buffer, wanted)
                small = self.is_small(call.size_bytes)
                if not call.frames or (small and self.gathers(buffer)):
                    break
                for frame in call.frames:
                    frame.flying = frame.sent = True
                under_way.add(call)
                yield call

    def _fill(self, buffer: int, wanted: list[PendingFrames]) -> Call:
        """The frames that could go next; they do not fly yet."""
        call = Call(buffer, [], 0)
        for pending in wanted:
            flying = sum(frame.flying for frame in pending.frames)
            if pending.doubt and flying:
                continue  # one question at a time: a second call would come before the answer
            ready = (frame for frame in pending.frames if not frame.flying)
            for frame in islice(ready, max(0, self._limits.partition_frames_max - flying)):
                size = call.size_bytes + frame.size_bytes
                if call.frames and (
                    size > self._limits.call_bytes_max
                    or len(call.frames) >= self._limits.call_frames_max
                ):
                    return call
                call.again = call.again or pending.refusal is not None
                call.asking = call.asking or pending.doubt
                call.frames.append(frame)
                call.size_bytes = size
        return call

    def answered(self, call: Call, answers: Sequence[Appended | Refused], now_ms: int) -> None:
        """Take in what the buffer said to each frame of `call`."""
        if not self._land(call):
            return
        for frame, answer in zip(call.frames, answers, strict=True):
            pending = self._pending[frame.partition]
            if isinstance(answer, Appended):
                pending.refusals, pending.refusal = 0, None
                pending.doubt = pending.hole = False
                self._settle(pending, frame, answer)
            else:
                self._refused(pending, frame, answer, now_ms)
        if self.fenced is not None:
            self._end(self.fenced)
        for partition in {frame.partition for frame in call.frames}:
            self._close_up(self._pending[partition])

    def failed(self, call: Call, error: PxrsError, now_ms: int) -> None:
        """The call's outcome is unknown: make it again, until its frames' deadlines."""
        if not self._land(call):
            return
        for frame in call.frames:
            pending = self._pending[frame.partition]
            pending.refusal = error
            self._back_off(pending, now_ms)
        for partition in {frame.partition for frame in call.frames}:
            self._close_up(self._pending[partition])

    def _land(self, call: Call) -> bool:
        """The call is over; False when nobody waits for it any more."""
        if call.abandoned:
            return False
        self._calls[call.buffer].discard(call)
        for frame in call.frames:
            frame.flying = False
        return True

    def _refused(self, pending: PendingFrames, frame: Frame, answer: Refused, now_ms: int) -> None:
        error = answer.error
        if isinstance(error, SequenceGap):  # no trouble of its own: an earlier frame was refused
            # Where the log waits for a frame that we still have, that one is sent again, and this
            # one after it. A number below our oldest is never sent again: it leaves a hole.
            oldest = pending.frames[0].sequence if pending.frames else frame.sequence
            expected = answer.expected_sequence
            if expected is not None and (expected < oldest or frame.sequence == 0):
                # The number will never come; or the epoch does not follow what the log has.
                pending.hole, pending.heard = True, answer.heard
            return
        # A frame that was given up may be fenced by an epoch of our own, begun after it was given
        # up: nobody took over then.
        if isinstance(error, ProducerFenced) and frame in pending.frames:
            self.fenced = error
        pending.refusal = error
        if not isinstance(error, _WAITED_FOR) and not passes(error):
            self._give_up(pending, frame, error)
        elif now_ms < frame.deadline_ms:
            self._back_off(pending, now_ms)
        else:
            self._give_up(pending, frame, self._too_late(frame, error))

    def _back_off(self, pending: PendingFrames, now_ms: int) -> None:
        if pending.wait_until_ms <= now_ms:
            pending.refusals += 1
            pause_ms = pause_after(pending.refusals, BACKOFF_FIRST_MS, BACKOFF_MOST_MS)
            pending.wait_until_ms = now_ms + pause_ms

    def _give_up(self, pending: PendingFrames, frame: Frame, error: PxrsError) -> None:
        pending.doubt = True
        self._settle(pending, frame, error)

    def _settle(self, pending: PendingFrames, frame: Frame, answer: Appended | PxrsError) -> None:
        try:
            pending.frames.remove(frame)
        except ValueError:
            return  # given up before this answer came
        self.pending_bytes -= frame.size_bytes
        self.pending_frames -= 1
        frame.ticket.settle(frame.index, answer)

    def _end(self, error: ProducerFenced) -> None:
        """Give up everything: another producer of this identity took over."""
        for pending in self._pending.values():
            for frame in list(pending.frames):
                self._settle(pending, frame, error)
        for calls in self._calls.values():
            for call in calls:
                call.abandoned = True
            calls.clear()

    def _close_up(self, pending: PendingFrames) -> None:
        """Number the pending's frames from 0 in a new epoch, when that is due and nothing flies."""
        # A call that still flies may add to the log: what was heard of it must be the last word
        # before the frames are numbered anew.
        if not pending.hole or pending.flying():
            return
        for frame in list(pending.frames):
            if frame.sent:
                frame.former[pending.epoch] = frame.sequence
            self._settle_if_there(pending, frame)
        pending.hole = pending.doubt = False
        heard = pending.heard
        pending.follows = mark(heard.epoch, heard.next_sequence) if heard else mark(NOBODY, 0)
        pending.epoch += 1
        pending.next_sequence = 0
        self.epochs_raised += 1
        for frame in pending.frames:
            frame.sent = False
            self._number(pending, frame)
            pending.next_sequence += 1

    def _settle_if_there(self, pending: PendingFrames, frame: Frame) -> None:
        """A frame that came in under a former number is in the log already."""
        heard = pending.heard
        number = frame.former.get(heard.epoch) if heard is not None else None
        if heard is not None and number is not None and number < heard.next_sequence:
            base = dict(heard.places).get(number)
            messages = unpack_header(frame.header).messages
            self._settle(pending, frame, Appended(frame.partition, base, messages, repeated=True))

    def _number(self, pending: PendingFrames, frame: Frame) -> None:
        """Give a frame the pending's next number."""
        sequence = frame.sequence = pending.next_sequence
        header = unpack_header(frame.header)._replace(
            producer_epoch=pending.epoch,
            sequence=sequence,
            follows=pending.follows if sequence == 0 else None,
        )
        frame.header = pack_header(header)

    def expire(self, now_ms: int) -> None:
        """Give up every frame whose deadline has passed, and calls that hold only such frames."""
        for pending in self._pending.values():
            while pending.frames and pending.frames[0].deadline_ms <= now_ms:
                frame = pending.frames[0]
                self._give_up(pending, frame, self._too_late(frame, pending.refusal))
                frame.flying = False
        for calls in self._calls.values():
            for call in [c for c in calls if all(f.deadline_ms <= now_ms for f in c.frames)]:
                call.abandoned = True
                calls.discard(call)
        for pending in self._pending.values():
            self._close_up(pending)

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
        for pending in self._pending.values():
            if pending.frames:
                moments.append(pending.frames[0].deadline_ms)
                if pending.wait_until_ms and not pending.flying():
                    moments.append(pending.wait_until_ms)
        return min(moments, default=None)

    def trouble(self) -> str:
        """What holds frames up, for people; '' when nothing does."""
        held = {p: pending for p, pending in self._pending.items() if pending.frames}
        if not held:
            return ""
        fullest = max(held, key=lambda p: sum(f.size_bytes for f in held[p].frames))
        size = sum(f.size_bytes for f in held[fullest].frames)
        refusal = held[fullest].refusal
        why = f"its log says: {refusal}" if refusal is not None else "it has not answered yet"
        return f"partition {fullest} holds most of it, {size} bytes; {why}"
