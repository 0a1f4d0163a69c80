"""A task of a feed: the steps that ship, carried over a network that does what it likes.

Rules of this file. `partition_feed` says each next step and `FeedCalls` which call goes now and
what its answer means, as in `spark/routing.py` and `spark/appender.py`; here their calls travel,
late, twice or never.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any

from pxrs_ray.data.protocol import Fetched, OutFrame, Refused
from pxrs_ray.errors import BufferAway, PxrsError
from pxrs_ray.feed.facts import FeedState
from pxrs_ray.feed.feed_calls import FeedCall, FeedCalls
from pxrs_ray.feed.partition_feed import Append, Drain, FeedStep, Read, Settle, TellLedger
from pxrs_ray.model import Offset, PartitionId
from tests.simulation.feeding.fed_rows import fact_of, fact_told_apart, told_apart
from tests.simulation.simulator.buffer import Answer, BufferProcess, Found
from tests.simulation.simulator.frames import lines_in
from tests.simulation.simulator.world import Action, Process, call

ANSWER_MS = 400
READ_AGAIN_MS = 100
TAKES_MS = 3

Steps = Generator[FeedStep, Any, Any]
OnEnd = Callable[[object], None]


class Writer:
    """One process's calls to one queue: an `Appender`."""

    def __init__(
        self,
        process: Process,
        buffer: BufferProcess,
        queue: str,
        stall_ms: int,
        moved: Action,
    ) -> None:
        self.calls = FeedCalls("simulated", queue, 1, stall_ms, process.monotonic_ms())
        self._process, self._buffer = process, buffer
        self._moved = moved
        # What a call was refused with: told to who settles it.
        self.refusal: PxrsError | None = None
        # The newest attempt of each call: an answer to a former one is not looked at.
        self._attempts: dict[FeedCall, int] = {}

    def put(self, frames: Sequence[OutFrame]) -> None:
        """Send frames, where `FeedCalls` has room for them."""
        for made in self.calls.put(frames, self._process.monotonic_ms()):
            self._make(made)

    def close(self) -> None:
        """Listen to no answer any more."""
        self._attempts.clear()

    def _make(self, made: FeedCall) -> None:
        attempt = self._process.world.number()
        self._attempts[made] = attempt
        buffer, frames, wait_ms = self._buffer, list(made.frames), self.calls.wait_ms
        call(
            self._process,
            buffer,
            lambda respond: buffer.append(frames, wait_ms, respond),
            partial(self._answered, made, attempt),
        )
        self._process.after(wait_ms + ANSWER_MS, partial(self._answered, made, attempt, None))

    def _answered(self, made: FeedCall, attempt: int, answer: Answer) -> None:
        if self._attempts.get(made) != attempt:
            return
        del self._attempts[made]
        now_ms = self._process.monotonic_ms()
        try:
            if answer is None:
                over = self.calls.failed(made, BufferAway("no answer"), now_ms)
            else:
                over = self.calls.answered(made, answer, now_ms)
        except PxrsError as error:
            error.__traceback__ = None
            self.refusal = error
            over = True
        if not over:
            self._attempts[made] = 0
            self._process.after(max(1, made.not_before_ms - now_ms), partial(self._again, made))
        self._moved()

    def _again(self, made: FeedCall) -> None:
        if made in self._attempts:
            self._make(made)


class LedgerReader:
    """Reads a feed's facts from the log that is its ledger: `Ledger.read`."""

    def __init__(
        self,
        process: Process,
        buffer: BufferProcess,
        partition: PartitionId,
        feed: str,
        on_read: Callable[[FeedState], None],
    ) -> None:
        self._process, self._buffer = process, buffer
        self._partition, self._feed, self._on_read = partition, feed.encode(), on_read
        self._state = FeedState()
        self._attempt = 0
        self._fetch(0)

    def _fetch(self, offset: Offset) -> None:
        self._attempt = attempt = self._process.world.number()
        buffer, positions = self._buffer, {self._partition: (0, offset)}
        call(
            self._process,
            buffer,
            lambda respond: buffer.fetch("_feeds", 1, positions, respond),
            partial(self._answered, offset, attempt),
        )
        self._process.after(1_000, partial(self._answered, offset, attempt, None))

    def _answered(self, offset: Offset, attempt: int, found: Found) -> None:
        if attempt != self._attempt:
            return
        if found is None or any(isinstance(part, Refused) for part in found):
            self._attempt = 0
            self._process.after(READ_AGAIN_MS, partial(self._fetch, offset))
            return
        parts = [part for part in found if isinstance(part, Fetched)]
        if not parts or parts[0].next_offset == offset:
            self._attempt = 0
            self._on_read(self._state)
            return
        for line in lines_in(parts[0].chunks, offset):
            if line.key == self._feed:
                self._state.take(fact_of(line.message))
        self._fetch(parts[0].next_offset)


