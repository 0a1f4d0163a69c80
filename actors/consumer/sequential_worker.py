"""`SequentialWorker`: works one message after the other, or one batch after the other.

Rules of this file. The worker's thread alone calls the handler, in order: what it does next, and
what follows, an `InOrder` says, step by step. A run of messages of which nothing is known is one
step. How far it is may be asked from any thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import replace
from sys import getrefcount
from time import monotonic

from pxrs_ray.actors.consumer.call_gate import CallGate
from pxrs_ray.actors.consumer.call_record import RecordEntry
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
    deliveries,
)
from pxrs_ray.data.batch import Batch, Cell
from pxrs_ray.errors import RetryAfter
from pxrs_ray.model import Grant, Offset, Progress
from pxrs_ray.processing.delay_moves import NotDue
from pxrs_ray.processing.in_order import (
    CallOne,
    CommitNow,
    GiveUp,
    Halt,
    InOrder,
    InOrderStep,
    PauseUntil,
    RunOn,
    TakeBatch,
)
from pxrs_ray.processing.retry_rules import RetryRules, outcome
from pxrs_ray.supervision.forks import leave_if_child
from pxrs_ray.supervision.restart_rules import told
from pxrs_ray.supervision.supervisor import as_ordinary

logger = logging.getLogger(__name__)

# For how long one partition's messages may have the loop of an async handler to themselves.
LOOP_TURN_S = 0.002

# The message that was not begun, or has failed with this error.
StoppedAt = tuple[Offset, BaseException | None]


class SequentialWorker(Worker):
    """Works one partition strictly in order."""

    _sleeps_at_first = True

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
        mode = config.processing
        assert isinstance(mode, Ordered), "the other modes have schedulers"
        self._order = InOrder(
            grant.progress,
            rules,
            mode.commit_mode,
            config.commit_records,
            callbacks.checkpoint_soon,
            wants_batch=handler.wants_batch,
            began_s=monotonic(),
            apart=handler.gate is not None,
        )
        self._entry_read: RecordEntry | None = None
        super().__init__(grant, shared, handler, callbacks, config, before)
        self._record = callbacks.in_hand
        self._entry_read = self._entry = self._record.entry(grant.partition, grant.epoch)
        # The batch in work, and what is left of its messages from `_cells_from` on.
        self._batch: Batch
        self._cells: Iterator[Cell] = iter(())
        self._cells_from: Offset = -1

    @property
    def next_offset(self) -> Offset:
        """The message that is next, or behind those of a run."""
        return self._order.next_offset

    def configure(self, config: GroupConfig) -> None:
        """As any worker; where less may stay uncommitted, that holds from here on."""
        super().configure(config)
        self._order.configure(config.commit_records, self._in_hand())

    def progress(self) -> Progress:
        """How far it is; the attempts are those of the message that is next."""
        return self._order.progress(self._in_hand)

    def _in_hand(self) -> Offset:
        """The message whose call is under way, as the record has it; below 0: none."""
        entry = self._entry_read
        found: Offset = EMPTY if entry is None else entry.words[entry.at]
        # Looked at afterwards: an entry that was given back may be another partition's already.
        return found if self._entry_read is entry else EMPTY

    # --- steps ------------------------------------------------------------------------------------

    def _work_on(self) -> None:
        try:
            while self._make(self._order.next(monotonic())):
                pass
        finally:
            self._entry_read = None
            self._callbacks.in_hand.give_back(self._entry)

    def _make(self, step: InOrderStep) -> bool:
        """Make one step; False when the worker must end."""
        if isinstance(step, CommitNow):
            # Also at the end: where the partition stays, nobody else commits what is done.
            self._callbacks.checkpoint_now(self)
            return True
        if self._stopping.is_set():
            return False
        match step:
            case RunOn():
                self._run_on(step)
            case TakeBatch():
                return self._take()
            case CallOne():
                return self._call_one(step)
            case PauseUntil():
                self._stopping.wait(max(0.0, step.until_s - monotonic()))
            case GiveUp():
                self._keep(step)
            case Halt():
                self.failed = self._failure(step.given_up)
                self._log(self.failed)
                self._stopping.wait()
        return True

    def _take(self) -> bool:
        leave_if_child()
        with self._wake:
            while not self._queue and not self._stopping.is_set():
                self._wake.wait()
            if self._stopping.is_set():
                return False
            taken = self._popped()
        if isinstance(taken, int):
            self._order.skipped(taken)
            return True
        self._order.took(taken.base_offset, taken.end_offset)
        self._batch, self._cells_from = taken, -1
        return True

    def _part(self, first: Offset, end: Offset) -> Batch:
        base = self._batch.base_offset
        return self._batch.slice(first - base, end - base)

    # --- a run ------------------------------------------------------------------------------------

    def _run_on(self, step: RunOn) -> None:
        """Call with one message after the other, and tell how far that came."""
        if self._cells_from != step.first:
            whole = step.first == self._batch.base_offset
            part = self._batch if whole else self._part(step.first, step.end)
            self._cells = part.cells()
        run = self._call_each_on_loop if self._handler.runs_on_loop else self._call_each
        stopped_at = run(self._cells, self._batch)
        if stopped_at is None:
            self._order.ran(step.end, None, monotonic())
            return
        offset, error = stopped_at
        self._cells_from = offset + 1
        if error is None or self._is_void(error):
            self._order.ran(offset, None, monotonic())
            return
        leave_if_child(error)
        self._order.ran(offset, outcome(error), monotonic())
        self._tell_failed(offset, error)

    def _call_each(self, cells: Iterator[Cell], batch: Batch) -> StoppedAt | None:
        """Call the handler with one message after the other, for as long as there is nothing else
        to do about them; the first of another kind is answered, not begun or failed.

        Between any two messages it is looked whether the next may begin: that is the lease's end,
        our own, and the gate of those in hand, in as few steps as there are. This is the hot path:
        `_call_one` does the same for one message, and all that the others need. Its one object is
        filled again when nobody holds it any more: see `deliveries`. How far it is, `progress`
        reads in the record: what is in hand comes after all that is done.
        """
        call, lease, entry, record = self._handler.call, self._lease, self._entry, self._record
        words, at, now_s, order = entry.words, entry.at, monotonic, self._order
        references = getrefcount
        message = blank_delivery(batch, self._shared)
        error: BaseException | None = None
        for offset, key, payload, beside in cells:
            message.offset = offset
            message.key = key
            message.payload = payload
            if beside is not None:
                message.timestamp_ms, message.headers, message.id = beside
            if now_s() > lease.begin_until_s or self._is_ending:
                break
            # What `RecordEntry.begin` does, and as its end the next message.
            words[at] = offset
            if record.closed:
                break
            try:
                call(message)
            except BaseException as raised:  # noqa: BLE001 - `sys.exit()` raises one too
                error = raised
                break
            if offset >= order.kick_from:
                order.passed(offset + 1)
            if references(message) != OURS_ALONE:
                message = blank_delivery(batch, self._shared)
        else:
            offset = batch.end_offset
        return self._ran_to(offset, error)

    def _ran_to(self, offset: Offset, error: BaseException | None) -> StoppedAt | None:
        """Nothing is in hand any more: the run came to its end, or to this message."""
        self._order.next_offset = offset
        self._entry.end()
        return None if offset == self._batch.end_offset else (offset, error)

    def _call_each_on_loop(self, cells: Iterator[Cell], batch: Batch) -> StoppedAt | None:
        return self._handler.on_loop(self._await_each(cells, batch))

    async def _await_each(self, cells: Iterator[Cell], batch: Batch) -> StoppedAt | None:
        """As `_call_each`, on the event loop of an async handler: one way there and back for all
        messages of a batch. Other partitions have turns between the messages of this one."""
        call, lease, entry, record = self._handler.function, self._lease, self._entry, self._record
        words, at, now_s, order = entry.words, entry.at, monotonic, self._order
        turn_end_s, references = now_s() + LOOP_TURN_S, getrefcount
        message = blank_delivery(batch, self._shared)
        error: BaseException | None = None
        for offset, key, payload, beside in cells:
            if (at_s := now_s()) > turn_end_s:
                # What was in hand is over, and nothing else is yet.
                order.next_offset = offset
                entry.end()
                await asyncio.sleep(0)
                at_s = now_s()
                turn_end_s = at_s + LOOP_TURN_S
            message.offset = offset
            message.key = key
            message.payload = payload
            if beside is not None:
                message.timestamp_ms, message.headers, message.id = beside
            if at_s > lease.begin_until_s or self._is_ending:
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
            if offset >= order.kick_from:
                order.passed(offset + 1)
            if references(message) != OURS_ALONE:
                message = blank_delivery(batch, self._shared)
        else:
            offset = batch.end_offset
        return self._ran_to(offset, error)

    # --- a call by itself -------------------------------------------------------------------------

    def _call_one(self, step: CallOne) -> bool:
        """Call with these messages alone; False: it must not begin, for the worker ends."""
        self._shared.attempt = step.attempt
        if self._handler.gate is not None and not self._may_cost(step, self._handler.gate):
            return not self._stopping.is_set()
        if not self._lease.may_begin(self._stopping):
            return False
        begun = self._entry.begin(step.first, step.end, self._stopping, step.suspect)
        if not (begun and self._lease.may_begin(self._stopping)):
            return False
        argument = self._argument(step)
        self._cells_from = step.end if self._cells_from == step.first + 1 else -1
        error: BaseException | None = None
        try:
            self._handler.call(argument)
        except BaseException as raised:  # noqa: BLE001 - also what `sys.exit()` raises
            error = raised
        finally:
            self._order.ended(step)
            self._entry.end()
        if error is None:
            self._shared.attempt = 1
            self._order.called(step, None, monotonic())
        elif not self._is_void(error):
            leave_if_child(error)
            self._order.called(step, outcome(error), monotonic())
            self._tell_failed(step.first, error)
        return True

    def _argument(self, step: CallOne) -> Delivery | DeliveredBatch:
        part = self._part(step.first, step.end)
        if self._handler.wants_batch:
            return DeliveredBatch(part, self._shared)
        return next(deliveries(part, self._shared))

    def _may_cost(self, step: CallOne, gate: CallGate) -> bool:
        """Wait for the group's limits; False: it may not begin, or what it costs is not known."""
        try:
            return gate.wait(self._argument(step), self._stopping)
        except Exception as error:  # noqa: BLE001 - what the user's own cost function raises
            self._order.called(step, told(error), monotonic())
            self._tell_failed(step.first, error)
            return False

    def _tell_failed(self, offset: Offset, error: BaseException) -> None:
        """Log a failure that is followed by another attempt."""
        wait_s = self._order.paused_until_s - monotonic()
        if wait_s > 0 and not isinstance(error, NotDue):
            context = context_at(self._shared, offset)
            level = logging.INFO if isinstance(error, RetryAfter) else logging.WARNING
            logger.log(level, "%s failed, again in %d ms: %s", context, wait_s * 1_000, told(error))

    # --- what is given up -------------------------------------------------------------------------

    def _failure(self, step: GiveUp) -> Failure:
        context = replace(context_at(self._shared, step.first), attempt=step.attempts)
        return Failure(context, step.error, step.policy)

    def _log(self, failure: Failure) -> None:
        policy = failure.policy.value
        logger.error("%s failed for good (%s): %s", failure.context, policy, failure.error)

    def _keep(self, step: GiveUp) -> None:
        """Have the consumer store what is given up, before anything goes on."""
        failure = self._failure(step)
        if self.waiting is None:
            self._log(failure)
        try:
            self._callbacks.give_up(self, failure, self._part(step.first, step.end))
        except Exception as error:  # noqa: BLE001 - whatever it is, the message stays ours
            self._note_waiting(failure, error)
            self._order.not_kept(monotonic())
        else:
            self.waiting = None
            self._shared.attempt = 1
            self._order.kept()
