"""Hand-overs of the real consumers, buffer and group host, in one process without Ray."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from typing import Any

from pxrs_ray.config import ByKey
from pxrs_ray.consumer.delivery import Delivery
from tests.actors.in_process import World, until
from tests.actors.in_process import world as world


def test_who_inherits_a_gap_map_goes_on_behind_it(world: Any) -> None:
    """One key fails until its owner is killed; all others are done, far beyond what is fetched."""
    mended = threading.Event()
    handled: Counter[int] = Counter()

    def handle(message: Delivery) -> None:
        if message.key == b"slow" and not mended.is_set():
            raise ValueError("not yet")
        handled[message.offset] += 1

    async def main() -> None:
        here: World = world(processing=ByKey(parallelism=16), attempts_max=0, commit_interval_ms=5)
        await here.up()
        count = 120
        keys = [b"slow", *(b"k%d" % n for n in range(count))]
        await here.produce([*keys], payload=b"x" * 60_000)
        first = await here.consumer("c1", handle)
        await until(lambda: len(handled) == count and here.host.core.state.rows[0].detail)
        await asyncio.sleep(0.05)
        await here.kill(first)
        mended.set()
        second = await here.consumer("c2", handle)
        await here.reaches(count + 1)
        assert second._live().failed is None and second._problems() == []
        await here.down()
        assert sorted(handled) == list(range(count + 1))
        assert handled[0] == 1 and handled.total() < count + 20

    asyncio.run(asyncio.wait_for(main(), 60))
