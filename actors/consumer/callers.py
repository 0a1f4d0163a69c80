"""`Callers`: the threads that call the handler for one partition with many messages at a time.

Rules of this file. A caller is a thread, or a coroutine (`LoopCallers`). It takes calls from the
deque `todo` and puts their results into the deque `ended`; an ordinary call needs no lock. A caller
that finds nothing to take makes a turn of the worker: it reports what ended, and learns what may
begin. If there is still nothing, the caller ends. So a thread makes one short call after the other,
and hands nothing to another thread. `CallTurns` decides how many callers there are, which of them
continues, and what happens to a call that takes too long: an async call is cancelled, a thread is
left alone. Special calls take the steps of `call_apart`.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import inf
from time import monotonic
from typing import Any, Protocol

from pxrs_ray.actors.cluster.thread_pool import ThreadPool
from pxrs_ray.actors.consumer.call_record import RecordEntry
from pxrs_ray.actors.consumer.handler import Handler
from pxrs_ray.actors.consumer.worker import WorkerCallbacks
from pxrs_ray.clock import monotonic_ms
from pxrs_ray.consumer.delivery import Delivery, DeliveryContext, delivery_of
from pxrs_ray.model import Grant
from pxrs_ray.processing.call_apart import (
    AwaitBudget,
    AwaitLease,
    AwaitPause,
    CallIt,
    LeavePlace,
    NoteBegin,
    NoteWait,
    PutAside,
    TakePlace,
    Went,
    call_apart,
)
from pxrs_ray.processing.call_turns import NOT_BEGUN, CallTurns, Told
from pxrs_ray.processing.retry_rules import outcome
from pxrs_ray.processing.scheduler import Task, Work
from pxrs_ray.steps import Do, carry_now
from pxrs_ray.supervision.forks import leave_if_child
from pxrs_ray.supervision.restart_rules import told

# A call that takes less waits for nothing: beside it no other would come further.
QUICK_S = 0.000_03
WELL = Went()


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
    one_is_enough = True

    def __init__(
        self,
        work: CallersWork,
        grant: Grant,
        shared: DeliveryContext,
        handler: Handler,
        callbacks: WorkerCallbacks,
        stopping: threading.Event,
        lock: threading.Condition,
        turns: CallTurns,
    ) -> None:
        self._turns = turns
        self.pool = ThreadPool(f"pxrs-call-{grant.partition}", 2 * turns.slots + 2)
        self._work, self._handler = work, handler
        self._record, self._lease = callbacks.in_hand, callbacks.lease
        self._new_entry = partial(callbacks.in_hand.entry, grant.partition, grant.epoch)
        self._entries_free: list[RecordEntry] = []
        self._stopping, self._lock = stopping, lock
        self._shared = shared
        self._first = replace(shared, attempt=1)
        # A call may be left alone, so its begin and its end are noted under the lock.
        self._timed = turns.timed
        # Where the group has limits, each call waits for its turn.
        self._gate = handler.gate
        self._apart = self._timed or self._gate is not None
        self._began_s = monotonic()

    # --- with the lock held -----------------------------------------------------------------------

    def engage(self, free: int = 0) -> None:
        """Have as many callers as there is work for, beside `free` ones that look for some."""
        turns = self._turns
        for _ in range(turns.callers_wanted(free)):
            turns.active += 1
            try:
                self._start()
            except Exception as error:  # noqa: BLE001 - no thread left, the handler's loop closed
                turns.no_caller(told(error))
                return

    def _start(self) -> None:
        self.pool.submit(self._run)

    def cancel(self, task: Task) -> None:
        """Nobody waits for the task's call any more: a thread is left to itself."""

    def close(self) -> None:
        """Nobody calls any more. Of calls that were left to themselves the entries stay theirs."""
        self.pool.close()
        for entry in self._entries_free:
            self._record.give_back(entry)

    # --- callers: threads -------------------------------------------------------------------------

    def _run(self) -> None:
        entry = self._entry()
        try:
            self._call_each(entry)
        except BaseException as error:  # noqa: BLE001 - a fault of ours, which ends the worker
            self._failed(error)
        finally:
            entry.end()
            self._entries_free.append(entry)

    def _entry(self) -> RecordEntry:
        try:
            return self._entries_free.pop()
        except IndexError:
            return self._new_entry()

    def _failed(self, error: BaseException) -> None:
        leave_if_child(error)
        with self._lock:
            self._turns.active -= 1
        self._work.fail(error)

    def _call_each(self, entry: RecordEntry) -> None:
        """Make one call after the other, for as long as there are any.

        This is the hot path. Before each call it is looked whether it may begin: that is the
        lease's end, our own, and the gate of those in hand. `_call_apart` does the same for one
        message, and all that the others need.
        """
        todo, ended = self._turns.todo, self._turns.ended
        lease, record = self._lease, self._record
        words, at, now_s, call = entry.words, entry.at, monotonic, self._handler.call
        is_stopping, apart, delivery = self._stopping.is_set, self._apart, self._delivery
        quick, began_s, handle = self._turns.quick, inf, Work.HANDLE
        while True:
            try:
                task = todo.popleft()
            except IndexError:
                if (more := self._more(entry, quick)) is None:
                    return
                task, began_s = more, inf
            at_s = now_s()
            quick = quick + 1 if at_s - began_s < QUICK_S else 0
            began_s, item = at_s, task.items[0]
            plain = task.work is handle and item.suspect is None and not apart
            if plain and at_s <= lease.begin_until_s and not is_stopping():
                # As `RecordEntry.begin` does for one message.
                words[at] = item.offset
                if not record.closed:
                    try:
                        call(delivery(task))
                    except BaseException as error:  # noqa: BLE001 - also what `sys.exit()` raises
                        leave_if_child(error)
                        if not self._work.is_void(error):
                            ended.append((task, outcome(error)))
                            continue
                    else:
                        ended.append((task, None))
                        continue
            leave_if_child()
            entry.end()
            if not self._call_apart(task, entry):
                return

    def _more(self, entry: RecordEntry, quick: int) -> Task | None:
        """What to call after all that was to be done; None: this caller is over."""
        leave_if_child()
        entry.end()
        while self._find_more(entry, quick):
            with suppress(IndexError):  # another caller took it
                return self._turns.todo.popleft()
        return None

    def _find_more(self, entry: RecordEntry, quick: int) -> bool:
        """Make a turn; False when there is nothing to call for this caller, which is over then."""
        turns = self._turns
        with self._lock:
            turns.quick = quick
            self._work.turn(free=1)
            if turns.goes_on(entry):
                return True
            # The worker may have to end, or to watch those that are left at what is to be done.
            if turns.todo or self._stopping.is_set():
                self._lock.notify_all()
            return False

    def _shared_at(self, attempt: int) -> DeliveryContext:
        return replace(self._shared, attempt=attempt)

    # --- what is special --------------------------------------------------------------------------

    def _call_apart(self, task: Task, entry: RecordEntry) -> bool:
        """What needs more than a call: it may take too long, may kill, may not begin now, or is to
        be put aside. False when it was left alone: then this caller is over."""
        if self._apart and self._may_at_once(task, entry, monotonic()):
            raised = self._outcome(task)
            entry.end()
            if raised is None or not self._work.is_void(raised):
                return self._over(task, None if raised is None else outcome(raised))
        steps = call_apart(task, limited=self._gate is not None)
        return self._over(task, carry_now(steps, partial(self._step, task, entry)))

    def _may_at_once(self, task: Task, entry: RecordEntry, at_s: float) -> bool:
        """Whether the call begins at this moment, and nothing is special about it."""
        if self._gate is not None or task.work is not Work.HANDLE:
            return False
        if task.item.suspect is not None:
            return False
        if at_s > self._lease.begin_until_s or self._stopping.is_set():
            return False
        # As `RecordEntry.begin` does for one message.
        entry.words[entry.at] = task.item.offset
        return not self._record.closed and (not self._timed or self._begin_timed(task))

    def _step(self, task: Task, entry: RecordEntry, step: Do[Any]) -> Any:
        match step:
            case NoteWait():
                if task.due_ms is not None:
                    with self._lock:
                        task.due_ms = None
                return None
            case AwaitLease():
                return self._lease.may_begin(self._stopping)
            case TakePlace():
                offset = task.item.offset
                return entry.begin(offset, offset + 1, self._stopping, task.item.suspect)
            case NoteBegin():
                return not self._timed or self._begin_timed(task)
            case CallIt():
                raised = self._outcome(task)
                entry.end()
                return WELL if raised is None else self._went(raised)
            case LeavePlace():
                return entry.end()
            case AwaitBudget():
                return self._await_budget(task)
            case AwaitPause(pause_ms):
                pause_s = self._began_s + pause_ms / 1_000 - monotonic()
                return self._stopping.wait(max(0.0, pause_s))
            case PutAside():
                return self._put_aside(task)
        raise AssertionError(step)

    def _await_budget(self, task: Task) -> Went:
        assert self._gate is not None
        try:
            passed = self._gate.wait(self._delivery(task), self._stopping)
        except Exception as error:  # noqa: BLE001 - what the user's own cost function raises
            return Went(told(error))
        return WELL if passed else Went(NOT_BEGUN)

    def _went(self, raised: BaseException) -> Went:
        return Went(outcome(raised), void=self._work.is_void(raised))

    def _put_aside(self, task: Task) -> Went:
        try:
            self._work.put_aside(task)
        except BaseException as error:  # noqa: BLE001 - it is told, and tried again
            leave_if_child(error)
            return Went(told(error))
        return WELL

    def _begin_timed(self, task: Task) -> bool:
        """Note that the call begins; False when it was left alone before it could."""
        with self._lock:
            return self._turns.begins(task, monotonic_ms())

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
            if self._turns.is_over(task, error) is Told.GO_ON:
                return True
            self._work.turn()
            return False
