"""`DeferredEvents`: callbacks that wait until a number of records is durable, called in order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


class DeferredEvents:
    """For one event loop. A callback gets None, or the error because of which it waited in vain."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, Callable[[BaseException | None], None]]] = deque()
        self._marks: dict[int, asyncio.Future[None]] = {}

    def add(self, after: int, do: Callable[[], None]) -> None:
        """Call `do` when that many records are durable; never, when they are forgotten."""
        self._waiting.append((after, lambda error: do() if error is None else None))

    def mark(self, after: int) -> asyncio.Future[None]:
        """Done when that many records are durable: one for all who wait for the same."""
        known = self._marks.get(after)
        if known is not None:
            return known
        mark = self._marks[after] = asyncio.get_running_loop().create_future()

        def finish(error: BaseException | None) -> None:
            del self._marks[after]
            if error is None:
                mark.set_result(None)
            else:
                mark.set_exception(error)
                mark.exception()  # is not missed by those who have gone

        self._waiting.append((after, finish))
        return mark

    def release(self, durable: int) -> None:
        """Let go of everything that waited for what is durable now, in order."""
        while self._waiting and self._waiting[0][0] <= durable:
            self._waiting.popleft()[1](None)

    def let_go(self, error: BaseException) -> None:
        """Nothing that is waited for becomes durable any more."""
        while self._waiting:
            self._waiting.popleft()[1](error)
