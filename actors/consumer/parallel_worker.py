"""`ParallelWorker`: runs many messages of one partition at once, as a `WorkScheduler` says.

Rules of this file. The scheduler is told, and asked what may begin, in *turns*, each under the lock
of the worker. A caller that has nothing left to call makes one (`Callers`); the worker's own thread
makes one when messages come, when time is up, and at the end. Messages are held as columns until
something may begin with them. When as many calls were left to themselves as there are entries, the
worker halts with an alarm. Whatever is parked or given up is safely kept before it counts as done.
"""

from __future__ import annotations

import hashlib
import logging
from dataclasses import replace
from functools import partial
from math import inf

from pxrs_ray.actors.consumer.callers import Callers
from pxrs_ray.actors.consumer.gap_log import GapKeeper, GapLog
from pxrs_ray.actors.consumer.handler import Handler
from pxrs_ray.actors.consumer.loop_callers import LoopCallers
from pxrs_ray.actors.consumer.quarantine_log import QuarantineLog
from pxrs_ray.actors.consumer.redrive import Redriver
from pxrs_ray.actors.consumer.worker import Failure, Worker, WorkerCallbacks
from pxrs_ray.clock import monotonic_ms
from pxrs_ray.config import GroupConfig
from pxrs_ray.config.scheduling import (
    calls_at_once,
    handler_timeout_ms,
    items_of,
    may_leave_calls_alone,
    message_of,
    retry_rules,
    tenant_header,
)
from pxrs_ray.consumer.delivery import Context, DeliveryContext, context_at
from pxrs_ray.data.batch import Batch
from pxrs_ray.errors import HandlerTimeout, PxrsError
from pxrs_ray.model import Grant, Offset, Progress
from pxrs_ray.processing.call_turns import CallTurns, TurnNews
from pxrs_ray.processing.key_ordered import KeyLanes
from pxrs_ray.processing.retry_rules import Deferred, FailurePolicy
from pxrs_ray.processing.scheduler import Item, Task, Work, WorkScheduler

logger = logging.getLogger(__name__)

STOPPING_LOOK_S = 0.1
# So many messages become objects at a time.
PART_RECORDS = 256


