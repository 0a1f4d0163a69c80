"""What threads wait for each other with, on a simulated machine: locks, queues, futures, pools.

Each class is the part of the standard library's that the product uses, by the same names.
"""

from __future__ import annotations

import contextvars
import queue
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from typing import Any

from tests.world.kernel import Kernel, SimThread, alive

Wakers = list[Callable[[], None]]


def _wake(wakers: Wakers, count: int | None = None) -> None:
    for wake in wakers[:count]:
        wake()
    del wakers[:count]


class Lock:
    """A lock; nobody else runs while its holder does, so only a holder that waits is waited for."""

    reentrant = False

    def __init__(self) -> None:
        self._kernel = Kernel.current()
        self._holder: object = None
        self._depth = 0
        self._wakers: Wakers = []

    def _me(self) -> object:
        return self._kernel.running or self._kernel

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if self.reentrant and self._holder is self._me():
            self._depth += 1
            return True
        if self._holder is not None:
            if not blocking:
                return False
            limit = None if timeout < 0 else timeout
            if not self._kernel.wait(lambda: self._holder is None, self._wakers, limit):
                return False
        self._holder, self._depth = self._me(), 1
        return True

    def release(self) -> None:
        self._depth -= 1
        if self._depth <= 0:
            self._holder = None
            _wake(self._wakers, 1)

    def locked(self) -> bool:
        return self._holder is not None

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()


class RLock(Lock):
    reentrant = True


class Condition:
    def __init__(self, lock: Lock | None = None) -> None:
        self._kernel = Kernel.current()
        self._lock = lock or RLock()
        self.acquire, self.release = self._lock.acquire, self._lock.release
        self._waiting: list[list[bool]] = []
        self._wakers: Wakers = []

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()

    def wait(self, timeout: float | None = None) -> bool:
        told = [False]
        self._waiting.append(told)
        holder, depth = self._lock._holder, self._lock._depth
        self._lock._depth = 1
        self.release()
        try:
            return self._kernel.wait(lambda: told[0], self._wakers, timeout)
        finally:
            if told in self._waiting:
                self._waiting.remove(told)
            if alive():
                self._kernel.wait(lambda: self._lock._holder is None, self._lock._wakers)
            self._lock._holder, self._lock._depth = holder, depth

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        end_s = None if timeout is None else self._kernel.now_s + timeout
        while not (found := predicate()):
            left_s = None if end_s is None else end_s - self._kernel.now_s
            if left_s is not None and left_s <= 0:
                break
            self.wait(left_s)
        return found

    def notify(self, n: int = 1) -> None:
        for told in self._waiting[:n]:
            told[0] = True
        _wake(self._wakers)

    def notify_all(self) -> None:
        self.notify(len(self._waiting))


class Event:
    def __init__(self) -> None:
        self._kernel = Kernel.current()
        self._set = False
        self._wakers: Wakers = []

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        _wake(self._wakers)

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        return self._kernel.wait(lambda: self._set, self._wakers, timeout)


class Semaphore:
    def __init__(self, value: int = 1) -> None:
        self._kernel = Kernel.current()
        self._value = value
        self._wakers: Wakers = []

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        if not self._value and not blocking:
            return False
        if not self._kernel.wait(lambda: self._value > 0, self._wakers, timeout):
            return False
        self._value -= 1
        return True

    def release(self, n: int = 1) -> None:
        self._value += n
        _wake(self._wakers)

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()


class SimpleQueue:
    def __init__(self, maxsize: int = 0) -> None:
        self._kernel = Kernel.current()
        self._maxsize = maxsize
        self._items: deque[Any] = deque()
        self._wakers: Wakers = []

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        if self._maxsize and len(self._items) >= self._maxsize:
            full = not block or not self._kernel.wait(
                lambda: len(self._items) < self._maxsize, self._wakers, timeout
            )
            if full:
                raise queue.Full
        self._items.append(item)
        _wake(self._wakers)

    def put_nowait(self, item: Any) -> None:
        self.put(item, block=False)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        if not self._items and not block:
            raise queue.Empty
        if not self._kernel.wait(lambda: bool(self._items), self._wakers, timeout):
            raise queue.Empty
        item = self._items.popleft()
        _wake(self._wakers)
        return item

    def get_nowait(self) -> Any:
        return self.get(block=False)

    def empty(self) -> bool:
        return not self._items

    def qsize(self) -> int:
        return len(self._items)


class Future(futures.Future[Any]):
    """As the standard library's; its callbacks run as the process that added them, or never."""

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        context = contextvars.copy_context()

        def tell(done: Any) -> None:
            if context.run(alive):
                context.copy().run(fn, done)

        super().add_done_callback(tell)

    def result(self, timeout: float | None = None) -> Any:
        self._await(timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._await(timeout)
        return super().exception(0)

    def _await(self, timeout: float | None) -> None:
        if self.done():
            return
        wakers: Wakers = []
        super().add_done_callback(lambda _: _wake(wakers))
        if not Kernel.current().wait(self.done, wakers, timeout):
            raise TimeoutError


class Pool(futures.Executor):
    """As ThreadPoolExecutor: each call on a thread of its own, one after the other where `one`."""

    def __init__(self, max_workers: int | None = None, *args: Any, **kwargs: Any) -> None:
        self._one = max_workers == 1

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future:
        done = Future()

        def run() -> None:
            try:
                answer = fn(*args, **kwargs)
            except Exception as error:
                done.set_exception(error)
            else:
                done.set_result(answer)

        Kernel.current().thread(run, "pool", of=self if self._one else None)
        return done

    def map(  # type: ignore[override]
        self, fn: Callable[..., Any], *iterables: Iterable[Any], **_: Any
    ) -> Iterator[Any]:
        # On the thread of whoever asks: the answers are the same, and the order is one.
        return iter([fn(*given) for given in zip(*iterables, strict=False)])

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        pass


__all__ = [
    "Condition",
    "Event",
    "Future",
    "Lock",
    "Pool",
    "RLock",
    "Semaphore",
    "SimThread",
    "SimpleQueue",
]
