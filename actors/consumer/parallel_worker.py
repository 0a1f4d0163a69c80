"""`ParallelWorker`: runs many messages of one partition at once, as a `WorkScheduler` says.

Rules of this file. The worker's thread alone reports to the scheduler and takes what may begin;
threads of a pool (or the event loop of an async handler) make the calls, and put their results into
`_ended`. A call that takes too long is no longer waited for: an async one is cancelled, a thread is
left to itself. When as many threads are left to themselves as there are slots, the worker halts
with an alarm. Whatever is parked or given up is safely kept before it counts as done.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from pxrs_ray.actors.cluster.thread_pool import ThreadPool
from pxrs_ray.actors.consumer.call_record import RecordSlot
from pxrs_ray.actors.consumer.handler import Handler
from pxrs_ray.actors.consumer.quarantine_log import QuarantineLog
from pxrs_ray.actors.consumer.redrive import Redriver
from pxrs_ray.actors.consumer.worker import Failure, Worker, WorkerCallbacks
from pxrs_ray.clock import monotonic_ms
from pxrs_ray.config import GroupConfig
from pxrs_ray.config.scheduling import (
    calls_at_once,
    handler_timeout_ms,
    item_of,
    retry_rules,
    tenant_header,
)
from pxrs_ray.consumer.delivery import Context, Delivery, DeliveryContext, context_at
from pxrs_ray.data.batch import Batch
from pxrs_ray.errors import HandlerTimeout, PxrsError
from pxrs_ray.model import Grant, Offset
from pxrs_ray.processing.key_ordered import KeyLanes
from pxrs_ray.processing.retry_rules import FailurePolicy
from pxrs_ray.processing.scheduler import Item, Standing, Task, Work, WorkScheduler
from pxrs_ray.supervision.forks import leave_if_child
from pxrs_ray.supervision.restart_rules import told

logger = logging.getLogger(__name__)

STOPPING_LOOK_S = 0.1

# How a call ended that was never begun: the worker was told to stop first.
NOT_BEGUN = "not begun"

Ended = tuple[Task, str | None]


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
    ) -> None:
        super().__init__(grant, shared, handler, callbacks, config, before)
        self._scheduler = scheduler
        self._sought = grant.sought
        self._config = config
        self._tenant_header = tenant_header(config.processing)
        self._slots = calls_at_once(config.processing)
        self._pool = ThreadPool(f"pxrs-call-{self.partition}", 2 * self._slots + 1)
        self._redriver = None
        if quarantine is not None:
            slot = callbacks.in_hand.slot(self.partition, self.epoch, redriven=True)
            self._redriver = Redriver(
                quarantine,
                handler,
                retry_rules(config),
                partial(self._desk_of_redrive, quarantine.queue),
                self._unpark,
                self._stopping,
                slot,
                callbacks.may_begin,
            )
        self._redriving = 0
        self._busy = 0
        # Calls that have not said how they ended, those that are left alone not counted.
        self._running = 0
        self._left_alone = 0
        self._ended: list[Ended] = []
        self._slots_free: list[RecordSlot] = []
        self._began_s = monotonic_ms() / 1_000
        self._cancels: dict[Task, Callable[[], object]] = {}
        self._untold = 0

    def standing(self) -> Standing:
        """How far it is; what is done above the checkpoint is in the detail."""
        with self._wake:
            return self._scheduler.standing()

    def redrive(self) -> None:
        """An operator has made a request: look, and carry it out. Does not wait."""
        with self._wake:
            if self._redriver is not None and not self._stopping.is_set():
                self._redriving += 1
                self._pool.submit(self._redrive)

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
        assert isinstance(self._scheduler, KeyLanes)
        with self._wake:
            return key is None or self._scheduler.unpark(key)

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
        try:
            if self._redriver is not None:
                self._load_quarantine(self._redriver)
            while not self._stopping.is_set() or self._busy or self._redriving:
                with self._wake:
                    self._wait()
                    taken = self._next_batch()
                # What takes long is done without the lock: calls end meanwhile.
                items = [] if taken is None else self._items(taken)
                self._callbacks.may_begin(self._stopping)
                with self._wake:
                    self._scheduler.offer(items)
                    tasks = self._turn()
                for task in tasks:
                    self._begin_or_fail(task)
        finally:
            # After a fault too: whoever begins again must not meet a call that still runs.
            with self._wake:
                while self._running or self._redriving:
                    self._wake.wait()
            self._pool.close()
            # Of calls that were left to themselves the slots stay theirs.
            for slot in self._slots_free:
                self._callbacks.in_hand.give_back(slot)

    def _wait(self) -> None:
        """With `_wake` held: return when there is something to do."""
        while not self._ended:
            if self._stopping.is_set():
                if self._busy or self._redriving:
                    self._wake.wait(STOPPING_LOOK_S)
                return
            if self._batches and self._scheduler.has_room():
                return
            due_ms = self._scheduler.due_ms() if self._left_alone < self._slots else None
            left_ms = None if due_ms is None else due_ms - monotonic_ms()
            if left_ms is not None and left_ms <= 0:
                return
            self._wake.wait(None if left_ms is None else left_ms / 1_000)

    def _next_batch(self) -> Batch | None:
        """With `_wake` held: the next batch that there is room for; gaps are passed on the way."""
        while self._batches and self._scheduler.has_room():
            taken = self._popped()
            if isinstance(taken, Batch):
                return taken
            self._scheduler.skip(taken)
        return None

    def _items(self, batch: Batch) -> list[Item]:
        return [item_of(message, self._tenant_header) for message in batch]

    def _turn(self) -> list[Task]:
        """With `_wake` held: tell the scheduler everything, and take what may begin."""
        now_ms = monotonic_ms()
        ended, self._ended = self._ended, []
        for task, error in ended:
            self._end(task, error, now_ms)
        for task in self._scheduler.expire(now_ms):
            self._is_late(task)
        stopped_by = self._scheduler.stopped_by
        if stopped_by is not None and self.failed is None:
            self._fail(stopped_by)
        closed = self._stopping.is_set() or self._left_alone >= self._slots
        tasks = self._scheduler.take(now_ms, 0 if closed else self._slots - self._busy)
        self._busy += len(tasks)
        self._running += len(tasks)
        return tasks

    def _end(self, task: Task, error: str | None, now_ms: int) -> None:
        self._cancels.pop(task, None)
        if task.over:
            self._left_alone -= 1
            logger.warning("%s has ended, too late", self._context(task))
            return
        self._busy -= 1
        if error is NOT_BEGUN:
            return
        self._scheduler.ended(task, error, now_ms)
        if error is not None:
            level = logging.WARNING if task.work is Work.HANDLE else logging.ERROR
            logger.log(level, "%s: %s failed: %s", self._context(task), task.work.value, error)
            return
        self._untold += len(task.items)
        if self._untold >= self._commit_records:
            self._untold = 0
            self._callbacks.checkpoint_soon()

    def _is_late(self, task: Task) -> None:
        """A call has taken too long. Where the scheduler goes on waiting for it, that is logged."""
        told = task.item.error or "it is still waited for"
        logger.error("%s: handle takes too long: %s", self._context(task), told)
        if not task.over:
            return
        self._busy -= 1
        self._running -= 1
        self._left_alone += 1
        cancel = self._cancels.pop(task, None)
        if cancel is not None:
            cancel()
        if self._left_alone >= self._slots and self.failed is None:
            text = repr(HandlerTimeout(f"{self._left_alone} calls of the handler never returned"))
            self.failed = Failure(self._context(task), text, FailurePolicy.STOP)

    def _fail(self, item: Item) -> None:
        context = replace(context_at(self._shared, item.offset), attempt=item.attempts)
        self.failed = Failure(context, item.error, FailurePolicy.STOP)
        logger.error("%s failed for good: %s", context, item.error)

    def _context(self, task: Task) -> Context:
        return replace(context_at(self._shared, task.item.offset), attempt=task.attempt)

    # --- calls ------------------------------------------------------------------------------------

    def _begin_or_fail(self, task: Task) -> None:
        try:
            self._begin(task)
        except Exception as error:  # noqa: BLE001 - no thread left, the handler's loop closed
            self._over(task, told(error), None)

    def _begin(self, task: Task) -> None:
        if task.work is not Work.HANDLE:
            self._pool.submit(partial(self._call, task, partial(self._put_aside, task)))
            return
        free, in_hand = self._slots_free, self._callbacks.in_hand
        slot = free.pop() if free else in_hand.slot(self.partition, self.epoch)
        try:
            self._begin_call(task, slot)
        except Exception:
            slot.end()
            free.append(slot)
            raise

    def _begin_call(self, task: Task, slot: RecordSlot) -> None:
        in_hand, suspect = self._callbacks.in_hand, task.item.suspect
        if (suspect is not None and suspect.isolated) or in_hand.closed:
            # It may have to wait; its time begins when its call does.
            left_ms = None if task.due_ms is None else task.due_ms - monotonic_ms()
            task.due_ms = None
            self._pool.submit(partial(self._await_turn, task, slot, left_ms))
            return
        # As `RecordSlot.begin` does for one message.
        offset = slot.words[slot.at] = task.item.offset
        if in_hand.closed and not in_hand.wait_open(slot, offset, self._stopping):
            self._over(task, NOT_BEGUN, slot)
        elif self._handler.is_async:
            self._begin_async(task, slot)
        else:
            self._pool.submit(partial(self._call, task, self._calling(task), slot))

    def _await_turn(self, task: Task, slot: RecordSlot, left_ms: int | None) -> None:
        item, suspect = task.item, task.item.suspect
        if suspect is not None:
            pause_s = self._began_s + (suspect.pause_ms - monotonic_ms()) / 1_000
            self._stopping.wait(max(0.0, pause_s))
        begun = slot.begin(item.offset, item.offset + 1, self._stopping, suspect)
        begun = begun and self._callbacks.may_begin(self._stopping)
        if not begun or task.over:
            self._over(task, NOT_BEGUN, slot)
            return
        with self._wake:
            task.due_ms = None if left_ms is None else monotonic_ms() + left_ms
            self._wake.notify_all()
        if self._handler.is_async:
            self._begin_async(task, slot)
        else:
            self._call(task, self._calling(task), slot)

    def _delivery(self, task: Task) -> Delivery:
        return Delivery(task.item.message, replace(self._shared, attempt=task.attempt))

    def _calling(self, task: Task) -> Callable[[], object]:
        return partial(self._handler.call, self._delivery(task))

    def _begin_async(self, task: Task, slot: RecordSlot) -> None:
        cancel = self._handler.begin(self._delivery(task), partial(self._over_async, task, slot))
        with self._wake:
            self._cancels[task] = cancel

    def _call(self, task: Task, call: Callable[[], object], slot: RecordSlot | None = None) -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - also what `sys.exit()` raises
            leave_if_child(error)
            if slot is not None and self._is_void(error):
                self._once_more(task, slot)
            else:
                self._over(task, told(error), slot)
        else:
            leave_if_child()
            self._over(task, None, slot)

    def _over_async(self, task: Task, slot: RecordSlot, error: BaseException | None) -> None:
        if error is not None and self._is_void(error):
            self._pool.submit(partial(self._once_more, task, slot))
        else:
            self._over(task, None if error is None else told(error), slot)

    def _once_more(self, task: Task, slot: RecordSlot) -> None:
        """A call ended because our time was over: it begins again when we hold a lease, or never.

        Until then it is not late, and afterwards it has its whole time once more.
        """
        with self._wake:
            timed, task.due_ms = task.due_ms is not None, None
        slot.end()
        if task.over or not self._callbacks.may_begin(self._stopping):
            self._over(task, NOT_BEGUN, slot)
            return
        if timed:
            with self._wake:
                task.due_ms = monotonic_ms() + (handler_timeout_ms(self._config.processing) or 0)
                self._wake.notify_all()
        self._slots_free.append(slot)
        self._begin_or_fail(task)

    def _put_aside(self, task: Task) -> None:
        """Keep what the handler could not process, where the failure policy says."""
        policy = FailurePolicy(self._config.failure_policy)
        failure = Failure(self._context(task), task.item.error, policy)
        try:
            if task.work is Work.PARK:
                assert self._redriver is not None
                self._redriver.park(task.items)
            self._callbacks.give_up(self, failure, [item.message for item in task.items])
        except Exception as error:
            self._note_waiting(failure, error)
            raise
        self.waiting = None

    def _over(self, task: Task, error: str | None, slot: RecordSlot | None) -> None:
        if slot is not None:
            slot.end()
            self._slots_free.append(slot)
        with self._wake:
            self._ended.append((task, error))
            self._running -= not task.over
            self._wake.notify_all()
