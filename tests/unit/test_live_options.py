"""Options that are told as live are taken by a coordinator that runs; refusals change nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from pxrs_ray.actors.consumer.member_requests import JoinGroup, LeaveGroup
from pxrs_ray.config import QueueConfig
from pxrs_ray.errors import UsageError
from pxrs_ray.group.assignors import assign
from pxrs_ray.model import Member
from tests.actors.conditions import until
from tests.faults.control_world import ControlWorld, control_world

MEMBERS = [Member(name, 1) for name in ("a", "b", "c")]


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
            incarnation, _ = await world.call(JoinGroup("g", f"m{number}", f"t{number}"))
            await world.call(LeaveGroup("g", f"m{number}", incarnation, "over"))
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


def test_the_coordinator_sweeps_as_often_as_it_is_told(tmp_path: Path) -> None:
    async def scene(world: ControlWorld) -> None:
        await world.call("group", "g", "q", {})
        ticks = world.coordinator._groups["g"].host.runtime.ticks
        assert ticks.sweep_ms_max == 1_000
        await world.call("apply", world.config.changed(rebalance_interval_ms=40))
        assert ticks.sweep_ms_max == 40

    play(tmp_path, scene)


def test_what_members_have_changes_while_they_are_members(tmp_path: Path) -> None:
    """Weights, the tenant, and the grace after a death: for those that have joined, too."""

    async def scene(world: ControlWorld) -> None:
        group: dict[str, Any] = {"queue": "q", "assignor": "tenant", "tenant": "acme"}
        await world.call("apply", world.config.changed(groups={"g": group}))
        await world.call("group", "g", "q", {})
        for name in ("a", "b", "c"):
            await world.call(JoinGroup("g", name, f"t-{name}"))
        core = world.coordinator._groups["g"].host.core
        seen = {}
        for tenant in ("acme", "globex", "initech", "umbrella"):
            await world.call(
                "apply", world.config.changed(groups={"g": {**group, "tenant": tenant}})
            )
            seen[tenant] = core.state.target[0]
            assert seen[tenant] == assign("tenant", MEMBERS, 2, {}, tenant=tenant)[0]
        assert len(set(seen.values())) > 1, "tenants begin with different consumers"
        more = {**group, "assignor": "sticky", "consumer_weights": {"a": 9.0}, "grace_ms": 70}
        await world.call("apply", world.config.changed(groups={"g": more}))
        assert set(core.state.target.values()) == {"a"}
        assert {slot.member.grace_ms for slot in core.state.members.values()} == {70}
        await world.call("apply", world.config.changed(groups={"g": group}))
        assert {slot.member.weight for slot in core.state.members.values()} == {1.0}

    play(tmp_path, scene)


def test_buffers_open_their_ports_and_close_them_as_the_option_says(tmp_path: Path) -> None:
    async def scene(world: ControlWorld) -> None:
        def ports() -> set[str]:
            return {str(buffer._line._ports) for buffer in world.buffers.values()}

        await until(lambda: ports() == {"any"})
        await world.call("apply", world.config.changed(link_ports="20000-20100"))
        await until(lambda: ports() == {"20000-20100"})
        before = dict(world.buffers)
        for buffer in before.values():
            await buffer.close()
        await until(lambda: not before.items() & world.buffers.items())
        await until(lambda: ports() == {"20000-20100"})
        await world.call("apply", world.config.changed(link_ports="off"))
        await until(lambda: ports() == {"None"})

    play(tmp_path, scene)
