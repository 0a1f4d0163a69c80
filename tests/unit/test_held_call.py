"""`HeldCall`: it looks when something changes, once for all that has, and answers once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Set
from typing import Any

from pxrs_ray.actors.buffer.long_poll import HeldCall
from pxrs_ray.errors import LogAway
from pxrs_ray.log.held_calls import Waiting, wake
from pxrs_ray.model import QueuePartition

LONG_MS = 60_000
PLACES = [("q", 0), ("q", 2)]


class Call(HeldCall):
    """Notes its looks, and finds what a test says; a list of what it has told."""

    def __init__(self, waiting: Waiting, wait_ms: int = LONG_MS) -> None:
        super().__init__(waiting, PLACES, wait_ms)
        self.looks: list[tuple[set[QueuePartition], bool]] = []
        self.finds: Callable[[], Any] = lambda: None
        self.told: list[Any] = []
        self.failed: list[Any] = []
        self.then(self.told.append, self.failed.append)

    def look(self, changed: Set[QueuePartition], *, final: bool) -> Any:
        self.looks.append((set(changed), final))
        found = self.finds()
        return [] if final and found is None else found


async def turns(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def run(test: Callable[[Waiting], Awaitable[None]]) -> None:
    async def made() -> None:
        waiting: Waiting = {}
        await asyncio.wait_for(test(waiting), 20)
        assert not waiting, "nothing is left of a call that is over"

    asyncio.run(made())


def test_it_looks_once_for_all_that_has_changed() -> None:
    async def test(waiting: Waiting) -> None:
        call = Call(waiting)
        for place in (*PLACES, PLACES[0], ("q", 1), ("other", 0)):
            wake(waiting, place)
        await turns()
        assert call.looks == [(set(PLACES), False)] and not call.told
        call.finds = lambda: ["found"]
        wake(waiting, PLACES[1])
        await turns()
        assert call.looks[1:] == [({PLACES[1]}, False)], "what was looked at is not again"
        assert call.told == [["found"]] and not call.failed
        wake(waiting, PLACES[1])
        call.end()
        await turns()
        assert call.told == [["found"]] and len(call.looks) == 2, "it answers once"

    run(test)


def test_at_the_end_it_answers_with_what_there_is() -> None:
    async def test(waiting: Waiting) -> None:
        in_time, ended = Call(waiting, 10), Call(waiting)
        ended.end()
        await turns()
        assert ended.told == [[]] and ended.looks == [(set(), True)] and not in_time.told
        await asyncio.sleep(0.1)
        assert in_time.told == [[]] and in_time.looks == [(set(), True)]

    run(test)


def test_nobody_hears_of_what_is_forgotten() -> None:
    async def test(waiting: Waiting) -> None:
        call = Call(waiting)
        wake(waiting, PLACES[0])
        call.forget()
        await turns()
        assert not call.looks and not call.told
        call.forget()

    run(test)


def test_a_look_that_fails_is_told() -> None:
    async def test(waiting: Waiting) -> None:
        call = Call(waiting)

        def fails() -> Any:
            raise KeyError("by accident")

        call.finds = fails
        wake(waiting, PLACES[0])
        await turns()
        assert isinstance(call.failed[0], KeyError) and not call.told

    run(test)


def test_what_changes_during_a_look_that_takes_long_is_looked_at_after_it() -> None:
    async def test(waiting: Waiting) -> None:
        call, go_on = Call(waiting), asyncio.Event()

        async def slow() -> Any:
            await go_on.wait()

        call.finds = slow
        wake(waiting, PLACES[0])
        await turns()
        wake(waiting, PLACES[1])
        await turns()
        assert len(call.looks) == 1, "one look at a time"
        call.finds = lambda: ["found"]
        go_on.set()
        await turns(6)
        assert call.looks[1:] == [({PLACES[1]}, False)] and call.told == [["found"]]

    run(test)


def test_an_end_during_a_look_that_takes_long_comes_after_it() -> None:
    async def test(waiting: Waiting) -> None:
        for outcome in (None, ["found"], LogAway("gone")):
            call, go_on = Call(waiting), asyncio.Event()

            async def slow(go_on: asyncio.Event = go_on, outcome: Any = outcome) -> Any:
                await go_on.wait()
                if isinstance(outcome, Exception):
                    raise outcome
                return outcome

            call.await_look(slow())
            call.end()
            await turns()
            assert not call.looks and not call.told
            go_on.set()
            await turns(6)
            if isinstance(outcome, Exception):
                assert call.failed == [outcome] and not call.told
            else:
                assert call.told == [outcome or []]
                assert len(call.looks) == (outcome is None), "at the end it looks once more"

    run(test)
