"""`SequentialWorker`: works one message after the other, or one batch after the other.

Rules of this file. The worker's thread alone calls the handler, in order. It reports its progress
in plain attributes that the event loop reads. A message that fails is tried again before any other.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from dataclasses import replace
from sys import getrefcount
from time import monotonic

from pxrs_ray.actors.consumer.call_record import RecordSlot
from pxrs_ray.actors.consumer.call_record_file import EMPTY
from pxrs_ray.actors.consumer.handler import Handler
from pxrs_ray.actors.consumer.worker import Failure, Worker, WorkerCallbacks
from pxrs_ray.config import GroupConfig, Ordered
from pxrs_ray.consumer.delivery import (
    OURS_ALONE,
    DeliveredBatch,
    Delivery,
    DeliveryContext,
    blank_delivery,
    context_at,
)
from pxrs_ray.data.batch import Batch, Cell
from pxrs_ray.model import Grant, Offset, Progress
from pxrs_ray.processing.done_ranges import DoneRanges
from pxrs_ray.processing.retry_rules import (
    FailurePolicy,
    RetryAfter,
    RetryRules,
    after_failure,
    backoff,
)
from pxrs_ray.processing.suspects import Suspect, decode_detail, encode_detail
from pxrs_ray.supervision.forks import leave_if_child
from pxrs_ray.supervision.restart_rules import told
from pxrs_ray.supervision.supervisor import as_ordinary

logger = logging.getLogger(__name__)

# For how long one partition's messages may have the loop of an async handler to themselves.
LOOP_TURN_S = 0.002

# The message that was not begun, or has failed with this error.
StoppedAt = tuple[Delivery, BaseException | None]


class SequentialWorker(Worker):
    """Works one partition strictly in order."""

    def __init__(
        self,
        grant: Grant,
        shared: DeliveryContext,
        handler: Handler,
        rules: RetryRules,
        callbacks: WorkerCallbacks,
        config: GroupConfig,
        before: Worker | None,
    ) -> None:
        self.next_offset: Offset = grant.checkpoint
        # Once this offset is done a commit is due.
        self._kick_from = grant.checkpoint + config.commit_records - 1
        self._slot_read: RecordSlot | None = None
        super().__init__(grant, shared, handler, callbacks, config, before)
        _, self._failing, self._suspicion = decode_detail(grant.checkpoint, grant.detail)
        self.attempts = self._failing.pop(grant.checkpoint, grant.attempts)
        # Behind this offset nothing is known of any message.
        self._known_end = max(self._suspicion.end, *(o + 1 for o in self._failing), 0)
        self._record = callbacks.in_hand
        self._slot_read = self._slot = self._record.slot(grant.partition, grant.epoch)
        self._began_s = time.monotonic()
        self._rules = rules
        mode = config.processing
        assert isinstance(mode, Ordered), "the other modes have schedulers"
        self._commit_mode = mode.commit_mode

    def configure(self, config: GroupConfig) -> None:
        """As any worker; where less may stay uncommitted, that holds from here on."""
        super().configure(config)
        reached = max(self.next_offset, self._in_hand())
        self._kick_from = min(self._kick_from, reached + config.commit_records - 1)

    def progress(self) -> Progress:
        """How far it is; the attempts are those of the message that is next."""
        while True:
            offset, attempts = self.next_offset, self.attempts
            suspicion, failing, in_hand = self._suspicion, self._failing, self._in_hand()
            if offset != self.next_offset:
                continue
            if in_hand > offset:  # all before it is done, and it has not failed yet
                offset, attempts = in_hand, 0
            if offset >= self._known_end:
                return Progress(offset, attempts)
            later = {o: n for o, n in failing.items() if o > offset}
            detail = encode_detail(DoneRanges(offset), later, suspicion.above(offset))
            # It may be next, and not begun: then nobody has looked up its attempts yet.
            return Progress(offset, max(attempts, failing.get(offset, 0)), detail)

    def _in_hand(self) -> Offset:
        """The message whose call is under way, as the record has it; below 0: none."""
        slot = self._slot_read
        found: Offset = EMPTY if slot is None else slot.words[slot.at]
        # Looked at afterwards: a slot that was given back may be another partition's already.
        return found if self._slot_read is slot else EMPTY

    def _work_on(self) -> None:
        try:
            while (taken := self._take()) is not None:
                if isinstance(taken, int):
                    self.next_offset = taken
                elif not self._work(taken):
                    return
        finally:
            self._slot_read = None
            self._callbacks.in_hand.give_back(self._slot)

    def _take(self) -> Batch | Offset | None:
        leave_if_child()
        with self._wake:
            while not self._queue and not self._stopping.is_set():
                self._wake.wait()
            return None if self._stopping.is_set() else self._popped()

    def _work(self, batch: Batch) -> bool:
        """Process one batch; False when the worker must end."""
        if batch.base_offset != self.next_offset:
            raise RuntimeError(f"offset {batch.base_offset} came, {self.next_offset} is next")
        if not self._handler.wants_batch:
            if not self._work_one_by_one(batch):
                return False
        else:
            for part in self._parts(batch):
                if not self._lease.may_begin(self._stopping) or not self._work_part(part):
                    return False
                self.next_offset = part.end_offset
        if self._commit_mode == "batch":
            self._callbacks.checkpoint_now(self)
        elif self.next_offset > self._kick_from:
            self._kick()
        return True

    def _parts(self, batch: Batch) -> Iterator[Batch]:
        """The batch as it is delivered: a message with a note of its own comes alone."""
        start = batch.base_offset
        for offset in range(start, min(batch.end_offset, self._known_end)):
            suspect = self._suspicion.of(offset)
            if offset in self._failing or (suspect is not None and suspect.apart):
                if start < offset:
                    yield batch.slice(start - batch.base_offset, offset - batch.base_offset)
                yield batch.slice(offset - batch.base_offset, offset + 1 - batch.base_offset)
                start = offset + 1
        if start < batch.end_offset:
            yield batch.slice(start - batch.base_offset)

    def _work_part(self, part: Batch) -> bool:
        if part.base_offset < self._known_end and len(part) == 1:
            return self._deliver_known(DeliveredBatch(part, self._shared), part)
        return self._deliver(DeliveredBatch(part, self._shared), part)

    def _work_one_by_one(self, batch: Batch) -> bool:
        """Process each message; False when the worker must end."""
        cells = batch.cells()
        # A loop must not wait for a commit: with one a message, each goes there by itself.
        on_loop = self._handler.runs_on_loop and self._commit_mode != "message"
        run = self._call_each_on_loop if on_loop else self._call_each
        while (stopped_at := run(cells, batch)) is not None:
            message, error = stopped_at
            offset = message.offset
            if not self._deliver_apart(message, _one(batch, offset), error):
                return False
            self._pass(offset + 1)
        return True

    def _known_or_failed_end(self) -> Offset:
        """Below this offset a message may need more than to be called with."""
        return max(self._known_end, self.next_offset + 1 if self.attempts else 0)

    def _call_each(self, cells: Iterator[Cell], batch: Batch) -> StoppedAt | None:
        """Call the handler with one message after the other, for as long as there is nothing else
        to do about them; the first of another kind is answered, not begun or failed.

        Between any two messages it is looked whether the next may begin: that is the lease's end,
        our own, and the gate of those in hand, in as few steps as there are. This is the hot path:
        `_deliver` does the same for one message, and all that the others need. Its one object is
        filled again when nobody holds it any more: see `deliveries`. How far it is, `progress`
        reads in the record: what is in hand comes after all that is done.
        """
        call, lease, slot, record = self._handler.call, self._lease, self._slot, self._record
        words, at, now_s, known_end = slot.words, slot.at, monotonic, self._known_or_failed_end()
        each_commits, references = self._commit_mode == "message", getrefcount
        message = blank_delivery(batch, self._shared)
        error: BaseException | None = None
        for offset, key, payload, beside in cells:
            message.offset = offset
            message.key = key
            message.payload = payload
            if beside is not None:
                message.timestamp_ms, message.headers, message.id = beside
            if now_s() > lease.begin_until_s or self._is_ending or offset < known_end:
                break
            # What `Slot.begin` does, and as its end the next message.
            words[at] = offset
            if record.closed:
                break
            try:
                call(message)
            except BaseException as raised:  # noqa: BLE001 - `sys.exit()` raises one too
                error = raised
                break
            if offset >= self._kick_from or each_commits:
                self._pass(offset + 1)
            if references(message) != OURS_ALONE:
                message = blank_delivery(batch, self._shared)
        else:
            self.next_offset = batch.end_offset
            slot.end()
            return None
        self.next_offset = offset
        slot.end()
        return message, error

    def _call_each_on_loop(self, cells: Iterator[Cell], batch: Batch) -> StoppedAt | None:
        return self._handler.on_loop(self._await_each(cells, batch))

    async def _await_each(self, cells: Iterator[Cell], batch: Batch) -> StoppedAt | None:
        """As `_call_each`, on the event loop of an async handler: one way there and back for all
        messages of a batch. Other partitions have turns between the messages of this one."""
        call, lease, slot, record = self._handler.function, self._lease, self._slot, self._record
        words, at, now_s, known_end = slot.words, slot.at, monotonic, self._known_or_failed_end()
        turn_end_s, references = now_s() + LOOP_TURN_S, getrefcount
        message = blank_delivery(batch, self._shared)
        error: BaseException | None = None
        for offset, key, payload, beside in cells:
            if (at_s := now_s()) > turn_end_s:
                # What was in hand is over, and nothing else is yet.
                self.next_offset = offset
                slot.end()
                await asyncio.sleep(0)
                at_s = now_s()
                turn_end_s = at_s + LOOP_TURN_S
            message.offset = offset
            message.key = key
            message.payload = payload
            if beside is not None:
                message.timestamp_ms, message.headers, message.id = beside
            if at_s > lease.begin_until_s or self._is_ending or offset < known_end:
                break
            words[at] = offset
            if record.closed:
                break
            try:
                await call(message)
            except BaseException as raised:  # noqa: BLE001 - a message fails, whatever is raised
                leave_if_child(raised)
                error = as_ordinary(raised)
                break
            if offset >= self._kick_from:
                self._pass(offset + 1)
            if references(message) != OURS_ALONE:
                message = blank_delivery(batch, self._shared)
        else:
            self.next_offset = batch.end_offset
            slot.end()
            return None
        self.next_offset = offset
        slot.end()
        return message, error

    def _pass(self, to: Offset) -> None:
        """All below `to` is done: let it be committed where that is due."""
        self.next_offset = to
        if self._commit_mode == "message":
            self._slot.end()
            self._callbacks.checkpoint_now(self)
        elif to > self._kick_from:
            self._kick()

    def _deliver_apart(
        self, argument: Delivery, message: Batch, error: BaseException | None
    ) -> bool:
        """What needs more than a call: it failed, or may fail, or may not begin now."""
        if error is None:
            if not self._lease.may_begin(self._stopping):
                return False
            if message.base_offset < self._known_end:
                return self._deliver_known(argument, message)
        return self._deliver(argument, message, error)

    def _deliver_known(self, argument: Delivery | DeliveredBatch, message: Batch) -> bool:
        """As `_deliver`, for one message that has failed before, or was in hand at a death."""
        offset = message.base_offset
        self.attempts = self._failing.get(offset, self.attempts)
        suspect = self._suspicion.of(offset)
        if suspect is not None and suspect.is_doomed(self.attempts, self._rules.attempts_max):
            if not self._give_up(suspect.told(), self._rules.policy, message):
                return False
            self._suspicion = self._suspicion.without(offset)
            return True
        if suspect is not None:
            left_s = self._began_s + suspect.pause_ms / 1_000 - time.monotonic()
            self._stopping.wait(max(0.0, left_s))
        return self._deliver(argument, message, suspect=suspect)

    def _kick(self) -> None:
        self._kick_from = self.next_offset + self._commit_records - 1
        self._callbacks.checkpoint_soon()

    def _deliver(
        self,
        argument: Delivery | DeliveredBatch,
        messages: Batch,
        failed_before: BaseException | None = None,
        suspect: Suspect | None = None,
    ) -> bool:
        """Call until it succeeds or the policy has dealt with it; False: the worker must end."""
        error, first, end = failed_before, messages.base_offset, messages.end_offset
        while not self._stopping.is_set():
            if error is not None and not self._is_void(error):
                if not self._judge(error, messages):
                    return False
                if self.attempts == 0:
                    return True
            may_begin = self._lease.may_begin
            if not may_begin(self._stopping):
                return False
            self._shared.attempt = self.attempts + 1
            begun = self._slot.begin(first, end, self._stopping, suspect)
            if not (begun and may_begin(self._stopping)):
                return False
            try:
                self._handler.call(argument)
            except BaseException as raised:  # noqa: BLE001 - also what `sys.exit()` raises
                error = raised
            else:
                self.attempts = 0
                self._shared.attempt = 1
                return True
            finally:
                self._slot.end()
                if suspect is not None:
                    # Its call has ended: it is not what killed a process.
                    self._suspicion, suspect = self._suspicion.without(first), None
        return False

    def _judge(self, error: BaseException, messages: Batch) -> bool:
        """Count a failure and do what follows; attempts are 0 again when it has been dealt with."""
        leave_if_child(error)
        self.attempts += 1
        context = context_at(self._shared, messages.base_offset)
        verdict = after_failure(self._rules, self.attempts)
        if isinstance(verdict, RetryAfter):
            logger.warning("%s failed, again in %d ms: %s", context, verdict.delay_ms, told(error))
            self._stopping.wait(verdict.delay_ms / 1_000)
            return not self._stopping.is_set()
        return self._give_up(told(error), verdict, messages)

    def _give_up(self, error: str, verdict: FailurePolicy, messages: Batch) -> bool:
        """Do what the policy says with what is not tried again; False: the worker must end."""
        context = replace(context_at(self._shared, messages.base_offset), attempt=self.attempts)
        failure = Failure(context, error, verdict)
        logger.error("%s failed for good (%s): %s", context, verdict.value, error)
        if verdict is FailurePolicy.STOP:
            self.failed = failure
            self._stopping.wait()
            return False
        if not self._kept(failure, messages):
            return False
        self.attempts = 0
        self._shared.attempt = 1
        return True

    def _kept(self, failure: Failure, messages: Batch) -> bool:
        """Have the consumer store what is given up; waits while it cannot. False: `stopping`."""
        tries = 0
        while not self._stopping.is_set():
            try:
                self._callbacks.give_up(self, failure, messages)
            except Exception as error:  # noqa: BLE001 - whatever it is, the message stays ours
                tries += 1
                self._note_waiting(failure, error)
                self._stopping.wait(backoff(self._rules, tries) / 1_000)
            else:
                self.waiting = None
                return True
        return False


def _one(batch: Batch, offset: Offset) -> Batch:
    index = offset - batch.base_offset
    return batch.slice(index, index + 1)
