"""`Supervisor`: runs every loop and thread of the product. Nothing ends silently.

Rules of this file. What a loop or thread raises (BaseException: also SystemExit, and a
CancelledError or GeneratorExit that some code raised) never leaves it: it is logged and shown as a
trouble of its place, and the work starts again after a pause, or is given up, as
`pxrs_ray.supervision.restart_rules` decides. Only a requested cancellation ends it quietly. No
other code makes tasks or threads: a tidy test checks that.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, TypeVar

from pxrs_ray.supervision.forks import leave_if_child
from pxrs_ray.supervision.restart_rules import FaultsInARow, RestartRules, Troubles, told

logger = logging.getLogger(__name__)

T = TypeVar("T")

CANCEL_AGAIN_S = 0.1
CLOSE_WAIT_S = 10.0

_lock = threading.Lock()
_of_process: weakref.WeakSet[Supervisor] = weakref.WeakSet()

GaveUp = Callable[[BaseException], None]


class Supervisor:
    """The loops, tasks and threads of one owner, which closes it."""

    def __init__(self, owner: str, rules: RestartRules | None = None) -> None:
        self.owner = owner
        self._rules = rules or RestartRules()
        self._troubles = Troubles(self._rules.quiet_s)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closing = False
        with _lock:
            _of_process.add(self)

    # --- tasks: on the owner's event loop ---------------------------------------------------------

    def keep(
        self,
        place: str,
        work: Callable[[], Coroutine[Any, Any, None]],
        gave_up: GaveUp | None = None,
    ) -> asyncio.Task[None]:
        """Do `work` until it returns, or the task is cancelled; a fault begins it again.

        `gave_up` gets the last fault, when the rules say that it was one too many.
        """
        return self._task(self._keep(place, work, gave_up), place)

    def once(
        self, place: str, work: Coroutine[Any, Any, T], failed: GaveUp | None = None
    ) -> asyncio.Task[T | None]:
        """Do `work` once, in the background. A fault is logged, goes to `failed`, and answers None.

        A `PxrsError` is a fault here like any other: who expects one deals with it in `work`.
        """
        task = self._task(self._once(place, work, failed), place)
        # Cancelled before it could begin, the work would be a coroutine that nobody awaited.
        task.add_done_callback(lambda _: work.close())
        return task

    def _task(self, work: Coroutine[Any, Any, T], place: str) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work, name=f"{self.owner}: {place}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _keep(
        self, place: str, work: Callable[[], Coroutine[Any, Any, None]], gave_up: GaveUp | None
    ) -> None:
        faults = FaultsInARow(self._rules)
        task = asyncio.current_task()
        while not self._closing:
            try:
                await work()
            except BaseException as error:
                if is_asked_for(error, task):
                    raise
                pause_s = faults.failed(time.monotonic())
                self.note(place, error, for_good=pause_s is None)
                if pause_s is None:
                    self._tell(place, gave_up, error)
                    return
            else:
                self.over(place)
                return
            await asyncio.sleep(pause_s)

    async def _once(
        self, place: str, work: Coroutine[Any, Any, T], failed: GaveUp | None
    ) -> T | None:
        task = asyncio.current_task()
        try:
            return await work
        except BaseException as error:
            if is_asked_for(error, task):
                raise
            self.note(place, error)
            self._tell(place, failed, error)
            return None

    async def close(self) -> None:
        """End every task; what a thread does, its owner ends."""
        self._closing = True
        mine = asyncio.current_task()
        pending = {task for task in self._tasks if task is not mine}
        end_s = time.monotonic() + CLOSE_WAIT_S
        while pending and time.monotonic() < end_s:
            # Again and again: in Python 3.11 `wait_for` may swallow a cancellation.
            for task in pending:
                task.cancel()
            _, pending = await asyncio.wait(pending, timeout=CANCEL_AGAIN_S)
        for task in pending:
            logger.error("%s does not end, and is left", task.get_name())

    # --- threads ----------------------------------------------------------------------------------

    def thread(
        self, place: str, work: Callable[[], None], *, again: Callable[[], bool] | None = None
    ) -> threading.Thread:
        """A daemon thread that does `work`, not started yet. A fault goes to the log.

        Where there is `again`, the work begins once more after a fault, while that says so.
        """
        run = partial(self._run, place, work, again)
        return threading.Thread(target=run, name=place, daemon=True)

    def _run(self, place: str, work: Callable[[], None], again: Callable[[], bool] | None) -> None:
        faults = FaultsInARow(self._rules)
        while True:
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - nothing ends silently
                pause_s = faults.failed(time.monotonic())
                self.note(place, error, for_good=again is None or pause_s is None)
                if again is None or pause_s is None:
                    return
            else:
                return
            time.sleep(pause_s)
            if not again():
                return

    # --- troubles ---------------------------------------------------------------------------------

    def note(self, place: str, error: BaseException, *, for_good: bool = False) -> None:
        """Journal a fault, and show it."""
        self.trouble(place, told(error), for_good=for_good)
        logger.error(
            "%s: %s %s: %s",
            self.owner,
            place,
            "is given up" if for_good else "failed, and begins again",
            told(error),
            exc_info=(type(error), error, error.__traceback__),
        )

    def trouble(self, place: str, text: str, *, for_good: bool = False) -> None:
        """Show that something is wrong at `place`, until it is `over` or quiet for long."""
        self._troubles.note(place, text, time.monotonic(), for_good=for_good)

    def over(self, place: str) -> None:
        """All is well at `place`."""
        self._troubles.over(place)

    def problems(self) -> tuple[str, ...]:
        """What is wrong now, a line each."""
        return self._troubles.told(time.monotonic())

    def _tell(self, place: str, whom: GaveUp | None, error: BaseException) -> None:
        if whom is None:
            return
        try:
            whom(error)
        except Exception as worse:  # noqa: BLE001 - it is logged, and ends nothing else
            self.note(f"{place}, giving up", worse, for_good=True)


def problems_here() -> tuple[str, ...]:
    """What is wrong now in this process, whoever's it is."""
    with _lock:
        every = list(_of_process)
    return tuple(sorted(f"{s.owner}: {told}" for s in every for told in s.problems()))


