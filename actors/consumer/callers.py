"""`Callers`: those who call the handler for one partition that is worked many messages at a time.

Rules of this file. A caller is a thread, or (`LoopCallers`) a coroutine. It takes what may begin
from `todo`, makes the call, and puts into `ended` how that went: two deques, and no
lock for a call that is nothing special. When there is nothing to take it makes a turn of the
worker, which hears what ended and says what may begin next; when there is nothing then either, it
is over. So a thread that makes short calls makes one after the other, and hands nothing to another.

Short calls gain nothing from many threads, and all of a process would wait for theirs: while calls
are short there is one caller, and more is taken than there are slots. Calls that take long are made
by as many callers as there are slots. A call that takes too long is left alone: an async one is
cancelled, a thread is left to itself, and its caller is not counted any more.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import inf
from time import monotonic
from typing import Protocol

from pxrs_ray.actors.cluster.thread_pool import ThreadPool
from pxrs_ray.actors.consumer.call_record import RecordSlot
from pxrs_ray.actors.consumer.handler import Handler
from pxrs_ray.actors.consumer.worker import WorkerCallbacks
from pxrs_ray.clock import monotonic_ms
from pxrs_ray.consumer.delivery import Delivery, DeliveryContext, delivery_of
from pxrs_ray.model import Grant
from pxrs_ray.processing.scheduler import Task, Work
from pxrs_ray.supervision.forks import leave_if_child
from pxrs_ray.supervision.restart_rules import told

# A call that takes less waits for nothing: beside it no other would come further.
QUICK_S = 0.000_03
# After so many of them, one after the other, calls are short.
QUICK_ENOUGH = 32
# How much more than there are slots is taken while calls are short.
AHEAD_MAX = 64

# How a call ended that was never begun: the worker had to stop first.
NOT_BEGUN = "not begun"

Ended = tuple[Task, str | None]


class CallersWork(Protocol):
    """What callers need of their worker."""

    def turn(self, free: int = 0) -> None:
        """With the lock held: hear what ended, and say what may begin. `free` callers ask."""

    def put_aside(self, task: Task) -> None:
        """Keep what the handler could not process; raises what prevents that."""

    def is_void(self, error: BaseException) -> bool:
        """Whether a call ended so because our time was over."""

    def fail(self, error: BaseException) -> None:
        """The worker cannot go on."""


class Callers:
    """See the rules at the head of this file. What is said to be with the lock held is the
    worker's; the rest is for callers."""

    # Whether one caller does as much as many while calls are short.
    _one_is_enough = True

    def __init__(
        self,
        work: CallersWork,
        grant: Grant,
        shared: DeliveryContext,
        handler: Handler,
        callbacks: WorkerCallbacks,
        stopping: threading.Event,
        lock: threading.Condition,
        *,
        slots: int,
        timeout_ms: int | None,
        timed: bool,
    ) -> None:
        self.todo: deque[Task] = deque()
        self.ended: deque[Ended] = deque()
        # Callers that are there, those whose calls are left alone not counted.
        self.active = 0
        self.left_alone = 0
        self.slots = slots
        # How many calls in a row were short.
        self.quick = 0
        # The slot of the caller that goes on where one is enough.
        self._busiest: RecordSlot | None = None
        self.pool = ThreadPool(f"pxrs-call-{grant.partition}", 2 * slots + 1)
        self._work, self._handler = work, handler
        self._record, self._lease = callbacks.in_hand, callbacks.lease
        self._new_slot = partial(callbacks.in_hand.slot, grant.partition, grant.epoch)
        self._slots_free: list[RecordSlot] = []
        self._stopping, self._lock = stopping, lock
        self._shared = shared
        self._first = replace(shared, attempt=1)
        # `timed`: a call may be left alone, so its begin and its end are noted under the lock.
        self._timed, self._timeout_ms = timed, timeout_ms
        self._calling: set[Task] = set()
        self._began_s = monotonic()

    # --- with the lock held -----------------------------------------------------------------------

    @property
    def are_quick(self) -> bool:
        """Whether calls are short."""
        return self.quick >= QUICK_ENOUGH

    @property
    def next_unless_full(self) -> Task | None:
        """What a caller would take next, where there might be more callers: if that stays what it
        is, the calls that are under way are long ones."""
        if not (self._one_is_enough and self.are_quick and self.active < self.slots):
            return None
        try:
            return self.todo[0]
        except IndexError:
            return None

    def engage_all(self) -> None:
        """Calls have become long: have as many callers as there are slots."""
        self.quick, self._busiest = 0, None
        self.engage()

    @property
    def ahead(self) -> int:
        """How much more than there are slots may be taken."""
        return min(self.quick, AHEAD_MAX)

    def engage(self, free: int = 0) -> None:
        """Have as many callers as there is work for, beside `free` ones that look for some."""
        most = 1 if self.are_quick and self._one_is_enough else self.slots
        for _ in range(min(len(self.todo) - free, most - self.active)):
            self.active += 1
            try:
                self._start()
            except Exception as error:  # noqa: BLE001 - no thread left, the handler's loop closed
                self.active -= 1
                if not self.active:
                    self._fail_all(told(error))
                return

    def _start(self) -> None:
        self.pool.submit(self._run)

    def _fail_all(self, error: str) -> None:
        while self.todo:
            self.ended.append((self.todo.popleft(), error))

    def drop(self) -> int:
        """Forget what was not begun; answers how much that was."""
        dropped = 0
        while self.todo:
            self.todo.popleft()
            dropped += 1
        return dropped

    def is_begun(self, task: Task) -> bool:
        """Whether the task's call is under way."""
        return task in self._calling if self._timed else task not in self.todo

    def leave_alone(self, task: Task) -> None:
        """Do not wait for the task's call any more, if it was begun."""
        if task in self._calling:
            self.active -= 1
            self.left_alone += 1
            return
        with suppress(ValueError):  # a caller has it in hand, and will see that it is over
            self.todo.remove(task)

    def close(self) -> None:
        """Nobody calls any more. Of calls that were left to themselves the slots stay theirs."""
        self.pool.close()
        for slot in self._slots_free:
            self._record.give_back(slot)

    # --- callers: threads -------------------------------------------------------------------------

    def _run(self) -> None:
        slot = self._slot()
        try:
            self._call_each(slot)
        except BaseException as error:  # noqa: BLE001 - a fault of ours, which ends the worker
            self._failed(error)
        finally:
            slot.end()
            self._slots_free.append(slot)

    def _slot(self) -> RecordSlot:
        try:
            return self._slots_free.pop()
        except IndexError:
            return self._new_slot()

    def _failed(self, error: BaseException) -> None:
        leave_if_child(error)
        with self._lock:
            self.active -= 1
        self._work.fail(error)

    def _call_each(self, slot: RecordSlot) -> None:
        """Make one call after the other, for as long as there are any.

        This is the hot path. Before each call it is looked whether it may begin: that is the
        lease's end, our own, and the gate of those in hand. `_call_apart` does the same for one
        message, and all that the others need.
        """
        todo, ended, lease, record = self.todo, self.ended, self._lease, self._record
        words, at, now_s, call = slot.words, slot.at, monotonic, self._handler.call
        is_stopping, timed, delivery = self._stopping.is_set, self._timed, self._delivery
        quick, began_s, handle = self.quick, inf, Work.HANDLE
        while True:
            try:
                task = todo.popleft()
            except IndexError:
                if (more := self._more(slot, quick)) is None:
                    return
                task, began_s = more, inf
            at_s = now_s()
            quick = quick + 1 if at_s - began_s < QUICK_S else 0
            began_s, item = at_s, task.items[0]
            plain = task.work is handle and item.suspect is None and not timed
            if plain and at_s <= lease.begin_until_s and not is_stopping():
                # As `RecordSlot.begin` does for one message.
                words[at] = item.offset
                if not record.closed:
                    try:
                        call(delivery(task))
                    except BaseException as error:  # noqa: BLE001 - also what `sys.exit()` raises
                        leave_if_child(error)
                        if not self._work.is_void(error):
                            ended.append((task, told(error)))
                            continue
                    else:
                        ended.append((task, None))
                        continue
            leave_if_child()
            slot.end()
            if not self._call_apart(task, slot):
                return

    def _more(self, slot: RecordSlot, quick: int) -> Task | None:
        """What to call after all that was to be done; None: this caller is over."""
        leave_if_child()
        slot.end()
        while self._find_more(slot, quick):
            with suppress(IndexError):  # another caller took it
                return self.todo.popleft()
        return None

    def _find_more(self, slot: RecordSlot, quick: int) -> bool:
        """Make a turn; False when there is nothing to call for this caller, which is over then."""
        with self._lock:
            self.quick = quick
            self._work.turn(free=1)
            if self.todo and not self._is_too_many(slot):
                return True
            self.active -= 1
            # The worker may have to end, or to watch those that are left at what is to be done.
            if self.todo or self._stopping.is_set():
                self._lock.notify_all()
            return False

    def _is_too_many(self, slot: RecordSlot) -> bool:
        """Whether calls are short, and another caller makes turns too. One that makes none does not
        count: its call is long."""
        if not (self._one_is_enough and self.are_quick):
            return False
        if self._busiest is None or self.active == 1:
            self._busiest = slot
        return self._busiest is not slot

    def _shared_at(self, attempt: int) -> DeliveryContext:
        return replace(self._shared, attempt=attempt)

    # --- what is special --------------------------------------------------------------------------

    def _call_apart(self, task: Task, slot: RecordSlot) -> bool:
        """What needs more than a call: it may take too long, may kill, may not begin now, or is to
        be put aside. False when it was left alone: then this caller is over."""
        if task.work is not Work.HANDLE:
            try:
                self._work.put_aside(task)
            except BaseException as error:  # noqa: BLE001 - it is told, and tried again
                leave_if_child(error)
                return self._over(task, told(error))
            return self._over(task, None)
        while self._may_call(task, slot):
            raised = self._outcome(task)
            slot.end()
            # Where our time was over it begins again when we hold a lease, or never.
            if raised is None or not self._work.is_void(raised):
                return self._over(task, None if raised is None else told(raised))
        slot.end()
        return self._over(task, NOT_BEGUN)

    def _may_call(self, task: Task, slot: RecordSlot) -> bool:
        """Whether the call begins now; its time begins with it, and until then it is not late."""
        if task.due_ms is not None:
            with self._lock:
                task.due_ms = None
        offset, suspect, may_begin = task.item.offset, task.item.suspect, self._lease.may_begin
        if suspect is not None:
            pause_s = self._began_s + suspect.pause_ms / 1_000 - monotonic()
            self._stopping.wait(max(0.0, pause_s))
        begun = may_begin(self._stopping)
        begun = begun and slot.begin(offset, offset + 1, self._stopping, suspect)
        return begun and may_begin(self._stopping) and (not self._timed or self._begin_timed(task))

    def _begin_timed(self, task: Task) -> bool:
        """Note that the call begins; False when it was left alone before it could."""
        with self._lock:
            if task.over:
                return False
            self._calling.add(task)
            if self._timeout_ms is not None:
                task.due_ms = monotonic_ms() + self._timeout_ms
            return True

    def _outcome(self, task: Task) -> BaseException | None:
        try:
            self._handler.call(self._delivery(task))
        except BaseException as error:  # noqa: BLE001 - also what `sys.exit()` raises
            leave_if_child(error)
            return error
        leave_if_child()
        return None

    def _delivery(self, task: Task) -> Delivery:
        shared = self._first if task.attempt == 1 else self._shared_at(task.attempt)
        return delivery_of(task.item.message, shared)

    def _over(self, task: Task, error: str | None) -> bool:
        """Tell how it went; False when nobody waited for it any more."""
        with self._lock:
            begun = task in self._calling
            self._calling.discard(task)
            if task.over and not begun:
                return True
            self.ended.append((task, error))
            if not task.over:
                return True
            self._work.turn()
            return False
