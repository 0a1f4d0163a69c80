"""commit_mode message and batch while the registry is away: commits wait, and that heals."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from pxrs_ray.config import Ordered
from pxrs_ray.consumer.delivery import DeliveredBatch, Delivery
from pxrs_ray.errors import DeadlineExceeded
from pxrs_ray.processing import commit_wait
from tests.actors.in_process import World, until
from tests.actors.in_process import world as world

AWAY_S = 1.5


@pytest.mark.parametrize("mode", ["message", "batch"])
def test_commits_wait_for_as_long_as_the_registry_is_away(
    world: Any, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setattr(commit_wait, "SLOW_S", 0.3)
    away = threading.Event()
    handled: list[int] = []

    def faults(name: str, arguments: tuple[Any, ...]) -> None:
        if name == "commit" and away.is_set():
            raise DeadlineExceeded("the registry is away")

    def handle(message: Delivery) -> None:
        handled.append(message.offset)

    def handle_batch(batch: DeliveredBatch) -> None:
        handled.extend(message.offset for message in batch)

    async def main() -> None:
        here: World = world(1, processing=Ordered(commit_mode=mode))
        here.faults = faults
        await here.up()
        await here.produce([b"k"] * 3)
        consumer = await here.consumer("c1", handle if mode == "message" else handle_batch)
        await here.reaches(3)
        away.set()
        await here.produce([b"k"] * 3)
        await until(lambda: any("commit of partition 0" in told for told in consumer._problems()))
        await asyncio.sleep(AWAY_S)
        assert here.checkpoints() == [3] and consumer._workers.failures() == ()
        # One message, or batch, is done and waits; nothing is begun behind it.
        assert len(handled) == 4 or mode == "batch"
        away.clear()
        await here.reaches(6)
        assert handled == list(range(6)) and consumer._problems() == []
        # A worker that is told to stop meanwhile does not wait: its progress goes with the release.
        away.set()
        await here.produce([b"k"] * 3)
        await until(lambda: len(handled) > 6)
        began_s = time.monotonic()
        assert await consumer._live().leave("the test", 10.0)
        assert time.monotonic() - began_s < 5.0
        assert here.checkpoints() == [len(handled)]
        await here.down()

    asyncio.run(asyncio.wait_for(main(), 60))
