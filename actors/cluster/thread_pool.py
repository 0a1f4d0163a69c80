"""`ThreadPool`: threads that make blocking calls, as many as are needed at once, up to a bound.

Rules of this file. Threads are daemons, because a call that never returns must not keep a process
alive. A thread is made when all others are busy, and ends when the pool is closed. An exception of
a call is logged, and its thread goes on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

from pxrs_ray.supervision.supervisor import Supervisor


class ThreadPool:
    """Up to `threads_max` threads; further calls wait in a queue."""

    def __init__(self, name: str, threads_max: int) -> None:
        assert threads_max >= 1
        self._name = name
        self._supervisor = Supervisor(name)
        self._threads_max = threads_max
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._busy = 0
        self._closed = False

    def submit(self, call: Callable[[], None]) -> None:
        """Make the call soon; it should raise nothing.

        Raises RuntimeError when no thread can be started and there is none.
        """
        with self._lock:
            assert not self._closed, "the pool is closed"
            self._busy += 1
            grows = self._busy > self._threads and self._threads < self._threads_max
            self._threads += grows
            number = self._threads
        if grows:
            try:
                self._supervisor.thread(f"{self._name}-{number}", self._run).start()
            except RuntimeError:  # the system gives no more threads
                with self._lock:
                    self._threads -= 1
                    alone = self._threads == 0
                    self._busy -= alone
                if alone:
                    raise
        self._calls.put(call)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                call()
            except BaseException as error:  # noqa: BLE001 - it ends neither thread nor worker
                self._supervisor.note("a call", error)
            finally:
                with self._lock:
                    self._busy -= 1

    def close(self) -> None:
        """Let every thread end after what it is at; does not wait."""
        with self._lock:
            self._closed = True
            threads = self._threads
        for _ in range(threads):
            self._calls.put(None)