def is_asked_for(error: BaseException, task: asyncio.Task[Any] | None) -> bool:
    """Whether this is an end that was asked for: a cancelled task, or a coroutine thrown away.

    Anybody's code can raise CancelledError and GeneratorExit too, and then it is a fault.
    """
    if isinstance(error, asyncio.CancelledError):
        return task is None or task.cancelling() > 0
    if isinstance(error, GeneratorExit):
        try:
            return task is None or asyncio.current_task() is not task
        except RuntimeError:  # no loop runs: the coroutine was collected
            return True
    return False


async def contained(work: Awaitable[T]) -> T:
    """Await what a user wrote. What would end the event loop is raised as an ordinary error."""
    task = asyncio.current_task()
    try:
        done = await work
    except BaseException as error:
        leave_if_child(error)
        if isinstance(error, Exception) or is_asked_for(error, task):
            raise
        raise as_ordinary(error) from error
    leave_if_child()
    return done


def as_ordinary(error: BaseException) -> Exception:
    """The same as an error that ends no event loop."""
    return error if isinstance(error, Exception) else RuntimeError(told(error))


def beside(call: Callable[..., Coroutine[Any, Any, T]], *arguments: Any) -> asyncio.Task[T]:
    """Make a call in a task of its own, for who awaits the task: what is raised is raised there.

    An end that it raises (SystemExit) is an ordinary error, and ends no event loop.
    """

    async def made() -> T:
        return await contained(call(*arguments))

    return asyncio.get_running_loop().create_task(made())


async def within(wait_s: float | None, work: Awaitable[T]) -> T:
    """Await `work` for so long at most. Raises TimeoutError; whoever is cancelled meanwhile ends.

    `asyncio.wait_for` of Python 3.11 forgets a cancellation that comes as its work is done: a loop
    that awaits with it may then go on for ever, and whoever waits for its end as well.
    """
    async with asyncio.timeout(wait_s):
        return await work


async def off_loop(call: Callable[..., T], *arguments: Any, threads: Executor | None = None) -> T:
    """Make a blocking call on a thread, and await it. Of an end that it raises comes an error.

    asyncio cannot pass a StopIteration on: who awaited that would wait for ever.
    """

    def make() -> T:
        try:
            return call(*arguments)
        except BaseException as error:
            if isinstance(error, Exception) and not isinstance(error, StopIteration):
                raise
            raise RuntimeError(told(error)) from error

    return await asyncio.get_running_loop().run_in_executor(threads, make)


class LoopThread:
    """An event loop on a thread of its own; nothing that runs on it can end it. Close it."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._ended = threading.Event()
        self._supervisor = Supervisor(name, RestartRules(pause_first_s=0.001, pause_most_s=0.1))
        self._thread = self._supervisor.thread(
            name, self._run_forever, again=lambda: not self._ended.is_set()
        )
        self._thread.start()

    def _run_forever(self) -> None:
        asyncio.set_event_loop(self.loop)
        # A SystemExit of a task gets out of here, and leaves everything else as it is.
        self.loop.run_forever()

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run it on the loop; called from any other thread."""
        return asyncio.run_coroutine_threadsafe(contained(work), self.loop)

    def problems(self) -> tuple[str, ...]:
        """What went wrong lately."""
        return self._supervisor.problems()

    def close(self, wait_s: float = 5.0) -> None:
        """Stop the loop, wait a while for its thread, and close it."""
        self._ended.set()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(wait_s)
        if not self._thread.is_alive():
            self.loop.close()
