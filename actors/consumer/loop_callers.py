"""`LoopCallers`: the callers of an async handler: coroutines on its event loop.

Rules of this file. Only the handler's own coroutines may wait on the loop. Special messages (a
suspect, one that may not begin yet, one for the quarantine) are handled by a thread instead. A call
that takes too long is cancelled, together with the caller that awaits it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from math import inf
from queue import SimpleQueue
from time import monotonic
from typing import Any

from pxrs_ray.actors.consumer.call_record import RecordEntry
from pxrs_ray.actors.consumer.callers import QUICK_S, Callers
from pxrs_ray.processing.retry_rules import outcome
from pxrs_ray.processing.scheduler import Task
from pxrs_ray.supervision.forks import leave_if_child
from pxrs_ray.supervision.restart_rules import told
from pxrs_ray.supervision.supervisor import as_ordinary

# For how long one partition's messages may have the loop to themselves.
LOOP_TURN_S = 0.002


class LoopCallers(Callers):
    """See the rules at the head of this file, and `Callers`."""

    # A coroutine costs next to nothing, and short calls may wait too.
    one_is_enough = False

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._cancels: dict[Task, Callable[[], object]] = {}
        self._awaited_by: dict[Task, asyncio.Task[Any]] = {}

    def _start(self) -> None:
        self._handler.begin_on_loop(self._run_on_loop())

    def cancel(self, task: Task) -> None:
        """Nobody waits for the task's call any more: cancel it, if it was begun."""
        cancel = self._cancels.pop(task, None)
        if cancel is not None:
            cancel()
        elif task in self._awaited_by:
            self._handler.soon_on_loop(partial(self._cancel_awaited, task))

    def _cancel_awaited(self, task: Task) -> None:
        caller = self._awaited_by.get(task)
        if caller is not None:
            caller.cancel()

    # --- coroutines -------------------------------------------------------------------------------

    async def _run_on_loop(self) -> None:
        entry = self._entry()
        try:
            await self._await_each(entry)
        except BaseException as error:  # noqa: BLE001 - a fault of ours, which ends the worker
            self._failed(error)
        finally:
            entry.end()
            self._entries_free.append(entry)

    async def _await_each(self, entry: RecordEntry) -> None:
        """As `Callers._call_each`, with calls that are awaited."""
        todo, now_s, began_s = self._turns.todo, monotonic, inf
        quick = self._turns.quick
        turn_end_s = now_s() + LOOP_TURN_S
        while True:
            try:
                task = todo.popleft()
            except IndexError:
                if (more := self._more(entry, quick)) is None:
                    return
                task, began_s = more, inf
            at_s = now_s()
            quick = quick + 1 if at_s - began_s < QUICK_S else 0
            if at_s > turn_end_s:
                await asyncio.sleep(0)
                at_s = now_s()
                turn_end_s = at_s + LOOP_TURN_S
            began_s = at_s
            if self._may_at_once(task, entry, at_s):
                error = await self._awaited(task)
                if error is None or not self._work.is_void(error):
                    if not self._told(task, None if error is None else outcome(error)):
                        return
                    continue
            leave_if_child()
            entry.end()
            if self._handed_over(task):
                return

    async def _awaited(self, task: Task) -> BaseException | None:
        caller = asyncio.current_task() if self._timed else None
        if caller is not None:
            self._awaited_by[task] = caller
        try:
            await self._handler.checked(self._delivery(task))
        except BaseException as error:  # noqa: BLE001 - a message fails, whatever is raised
            leave_if_child(error)
            return as_ordinary(error)
        finally:
            if caller is not None:
                del self._awaited_by[task]
        leave_if_child()
        return None

    def _told(self, task: Task, error: str | None) -> bool:
        if self._timed:
            return self._over(task, error)
        self._turns.ended.append((task, error))
        return True

    # --- threads in their place -------------------------------------------------------------------

    def _handed_over(self, task: Task) -> bool:
        """Let a thread go on with what is special, in the place of this caller."""
        try:
            self.pool.submit(partial(self._run_apart, task))
        except RuntimeError as error:  # there is no thread, and none can be had
            return not self._over(task, told(error))
        return True

    def _run_apart(self, task: Task) -> None:
        entry = self._entry()
        try:
            if self._call_apart(task, entry):
                self._go_on_with_loop()
        except BaseException as error:  # noqa: BLE001 - a fault of ours, which ends the worker
            self._failed(error)
        finally:
            entry.end()
            self._entries_free.append(entry)

    def _go_on_with_loop(self) -> None:
        with self._lock:
            self._turns.active -= 1
            try:
                self._work.turn()
            except BaseException as error:  # noqa: BLE001 - a fault of ours, which ends the worker
                self._work.fail(error)
            self._lock.notify_all()

    def _outcome(self, task: Task) -> BaseException | None:
        """As that of a thread: it waits for the loop."""
        answered: SimpleQueue[BaseException | None] = SimpleQueue()
        try:
            cancel = self._handler.begin(self._delivery(task), answered.put)
        except Exception as error:  # noqa: BLE001 - the handler's loop is closed, or it is refused
            return error
        with self._lock:
            if task.over:
                cancel()
            else:
                self._cancels[task] = cancel
        raised = answered.get()
        with self._lock:
            self._cancels.pop(task, None)
        return raised
