"""Random walks: any steps in any order over several lives, with any faults between them.

PXRS_WALKS says how many; a failure names its seed.
"""

from __future__ import annotations

import asyncio
import os
from random import Random

import pytest

from pxrs_ray.data.log_limits import Durability
from tests.faults.faulty_files import ENDS, KINDS, Fault
from tests.faults.files import LIFE, QuickAndQuiet
from tests.faults.log_world import World

WALKS = int(os.environ.get("PXRS_WALKS", "12"))
STEPS = 14
SECONDS_MAX = 60.0


async def walk(world: World, rng: Random) -> None:
    started = False
    for _ in range(STEPS):
        kind = rng.choice(list(KINDS))
        fault = Fault(kind, rng.randint(0, 60), 1 if kind in ENDS else rng.randint(1, 5))
        world.files.put(fault if rng.random() < 0.8 else None)
        try:
            if not started:
                await world.start()
                started = True
            await more(world, rng)
        except BaseException:
            if not world.files.dead:
                raise
            await world.die(power=kind != "kill")
            started = False
        if rng.random() < 0.1 and started:
            world.files.fault = None
            await world.die(power=rng.random() < 0.5)
            started = False
    world.files.fault = None
    if not started:
        await world.start()
    await world.judge()
    await world.stop()
    world.check_nothing_is_open()


async def more(world: World, rng: Random) -> None:
    """Some more messages, and any step of a life."""
    for partition, lane in enumerate(world.lanes):
        await world.send(partition, lane.sent + rng.randint(0, 4))
    await rng.choice(LIFE)(world)


@pytest.mark.parametrize("seed", range(WALKS))
def test_no_walk_breaks_a_promise(seed: int) -> None:
    rng = Random(seed)
    durability = rng.choice((Durability.INTERVAL, Durability.ALWAYS))
    world = World(durability, seed, few_files=rng.random() < 0.5)
    try:
        with QuickAndQuiet():
            asyncio.run(asyncio.wait_for(walk(world, rng), SECONDS_MAX))
    finally:
        world.close()
