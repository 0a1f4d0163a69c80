"""Time, processes and threads of a simulated machine.

Rules of this file. One thing runs at a time, the event loop or one thread, and the next begins
where that blocks; when all are blocked, time jumps to the next timer. Everything runs as part of a
`Process`. A process that is killed runs nothing more: no callback, no `finally` of a task; its
threads are unwound, and whatever they do on their way has no effect.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import os
import threading
import warnings
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from tests.world.loop import PROCESS, Loop, Process, ProcessGone, Stuck, alive

UNWINDS_MAX = 200
START_S = 1_000.0
WALL_S = 1_800_000_000.0


class SimThread:
    """A thread that runs only while it holds the baton; a part of `threading.Thread`."""

    def __init__(
        self,
        group: None = None,
        target: Callable[..., object] | None = None,
        name: str = "thread",
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        daemon: bool | None = None,
    ) -> None:
        self._kernel = Kernel.current()
        self._target, self._args, self._kwargs = target, args, kwargs or {}
        self.name, self.daemon = name, daemon
        self.ident: int | None = None
        self.process = PROCESS.get()
        self.go = threading.Semaphore(0)
        self.waiting_for: object = None
        self.woken = False
        self.unwinds = 0
        self._over = False
        self._joiners: list[Callable[[], None]] = []

    def run(self) -> None:
        if self._target is not None:
            self._target(*self._args, **self._kwargs)

    def start(self) -> None:
        context = contextvars.copy_context()
        if self.process is not None:
            self.process.threads.add(self)
        real = threading.Thread(target=context.run, args=(self._body,), daemon=True)
        real.start()
        self._kernel.soon(self._kernel.let_run, self)

    def _body(self) -> None:
        self.go.acquire()
        self.ident = threading.get_ident()
        try:
            if alive():
                self.run()
        except ProcessGone:
            pass
        except SystemExit:
            pass
        except BaseException as error:
            self._kernel.thread_failed(self, error)
        finally:
            self._over = True
            if self.process is not None:
                self.process.threads.discard(self)
            for tell in self._joiners:
                self._kernel.soon(tell)
            self._kernel.back.release()

    def is_alive(self) -> bool:
        return not self._over

    def join(self, timeout: float | None = None) -> None:
        self._kernel.wait(lambda: self._over, self._joiners, timeout)

    def setDaemon(self, daemon: bool) -> None:  # noqa: N802 - the standard library's
        self.daemon = daemon


class Kernel:
    """The machine. `run` a coroutine on it; everything it starts belongs to it."""

    _current: Kernel | None = None

    def __init__(self) -> None:
        self.now_s = START_S
        self.wall_s = WALL_S - START_S
        self.back = threading.Semaphore(0)
        self.running: SimThread | None = None
        self.processes: list[Process] = []
        self.faults: list[str] = []
        self._pids = itertools.count(100)
        self._pools: dict[int, tuple[object, list[Callable[[], None]]]] = {}
        self.loop = Loop(self)
        self.loop.set_task_factory(self._make_task)
        self.loop.set_exception_handler(self._loop_failed)

    @classmethod
    def current(cls) -> Kernel:
        assert cls._current is not None, "no simulated machine runs"
        return cls._current

    def next_pid(self) -> int:
        # Far above what a real machine gives, so that no real process is ever meant.
        return (1 << 30) + next(self._pids)

    def process(self, name: str, node: str = "node") -> Process:
        made = Process(self, name, node)
        self.processes.append(made)
        return made

    def run(self, main: Coroutine[Any, Any, Any]) -> Any:
        """Run it to its end, then end every process."""
        Kernel._current = self
        try:
            return self.loop.run_until_complete(main)
        finally:
            self._end()
            Kernel._current = None

    def _end(self) -> None:
        for process in self.processes:
            self.kill(process)
        with suppress(Stuck):
            for _ in range(50):
                self.loop.call_soon(lambda: None)
                self.loop.run_until_complete(_nothing())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._forget_tasks()
        self.loop._ready.clear()  # type: ignore[attr-defined]
        self.loop._scheduled.clear()  # type: ignore[attr-defined]
        self.loop.close()

    def _forget_tasks(self) -> None:
        """Let the dead's coroutines end; they change nothing any more."""
        for process in self.processes:
            for task in process.tasks:
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                with suppress(BaseException):
                    process.context.run(task.get_coro().close)  # type: ignore[union-attr]
            process.tasks.clear()

    # --- time -------------------------------------------------------------------------------------

    def sleep(self, seconds: float) -> None:
        """Block whoever calls; where that is the loop, everything stands still meanwhile."""
        if self.running is None:
            if not alive():
                raise ProcessGone
            self.now_s += max(0.0, seconds)
        else:
            self.wait(lambda: False, [], seconds)

    def soon(self, do: Callable[..., object], *args: Any) -> None:
        """Let the machine do something, whoever asks for it."""
        self.loop.call_soon(do, *args, context=contextvars.Context())

    def later(self, seconds: float, do: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
        """Let the machine do something later."""
        when = self.now_s + seconds
        return self.loop.call_at(when, do, *args, context=contextvars.Context())

    # --- processes --------------------------------------------------------------------------------

    def kill(self, process: Process) -> None:
        """As SIGKILL does."""
        if not process.alive:
            return
        process.alive = False
        for task in process.tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        for thread in list(process.threads):
            self.soon(self._unwind, thread)
        for descriptor in list(process.descriptors):
            with suppress(OSError):
                os.close(descriptor)
        process.descriptors.clear()
        for tell in process.at_death:
            self.soon(tell)

    def _unwind(self, thread: SimThread) -> None:
        if thread.is_alive() and thread.unwinds < UNWINDS_MAX:
            self.let_run(thread)

    def _make_task(self, loop: Any, coroutine: Any, context: Any = None) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, context=context)
        process = context.get(PROCESS) if context is not None else PROCESS.get()
        if process is not None:
            process.tasks.add(task)
            task.add_done_callback(process.tasks.discard)
        return task

    def _loop_failed(self, loop: Any, context: dict[str, Any]) -> None:
        error = context.get("exception")
        # What contains every end makes an error of this one, too.
        gone = isinstance(error, ProcessGone) or isinstance(error and error.__cause__, ProcessGone)
        if error is not None and not gone:
            self.faults.append(f"{context.get('message')}: {error!r}")

    def thread_failed(self, thread: SimThread, error: BaseException) -> None:
        if thread.process is None or thread.process.alive:
            self.faults.append(f"thread {thread.name} of {thread.process}: {error!r}")

    # --- threads ----------------------------------------------------------------------------------

    def thread(self, run: Callable[[], None], name: str, *, of: object = None) -> None:
        """Run on a thread; those `of` one pool, one after the other."""
        if of is None:
            SimThread(target=run, name=name).start()
            return
        _, waiting = self._pools.setdefault(id(of), (of, []))
        context = contextvars.copy_context()
        waiting.append(lambda: context.run(run))
        if len(waiting) == 1:
            SimThread(target=self._work, args=(waiting,), name=name).start()

    @staticmethod
    def _work(waiting: list[Callable[[], None]]) -> None:
        while waiting:
            waiting[0]()
            del waiting[0]

    def let_run(self, thread: SimThread) -> None:
        """On the loop: hand the baton to a thread, until it blocks or ends."""
        assert self.running is None
        if not thread.is_alive():
            return
        self.running = thread
        thread.go.release()
        self.back.acquire()
        self.running = None

    def wait(
        self,
        over: Callable[[], bool],
        wakers: list[Callable[[], None]],
        timeout: float | None = None,
    ) -> bool:
        """Block the running thread until `over`; looked at when one of `wakers` is called."""
        if over():
            return True
        thread = self.running
        if thread is None:
            raise RuntimeError("the event loop would wait, and with it everything")
        end_s = None if timeout is None else self.now_s + max(0.0, timeout)
        while not over():
            if not alive():
                thread.unwinds += 1
                if thread.unwinds > UNWINDS_MAX:
                    self._park(thread)
                raise ProcessGone
            if end_s is not None and self.now_s >= end_s:
                return over()
            token = thread.waiting_for = object()

            def wake(token: object = token) -> None:
                self.soon(resume, token)

            def resume(token: object) -> None:
                if thread.waiting_for is token:
                    thread.waiting_for = None
                    self.let_run(thread)

            wakers.append(wake)
            timer = None if end_s is None else self.later(end_s - self.now_s, resume, token)
            self.back.release()
            thread.go.acquire()
            thread.waiting_for = None
            if timer is not None:
                timer.cancel()
            if wake in wakers:
                wakers.remove(wake)
        if not alive():
            thread.unwinds += 1
            raise ProcessGone
        return True

    def _park(self, thread: SimThread) -> None:
        """A dead thread that does not end holds up nobody."""
        self.back.release()
        threading.Semaphore(0).acquire()


async def _nothing() -> None:
    await asyncio.sleep(0)


__all__ = ["PROCESS", "Kernel", "Process", "ProcessGone", "SimThread", "Stuck", "alive"]