class ParallelWorker(Worker):
    """Works one partition as its scheduler says."""

    def __init__(
        self,
        grant: Grant,
        shared: DeliveryContext,
        handler: Handler,
        scheduler: WorkScheduler,
        callbacks: WorkerCallbacks,
        config: GroupConfig,
        before: Worker | None,
        quarantine: QuarantineLog | None = None,
        gap_log: GapLog | None = None,
    ) -> None:
        super().__init__(grant, shared, handler, callbacks, config, before)
        self._scheduler = scheduler
        self._sought = grant.sought
        self._config = config
        self._tenant_header = tenant_header(config.processing)
        make = LoopCallers if handler.is_async else Callers
        self._turns = turns = CallTurns(
            scheduler,
            slots=calls_at_once(config.processing),
            timeout_ms=handler_timeout_ms(config.processing),
            timed=may_leave_calls_alone(config.processing),
            one_is_enough=make.one_is_enough,
        )
        self._callers = make(
            self, grant, shared, handler, callbacks, self._stopping, self._wake, turns
        )
        self._redriver = None
        if quarantine is not None:
            entry = callbacks.in_hand.entry(self.partition, self.epoch, redriven=True)
            self._redriver = Redriver(
                quarantine,
                handler,
                retry_rules(config),
                partial(self._desk_of_redrive, quarantine.queue),
                self._unpark,
                self._stopping,
                entry,
                self._lease.may_begin,
            )
        self._gaps = None
        if gap_log is not None and isinstance(scheduler, KeyLanes):
            place = str(context_at(shared, self.checkpoint))
            self._gaps = GapKeeper(
                gap_log, place, self._wake, self._stopping, self._callers.pool.submit, self.turn
            )
        self._redriving = 0
        # The batch of which a part was offered, and where the next part begins.
        self._offering: tuple[Batch, int] | None = None
        # Until when the worker's own thread does not look by itself.
        self._asleep_until_ms: float = -inf

    def progress(self) -> Progress:
        """How far it is; what is done above the checkpoint is in the detail."""
        with self._wake:
            self._say(self._turns.settle(monotonic_ms(), self._commit_records))
            return self._scheduler.progress()

    def redrive(self) -> None:
        """An operator has made a request: look, and carry it out. Does not wait."""
        with self._wake:
            if self._redriver is not None and not self._stopping.is_set():
                self._redriving += 1
                self._callers.pool.submit(self._redrive)

    def _redrive(self) -> None:
        assert self._redriver is not None
        try:
            self._redriver.run()
        finally:
            with self._wake:
                self._redriving -= 1
                self._wake.notify_all()

    def _desk_of_redrive(
        self, queue: str, key: bytes | None, attempt: int, position: Offset
    ) -> DeliveryContext:
        """A fenced sink knows what is re-driven by its place in the quarantine, key by key."""
        mark = "-" if key is None else hashlib.blake2b(key, digest_size=12).hexdigest()
        return replace(self._shared, attempt=attempt, sink=(f"{queue}#{mark}", position))

    def _unpark(self, key: bytes | None) -> bool:
        with self._wake:
            return key is None or self._lanes.unpark(key)

    # --- the worker's thread ----------------------------------------------------------------------

    def _load_quarantine(self, redriver: Redriver) -> None:
        """Park what is in quarantine, before any of its messages is looked at."""
        assert isinstance(self._scheduler, KeyLanes)
        while not self._stopping.is_set():
            try:
                keys = redriver.load(self._scheduler.redriven, self._sought)
            except PxrsError as error:
                logger.warning("the quarantine of partition %d: %s", self.partition, error)
                self._stopping.wait(STOPPING_LOOK_S)
                continue
            with self._wake:
                self._scheduler.redriving_ended()
                for key in keys:
                    self._scheduler.park(key)
            self.redrive()
            return

    def _work_on(self) -> None:
        callers, turns = self._callers, self._turns
        try:
            if self._gaps is not None:
                self._gaps.load(self._lanes)
            if self._redriver is not None:
                self._load_quarantine(self._redriver)
            while not self._stopping.is_set() or self._is_at_it:
                with self._wake:
                    self._wait()
                    self.turn()
        finally:
            # After a fault too: whoever begins again must not meet a call that still runs.
            self._stopping.set()
            with self._wake:
                while self._is_at_it:
                    self._wake.wait()
                self._say(turns.settle(monotonic_ms(), self._commit_records))
            if self._gaps is not None:
                self._gaps.finish(self._lanes)
            callers.close()

    @property
    def _lanes(self) -> KeyLanes:
        assert isinstance(self._scheduler, KeyLanes)
        return self._scheduler

    @property
    def _is_at_it(self) -> bool:
        """Whether another of the worker's threads has something in hand."""
        keeps = self._gaps is not None and self._gaps.is_busy
        return self._turns.active > 0 or self._redriving > 0 or keeps

    def _wait(self) -> None:
        """With `_wake` held: return when there is something to do that no caller does."""
        while True:
            if self._stopping.is_set():
                if self._is_at_it:
                    self._wake.wait(STOPPING_LOOK_S)
                return
            if self._turns.is_left_to_us(has_more=bool(self._queue or self._offering)):
                return
            now_ms = monotonic_ms()
            due_ms = self._turns.due_ms(now_ms)
            if due_ms <= now_ms:
                return
            self._asleep_until_ms = due_ms
            self._wake.wait(None if due_ms == inf else (due_ms - now_ms) / 1_000)
            self._asleep_until_ms = -inf
            if self._turns.have_become_long():
                self._callers.engage()

    # --- a turn: with `_wake` held ----------------------------------------------------------------

    def turn(self, free: int = 0) -> None:
        """With `_wake` held: tell the scheduler everything, and take what may begin. `free` callers
        look for something to call."""
        now_ms, turns = monotonic_ms(), self._turns
        self._say(turns.hear(now_ms, self._commit_records))
        stopped_by = turns.stopped_by
        if stopped_by is not None and self.failed is None:
            self._fail(stopped_by)
        if self._stopping.is_set():
            turns.drop()
            return
        self._offer()
        turns.take(now_ms)
        if self._gaps is not None:
            self._gaps.look(self._lanes)
        self._callers.engage(free)
        if turns.due_ms(now_ms) < self._asleep_until_ms:
            self._wake.notify_all()

    def _say(self, heard: TurnNews) -> None:
        """Say and do what follows from what was heard."""
        for task in heard.too_late:
            logger.warning("%s has ended, too late", self._context(task))
        for task, error in heard.failed:
            level = logging.WARNING if task.work is Work.HANDLE else logging.ERROR
            level = logging.INFO if isinstance(error, Deferred) else level
            logger.log(level, "%s: %s failed: %s", self._context(task), task.work.value, error)
        if heard.commits:
            self._callbacks.checkpoint_soon()
        for task, begun in heard.late:
            if begun:  # where the scheduler goes on waiting for it, that is told
                told = task.item.error or "it is still waited for"
                logger.error("%s: handle takes too long: %s", self._context(task), told)
        for task in heard.left:
            self._callers.cancel(task)
            if self._turns.halts and self.failed is None:
                count = self._turns.left_alone
                text = repr(HandlerTimeout(f"{count} calls of the handler never returned"))
                self.failed = Failure(self._context(task), text, FailurePolicy.STOP)

    def _offer(self) -> None:
        """Offer what the scheduler has room for; gaps are passed on the way."""
        while self._scheduler.has_room():
            if self._offering is None:
                if not self._queue:
                    return
                taken = self._popped()
                if not isinstance(taken, Batch):
                    self._scheduler.skip(taken)
                    continue
                self._offering = taken, 0
            batch, at = self._offering
            end = at + PART_RECORDS
            self._offering = (batch, end) if end < len(batch) else None
            self._scheduler.offer(items_of(batch.slice(at, end), self._tenant_header))

    def _fail(self, item: Item) -> None:
        context = replace(context_at(self._shared, item.offset), attempt=item.attempts)
        self.failed = Failure(context, item.error, FailurePolicy.STOP)
        logger.error("%s failed for good: %s", context, item.error)

    def _context(self, task: Task) -> Context:
        return replace(context_at(self._shared, task.item.offset), attempt=task.attempt)

    # --- the callers' side ------------------------------------------------------------------------

    def is_void(self, error: BaseException) -> bool:
        """Whether a call ended so because our time was over."""
        return self._is_void(error)

    def put_aside(self, task: Task) -> None:
        """Keep what the handler could not process, where the failure policy says."""
        policy = FailurePolicy(self._config.failure_policy)
        failure = Failure(self._context(task), task.item.error, policy)
        messages = [message_of(item, self.partition) for item in task.items]
        try:
            if task.work is Work.PARK:
                assert self._redriver is not None
                self._redriver.park(task.items)
            self._callbacks.give_up(self, failure, messages)
        except Exception as error:
            self._note_waiting(failure, error)
            raise
        self.waiting = None
