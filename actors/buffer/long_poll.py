"""Waits for a change of some partitions, with a deadline, that miss no change: `LongPoll` for a
task, `HeldCall` for a call that no task makes."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Coroutine, Set
from types import TracebackType
from typing import Any, Protocol, Self

from pxrs_ray.errors import LogAway
from pxrs_ray.model import PartitionId
from pxrs_ray.supervision.supervisor import beside

Place = tuple[str, PartitionId]
Tell = Callable[[Any], None]


class Waiter(Protocol):
    """What waits."""

    def wake(self, place: Place) -> None:
        """Let the wait end: something has changed at `place`."""


Waiting = dict[Place, set[Waiter]]


class LongPoll:
    """Enter the `with` before looking at the logs: a change between the look and `wait` ends the
    wait."""

    def __init__(self, waiting: Waiting, places: Collection[Place], wait_ms: int) -> None:
        self._waiting, self._places = waiting, places
        self._event = asyncio.Event()
        self._changed: set[Place] = set()
        self._loop = asyncio.get_running_loop()
        self._end = self._loop.time() + wait_ms / 1_000
        self._timer = self._loop.call_at(self._end, self._event.set) if wait_ms > 0 else None

    @property
    def over(self) -> bool:
        """Whether the deadline has passed."""
        return self._timer is None or self._loop.time() >= self._end

    def end(self) -> None:
        """Let the wait end now: nobody wants its answer any more."""
        self._end = 0.0
        self._event.set()

    def wake(self, place: Place) -> None:
        """Let the wait end: something has changed at `place`."""
        self._changed.add(place)
        self._event.set()

    async def wait(self) -> set[Place]:
        """Return at the next change, or at the deadline: what has changed since the last wait."""
        await self._event.wait()
        self._event.clear()
        changed, self._changed = self._changed, set()
        return changed

    def __enter__(self) -> Self:
        for place in self._places:
            self._waiting.setdefault(place, set()).add(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for place in self._places:
            there = self._waiting[place]
            there.discard(self)
            if not there:
                del self._waiting[place]


class HeldCall(ABC):
    """A call that looks again when one of `places` changes, until it has found something or its
    time is over; then who wants to know it hears it, once.

    A task that waits costs several turns of the event loop with each message. This costs one, in
    which it looks once at all that has changed meanwhile.
    """

    def __init__(self, waiting: Waiting, places: Collection[Place], wait_ms: int) -> None:
        self._waiting, self._places = waiting, places
        self._changed: set[Place] = set()
        self._wanted_by: tuple[Tell, Tell] | None = None
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(wait_ms / 1_000, self.end)
        self._will_look = self._is_over = False
        for place in places:
            waiting.setdefault(place, set()).add(self)

    @abstractmethod
    def look(self, changed: Set[Place], *, final: bool) -> Any:
        """What is there now; None to wait on, or a coroutine that finds out, which makes no
        difference to `final`. At the end `final` is true, and it must find something.
        """

    def then(self, tell: Tell, fail: Tell) -> None:
        """Who hears what it has found, or what went wrong; to be said before anybody else runs."""
        self._wanted_by = (tell, fail)

    def wake(self, place: Place) -> None:
        """Look soon at what has changed."""
        self._changed.add(place)
        self._look_soon()

    def end(self) -> None:
        """Let it end now, with what there is."""
        self._is_over = True
        self._look_soon()

    def _look_soon(self) -> None:
        if not self._will_look:
            self._will_look = True
            self._loop.call_soon(self._look_again)

    def _look_again(self) -> None:
        if self._wanted_by is None:
            return
        self._will_look = False
        changed, self._changed = self._changed, set()
        try:
            found = self.look(changed, final=self._is_over)
        except Exception as error:  # noqa: BLE001 - it is the caller's, whatever it is
            self._answer(error, failed=True)
            return
        if asyncio.iscoroutine(found):
            self.await_look(found)
        elif found is not None:
            self._answer(found)

    def await_look(self, look: Coroutine[Any, Any, Any]) -> None:
        """Look no further before this has looked."""
        self._will_look = True
        beside(lambda: look).add_done_callback(self._looked)

    def _looked(self, task: asyncio.Task[Any]) -> None:
        self._will_look = False
        if task.cancelled() or task.exception() is not None:
            error = None if task.cancelled() else task.exception()
            self._answer(error or LogAway("the buffer ended while it read"), failed=True)
        elif task.result() is not None:
            self._answer(task.result())
        elif self._changed or self._is_over:
            self._look_soon()

    def _answer(self, found: Any, *, failed: bool = False) -> None:
        wanted_by = self._wanted_by
        self.forget()
        if wanted_by is not None:
            wanted_by[failed](found)

    def forget(self) -> None:
        """Wait no more; nobody hears anything of it."""
        self._wanted_by = None
        self._timer.cancel()
        for place in self._places:
            there = self._waiting.get(place)
            if there is not None:
                there.discard(self)
                if not there:
                    del self._waiting[place]


def wake(waiting: Waiting, place: Place) -> None:
    """End every wait that looks at `place`."""
    for poll in waiting.get(place, ()):
        poll.wake(place)
