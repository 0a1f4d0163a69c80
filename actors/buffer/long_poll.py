"""Long polls: waits for a change of some partitions, with a deadline, that miss no change.
`LongPoll` is for a task, `HeldCall` for a call without a task. `HeldState` decides when each looks.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Coroutine, Set
from types import TracebackType
from typing import Any, Self

from pxrs_ray.errors import LogAway
from pxrs_ray.log.held_calls import HeldState, Waiting, enter, leave
from pxrs_ray.model import QueuePartition
from pxrs_ray.supervision.supervisor import beside

AnswerCall = Callable[[Any], None]


class LongPoll:
    """Enter the `with` before looking at the logs: a change between the look and `wait` ends the
    wait. `over` says whether the look that comes is the last one."""

    def __init__(self, waiting: Waiting, places: Collection[QueuePartition], wait_ms: int) -> None:
        self._waiting, self._places = waiting, places
        self._event = asyncio.Event()
        self._state = HeldState(looking=True)
        self._loop = asyncio.get_running_loop()
        self._end = self._loop.time() + wait_ms / 1_000
        self._timer = self._loop.call_at(self._end, self.end) if wait_ms > 0 else None

    @property
    def over(self) -> bool:
        """Whether the deadline has passed."""
        return self._timer is None or self._state.over or self._loop.time() >= self._end

    def end(self) -> None:
        """Let the wait end now: its time is over, or nobody wants its answer any more."""
        if self._state.ended():
            self._event.set()

    def wake(self, place: QueuePartition) -> None:
        """Let the wait end: something has changed at `place`."""
        if self._state.woken(place):
            self._event.set()

    async def wait(self) -> set[QueuePartition]:
        """Return at the next change, or at the deadline: what has changed since the last wait."""
        if not self._state.found_nothing():
            await self._event.wait()
            self._event.clear()
        return self._state.begin_look()[0]

    def __enter__(self) -> Self:
        enter(self._waiting, self._places, self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        leave(self._waiting, self._places, self)


class HeldCall(HeldState, ABC):
    """A call that looks again when one of `places` changes, until it has found something or its
    time is over; then who wants to know it hears it, once.

    A task that waits costs several turns of the event loop with each message. This costs one, in
    which it looks once at all that has changed meanwhile.
    """

    def __init__(self, waiting: Waiting, places: Collection[QueuePartition], wait_ms: int) -> None:
        super().__init__(looking=False)
        self._waiting, self._places = waiting, places
        self._wanted_by: tuple[AnswerCall, AnswerCall] | None = None
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(wait_ms / 1_000, self.end)
        enter(waiting, places, self)

    @abstractmethod
    def look(self, changed: Set[QueuePartition], *, final: bool) -> Any:
        """What is there now; None to wait on, or a coroutine that finds out, which makes no
        difference to `final`. At the end `final` is true, and it must find something.
        """

    def then(self, tell: AnswerCall, fail: AnswerCall) -> None:
        """Who hears what it has found, or what went wrong; to be said before anybody else runs."""
        self._wanted_by = (tell, fail)

    def wake(self, place: QueuePartition) -> None:
        """Look soon at what has changed."""
        if self.woken(place):
            self._loop.call_soon(self._look_again)

    def end(self) -> None:
        """Let it end now, with what there is."""
        if self.ended():
            self._loop.call_soon(self._look_again)

    def _look_again(self) -> None:
        if self._wanted_by is None:
            return
        changed, final = self.begin_look()
        try:
            found = self.look(changed, final=final)
        except Exception as error:  # noqa: BLE001 - it is the caller's, whatever it is
            self._answer(error, failed=True)
            return
        if asyncio.iscoroutine(found):
            self._await(found)
        else:
            self._found(found, final=final)

    def await_look(self, look: Coroutine[Any, Any, Any]) -> None:
        """Look no further before this first look has looked."""
        self.begin_look()
        self._await(look)

    def _await(self, look: Coroutine[Any, Any, Any]) -> None:
        beside(lambda: look).add_done_callback(self._looked)

    def _looked(self, task: asyncio.Task[Any]) -> None:
        if task.cancelled() or task.exception() is not None:
            error = None if task.cancelled() else task.exception()
            self._answer(error or LogAway("the buffer ended while it read"), failed=True)
        else:
            self._found(task.result(), final=False)

    def _found(self, found: Any, *, final: bool) -> None:
        if found is not None:
            self._answer(found)
        elif self.found_nothing(final=final):
            self._loop.call_soon(self._look_again)

    def _answer(self, found: Any, *, failed: bool = False) -> None:
        wanted_by = self._wanted_by
        self.forget()
        if wanted_by is not None:
            wanted_by[failed](found)

    def forget(self) -> None:
        """Wait no more; nobody hears anything of it."""
        self._wanted_by = None
        self._timer.cancel()
        leave(self._waiting, self._places, self)
