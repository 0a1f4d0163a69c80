"""A group begins where it was asked to, whatever is cut off, whoever else asks."""

from __future__ import annotations

import asyncio
from pathlib import Path

from pxrs_ray.config import GroupConfig, QueueConfig
from pxrs_ray.store.memory import MemoryStore
from tests.faults.control_world import Fault, control_world

END = {"start": "end"}
TWO = {"q": QueueConfig(partitions=2)}


def test_a_group_begins_at_the_end_though_its_coordinator_died_at_each_step(tmp_path: Path) -> None:
    async def scene(fault: Fault, folder: Path) -> None:
        async with control_world(folder, fault, queues=TWO) as world:
            await world.call("ping")
            await world.produce("q", 0, 5)
            await world.produce("q", 1, 3)
            world.life.armed = True
            await world.again("group", "g", "q", END)
            assert world.checkpoints("g") == {0: 5, 1: 3}

    for at in range(12):
        for kind in ("killed before", "killed after"):
            asyncio.run(scene(Fault(at, kind), tmp_path / f"{at}-{kind}"))


def test_two_who_make_a_group_at_once_make_one(tmp_path: Path) -> None:
    async def scene() -> None:
        async with control_world(tmp_path, queues=TWO) as world:
            await world.call("ping")
            await world.produce("q", 0, 5)
            calls = (world.coordinator.group("g", "q", END) for _ in range(3))
            assert await asyncio.gather(*calls) == ["g"] * 3
            assert world.life.alive
            assert world.checkpoints("g") == {0: 5, 1: 0}
            # One coordinator is led by one shell: a second would depose the first.
            led = MemoryStore(world.registry).changes("t/g", 0)
            assert [change.kind for change in led] == ["led"]

    asyncio.run(scene())


def test_a_buffer_that_is_away_lets_no_group_begin_half_at_the_end(tmp_path: Path) -> None:
    async def scene() -> None:
        groups = {"g": GroupConfig(queue="q", start="end")}
        async with control_world(tmp_path, Fault(), queues=TWO, groups=groups) as world:
            await world.call("ping")
            await world.produce("q", 0, 2)
            await world.produce("q", 1, 3)
            world.fault.at, world.fault.kind = 0, "failed before"
            world.life.armed = True
            await world.again("group", "g", None, {})
            assert world.fault.reached == "buffer.ends"
            assert world.checkpoints("g") == {0: 2, 1: 3}

    asyncio.run(scene())
