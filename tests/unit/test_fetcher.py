"""`Fetcher`: a fetch is awaited until its answer, its deadline, or until its channel is woken."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from pxrs_ray.actors.consumer.channel_wake import ChannelWake
from pxrs_ray.actors.consumer.fetcher import Fetcher
from pxrs_ray.consumer.member_effects import Fetch
from pxrs_ray.errors import BufferAway, DeadlineExceeded

LONG_S = 60.0
SOON_S = 5.0


class Machine:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: self.told.append(name)


class Scene:
    """A fetcher whose one buffer answers as a test says."""

    def __init__(self) -> None:
        self.machine, self.wake = Machine(), ChannelWake()
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        config = SimpleNamespace(pull_bytes_max=1)
        spec = SimpleNamespace(topology="t", queue="q", group="g", config=config)
        self.fetcher = Fetcher(SimpleNamespace(spec=spec, machine=self.machine, name="m"))  # type: ignore[arg-type]
        self.fetcher._buffers[0] = SimpleNamespace(fetch=lambda *_: self.answer)  # type: ignore[assignment]

    def fetch(self, wait_ms: int = 1_000, for_s: float = LONG_S) -> Awaitable[None]:
        now_s = time.monotonic()
        made = Fetch(SimpleNamespace(), 0, {0: (1, 0)}, wait_ms, now_s, now_s + for_s)  # type: ignore[arg-type]
        return asyncio.ensure_future(self.fetcher._fetch(made, self.wake))


def run(test: Callable[[Scene], Awaitable[None]]) -> None:
    async def made() -> None:
        await asyncio.wait_for(test(Scene()), LONG_S / 2)

    asyncio.run(made())


def test_an_answer_is_handed_on() -> None:
    async def test(scene: Scene) -> None:
        fetching = scene.fetch()
        await asyncio.sleep(0)
        scene.answer.set_result([])
        await fetching
        assert scene.machine.told == ["fetched"]
        scene.wake.set()
        await asyncio.sleep(0)
        assert scene.wake.ends is None, "a wake that comes later ends nothing"

    run(test)


@pytest.mark.parametrize("before", [True, False])
def test_a_channel_that_is_woken_ends_a_fetch_that_waits(before: bool) -> None:
    async def test(scene: Scene) -> None:
        if before:
            scene.wake.set()
        fetching = scene.fetch()
        await asyncio.sleep(0)
        scene.wake.set()
        await asyncio.wait_for(fetching, SOON_S)  # type: ignore[arg-type]
        assert scene.machine.told == ["fetch_unanswered"]
        assert before or scene.answer.cancelled(), "nobody wants it any more"

    run(test)


@pytest.mark.parametrize("at_its_time", [True, False])
def test_a_wake_while_the_wait_ends_already_harms_nobody(at_its_time: bool) -> None:
    """Partitions of one buffer begin again one after another, each of which wakes the channel."""

    async def test(scene: Scene) -> None:
        loop, woken = asyncio.get_running_loop(), []

        def wake() -> None:
            scene.wake.set()
            woken.append(True)

        fetching = scene.fetch(for_s=0.02 if at_its_time else LONG_S)
        await asyncio.sleep(0)
        if at_its_time:
            # Its timer and this are due in one turn of the loop, in this order.
            loop.call_later(0.02, wake)
            loop.call_soon(lambda: time.sleep(0.03))
        else:
            scene.wake.set()
            loop.call_soon(wake)
        await asyncio.wait_for(fetching, SOON_S)  # type: ignore[arg-type]
        await asyncio.sleep(0.01)
        assert woken and all(woken) and scene.machine.told == ["fetch_unanswered"]

    run(test)


def test_one_that_does_not_wait_is_answered_whoever_wakes_its_channel() -> None:
    async def test(scene: Scene) -> None:
        scene.wake.set()
        fetching = scene.fetch(wait_ms=0)
        await asyncio.sleep(0)
        scene.wake.set()
        await asyncio.sleep(0.01)
        scene.answer.set_result([])
        await fetching
        assert scene.machine.told == ["fetched"]

    run(test)


def test_at_its_deadline_it_is_given_up() -> None:
    async def test(scene: Scene) -> None:
        await scene.fetch(for_s=0.02)
        assert scene.machine.told == ["fetch_unanswered"]

    run(test)


@pytest.mark.parametrize(
    ("error", "told"),
    [(BufferAway("gone"), "fetch_away"), (DeadlineExceeded("its own"), "fetch_away")],
)
def test_an_error_is_told_as_one_and_not_as_a_fetch_that_ended(error: Exception, told: str) -> None:
    async def test(scene: Scene) -> None:
        fetching = scene.fetch()
        await asyncio.sleep(0)
        scene.answer.set_exception(error)
        await fetching
        assert scene.machine.told == [told]

    run(test)


def test_who_ends_the_loop_ends_it() -> None:
    async def test(scene: Scene) -> None:
        fetching = scene.fetch()
        await asyncio.sleep(0)
        fetching.cancel()  # type: ignore[attr-defined]
        with pytest.raises(asyncio.CancelledError):
            await fetching
        assert scene.machine.told == []

    run(test)