class Carrier:
    """Carries steps as a process, one set after the other; see the rules at the head of this file.

    `on_end` gets what the last of them came to, or the error.
    """

    def __init__(
        self,
        process: Process,
        buffer: BufferProcess,
        feed: str,
        number: int,
        ledger: PartitionId,
        names: tuple[str, str],
        stall_ms: int,
        on_end: OnEnd,
    ) -> None:
        self._process, self._buffer = process, buffer
        self._feed, self._number, self._ledger = feed, number, ledger
        queue, ledger_name = names
        self._queue = Writer(process, buffer, queue, stall_ms, self._go_on)
        # As `Ledger` has it, whatever the feed's patience.
        self._facts = Writer(process, buffer, ledger_name, 300_000, self._go_on)
        self._on_end: OnEnd | None = on_end
        self._left: list[Steps] = []
        self._steps: Steps | None = None
        self._step: FeedStep | None = None
        self._reading = False
        self._running = False

    def carry(self, *steps: Steps) -> None:
        """Do every step of these."""
        self._left = list(steps)
        self._advance(None)

    def _go_on(self) -> None:
        """Something has changed: perhaps the present step is over."""
        if self._running or self._step is None or self._reading:
            return
        answer: object = None
        step = self._step
        match step:
            case Append(frames):
                if self._waits(self._queue, self._queue.calls.crowded(frames)):
                    return
                self._queue.put([self._named(frame) for frame in frames])
            case TellLedger(frame):
                if self._waits(self._facts, self._facts.calls.crowded([frame])):
                    return
                fact = fact_told_apart(self._buffer, frame, self._feed, self._ledger)
                self._facts.put([fact])
            case Settle():
                if self._waits(self._facts, self._facts.calls.oldest()):
                    return
                answer = self._facts.calls.uncompared
            case Drain():
                if self._waits(self._queue, self._queue.calls.oldest()):
                    return
                answer = (self._queue.calls.appended, self._queue.calls.repeated)
            case Read():
                self._reading = True
                LedgerReader(self._process, self._buffer, self._ledger, self._feed, self._read)
                return
        self._step = None
        self._process.after(TAKES_MS, partial(self._advance, answer))

    def _waits(self, writer: Writer, call: FeedCall | None) -> bool:
        """Whether the step waits for this call; one that was refused ends the wait."""
        if call is not None and writer.refusal is not None:
            assert self._steps is not None
            self._take(partial(self._steps.throw, writer.refusal))
        return call is not None

    def _named(self, frame: OutFrame) -> OutFrame:
        return told_apart(self._buffer, frame, f"{self._feed} {self._number}")

    def _read(self, state: FeedState) -> None:
        self._reading = False
        self._advance(state.known(self._number))

    def _advance(self, answer: object) -> None:
        if self._on_end is None:
            return
        if self._steps is None:
            self._steps, answer = self._left.pop(0), None
        self._take(partial(self._steps.send, answer))

    def _take(self, move: Callable[[], FeedStep]) -> None:
        self._running = True
        try:
            self._step = move()
        except StopIteration as end:
            self._steps = self._step = None
            if self._left:
                self._process.after(TAKES_MS, partial(self._advance, None))
            else:
                self._end(end.value)
        except PxrsError as error:
            self._end(error)
        finally:
            self._running = False
        self._go_on()

    def _end(self, result: object) -> None:
        self._step = self._steps = None
        self._queue.close()
        self._facts.close()
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end(result)
