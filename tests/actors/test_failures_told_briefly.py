"""An error that holds a whole payload is kept and sent as its beginning, by every way there is."""

from __future__ import annotations

import asyncio
import pickle
from typing import Any

import pytest

from pxrs_ray.config import ByKey, Packs
from pxrs_ray.consumer.delivery import Delivery
from tests.actors.in_process import World
from tests.actors.in_process import world as world

MESSAGES = 60
PAYLOAD = b"x" * 300_000
INFO_BYTES_MAX = 40_000
WAYS: dict[str, dict[str, Any]] = {
    "in order": {},
    "lanes": {"processing": ByKey(parallelism=4)},
    "packs": {"processing": Packs(pack_records=4)},
}


@pytest.mark.parametrize("way", WAYS)
def test_what_a_consumer_says_of_itself_stays_small(world: Any, way: str) -> None:
    def fails(message: Delivery) -> None:
        raise ValueError(f"cannot use {message.payload!r}")

    async def main() -> None:
        here: World = world(1, failure_policy="skip", attempts_max=1, **WAYS[way])
        await here.up()
        await here.produce([b"k%d" % number for number in range(MESSAGES)], payload=PAYLOAD)
        consumer = await here.consumer("c1", fails)
        await here.reaches(MESSAGES)
        info = await consumer.info()
        assert info.given_up_count == MESSAGES and info.given_up[0].error.startswith("ValueError")
        assert len(pickle.dumps(info)) < INFO_BYTES_MAX
        await here.down()

    asyncio.run(asyncio.wait_for(main(), 60))
