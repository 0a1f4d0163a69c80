"""Processes, and the event loop that runs what belongs to the living ones, at a time made up."""

from __future__ import annotations

import asyncio
import contextvars
import selectors
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.world.kernel import Kernel, SimThread

TURN_S = 2e-6


class ProcessGone(BaseException):
    """Raised in code of a process that was killed, to end it."""


class Stuck(Exception):
    """Raised when everything waits and no timer is left."""


class Process:
    """Something that can be killed: an actor's process, or a driver's."""

    def __init__(self, kernel: Kernel, name: str, node: str) -> None:
        self.pid = kernel.next_pid()
        self.name = name
        self.node = node
        self.alive = True
        self.tasks: set[asyncio.Task[Any]] = set()
        self.threads: set[SimThread] = set()
        self.descriptors: set[int] = set()
        self.at_death: list[Callable[[], None]] = []
        self.context = contextvars.copy_context()
        self.context.run(PROCESS.set, self)

    def __repr__(self) -> str:
        return f"{self.name} (pid {self.pid}{'' if self.alive else ', dead'})"


PROCESS: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)


def alive() -> bool:
    """Whether the code that asks belongs to a living process, or to the machine itself."""
    process = PROCESS.get()
    return process is None or process.alive


class _Jumps(selectors.SelectSelector):
    """Never waits: it lets time pass."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self._kernel = kernel

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise Stuck("everything waits, and no timer is left")
        self._kernel.now_s += max(timeout, 0.0) + TURN_S
        return []


class Loop(asyncio.SelectorEventLoop):
    """Runs the callbacks of living processes only, at the kernel's time."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        super().__init__(_Jumps(kernel))

    def time(self) -> float:
        return self._kernel.now_s

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.Handle:
        return super().call_soon(_if_alive(callback, context), *args, context=context)

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        return super().call_at(when, _if_alive(callback, context), *args, context=context)

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:
        done = self.create_future()

        def run() -> None:
            try:
                answer = func(*args)
            except Exception as error:
                _settle(done, None, error)
            else:
                _settle(done, answer, None)

        self._kernel.thread(run, "pool", of=executor)
        return done

    def _write_to_self(self) -> None:
        """Nobody sleeps who would have to be woken."""


def _settle(done: asyncio.Future[Any], answer: Any, error: BaseException | None) -> None:
    def settle() -> None:
        if done.cancelled():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(answer)

    done.get_loop().call_soon(settle)


def _if_alive(callback: Callable[..., object], context: Any) -> Callable[..., object]:
    process = context.get(PROCESS) if context is not None else PROCESS.get()
    if process is None:
        return callback

    def run(*args: Any) -> None:
        if process.alive:
            callback(*args)

    return run
