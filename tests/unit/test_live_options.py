"""Options that are told as live are taken by a coordinator that runs; refusals change nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from pxrs_ray.config import QueueConfig
from pxrs_ray.errors import UsageError
from tests.faults.control_world import ControlWorld, control_world


def play(folder: Path, scene: Callable[[ControlWorld], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        async with control_world(folder, queues={"q": QueueConfig(partitions=2)}) as world:
            await world.call("ping")
            await asyncio.wait_for(scene(world), 30)

    asyncio.run(run())


def test_history_keep_is_taken_at_once(tmp_path: Path) -> None:
    async def scene(world: ControlWorld) -> None:
        await world.call("group", "g", "q", {})
        await world.call("apply", world.config.changed(history_keep=3))
        for number in range(60):
            incarnation, _ = await world.call("member", "g", "join", f"m{number}", f"t{number}")
            await world.call("member", "g", "leave", f"m{number}", incarnation, "over")
        history = await world.call("history", "g", 0, 10_000)
        assert len(history.changes) < 30, "60 joins and leaves of 3 that are kept"

    play(tmp_path, scene)


def test_an_assignor_that_the_coordinator_cannot_import_is_refused(tmp_path: Path) -> None:
    async def scene(world: ControlWorld) -> None:
        with pytest.raises(UsageError, match="can be imported"):
            await world.call("group", "g", "q", {"assignor": "not_there:f"})
        assert "g" not in (await world.call("config")).groups
        await world.call("group", "g", "q", {})
        wanted = world.config.changed(groups={"g": {"queue": "q", "assignor": "not_there:f"}})
        with pytest.raises(UsageError, match="can be imported"):
            await world.call("apply", wanted)
        assert (await world.call("config")).groups["g"].assignor == "sticky"

    play(tmp_path, scene)
