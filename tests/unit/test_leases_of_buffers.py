"""What a coordinator and its buffers do with leases, ids and known ends, in one process.

Judged from outside: what the real buffers serve.
"""

from __future__ import annotations

import asyncio
import copy
import shutil
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from pxrs_ray.actors.coordinator import buffer_pool as pool_module
from pxrs_ray.actors.coordinator import known_ends
from pxrs_ray.actors.coordinator.known_ends import DOCUMENT
from pxrs_ray.config import QueueConfig
from pxrs_ray.data.protocol import Appended, BufferGrant, Fetched, Refused
from pxrs_ray.errors import LeaseOver, StoreCorrupted
from pxrs_ray.log.log_opening import LOSS_MARGIN
from pxrs_ray.topology import kept_ends
from tests.actors.conditions import until
from tests.faults.control_world import ControlWorld, control_world
from tests.logs import wire

COMMAND = "pxrs recover registry FILE --accept-loss"
Scene = Callable[[ControlWorld], Coroutine[Any, Any, None]]


def play(folder: Path, scene: Scene, lease_s: float = 10.0, **options: Any) -> None:
    queues = {"q": QueueConfig(partitions=2, **options)}

    async def run() -> None:
        async with control_world(folder, queues=queues, lease_ttl_seconds=lease_s) as world:
            await world.call("ping")
            await asyncio.wait_for(scene(world), 60)

    asyncio.run(run())


def next_life(world: ControlWorld) -> None:
    """The coordinator is killed, and Ray makes it anew."""
    world.life.alive = False
    world.start()


async def read(world: ControlWorld, partition: int, at: int = 0) -> Fetched | Refused:
    buffer = world.buffers[partition]
    (found,) = await buffer.fetch("q", "?test", {partition: (0, at)}, 1 << 20, 0)
    return found


def test_a_coordinator_lets_its_buffers_serve_and_its_successor_too(tmp_path: Path) -> None:
    async def scene(world: ControlWorld) -> None:
        await world.produce("q", 0, 1)
        next_life(world)
        await world.call("ping")
        tenure = world.buffers[0]._gate.tenure
        assert tenure.generation == 2
        lease = tenure.until_ms
        await until(lambda: tenure.until_ms > lease)
        await world.produce("q", 1, 1)

    play(tmp_path, scene)


def test_who_was_replaced_grants_nothing(tmp_path: Path) -> None:
    async def scene(world: ControlWorld) -> None:
        old = world.coordinator
        next_life(world)
        await world.call("ping")
        buffer = world.buffers[0]
        buffer._gate.tenure.until_ms = 0
        with mock.patch.object(world.coordinator._pool, "_look", mock.AsyncMock()):
            info = await buffer.ping()
            grant = BufferGrant(old._generation, 1, 60_000, info.monotonic_ms, info.incarnation)
            await buffer.ping(grant)
            (answer,) = await buffer.append("q", [(0, *wire([b"x"], 0))], 0)
            assert isinstance(answer, Refused) and isinstance(answer.error, LeaseOver)

    play(tmp_path, scene)


def test_nobody_is_granted_anything_once_a_newer_one_leads(tmp_path: Path) -> None:
    async def scene(world: ControlWorld) -> None:
        old, life = world.coordinator, world.life
        await world.call("ping")
        store = old._store
        await old._thread.call(store.lead, "t", 1, "somebody else")
        tenure = world.buffers[0]._gate.tenure
        await old._confirm_leading()
        assert not life.alive, "it ends itself"
        assert old._pool.grants.over_ms(0) >= tenure.until_ms

    play(tmp_path, scene)


def test_a_registry_that_went_back_is_noticed_by_the_logs_alone(tmp_path: Path) -> None:
    async def scene(world: ControlWorld) -> None:
        backup = copy.deepcopy(world.registry.groups)
        for _ in range(3):
            next_life(world)
            await world.call("ping")
        (tmp_path / "t" / "registry-high-water.json").unlink(missing_ok=True)
        world.registry.groups = backup
        next_life(world)
        with pytest.raises(StoreCorrupted, match="went back") as raised:
            await world.call("ping")
        assert COMMAND in str(raised.value)
        await world.call("recover_registry", "me")
        assert world.coordinator._generation > 4
        await world.produce("q", 0, 1)
        next_life(world)
        await world.call("ping")

    play(tmp_path, scene)


def test_a_buffer_that_starts_is_looked_at_at_once(tmp_path: Path) -> None:
    async def scene(world: ControlWorld) -> None:
        await world.restart_buffers()
        world.coordinator._pool._handles[0] = world._handle("t", 0, 2, str(world.folder), 10.0, "")
        asking = world.produce("q", 0, 1)
        await world.coordinator.buffer_started(0)
        await asyncio.wait_for(asking, 5)

    with mock.patch.object(pool_module, "PING_PAUSE_S", 30.0):
        play(tmp_path, scene, 120.0, durability="memory")


@pytest.mark.parametrize("policy", ["stop", "continue"])
def test_what_nobody_had_read_is_lost_and_never_new_when_its_disk_is(
    tmp_path: Path, policy: str
) -> None:
    async def scene(world: ControlWorld) -> None:
        await world.produce("q", 0, 5)
        await until(lambda: "[5" in world.registry.groups["t"].documents.get(DOCUMENT, ""))
        await world.restart_buffers()
        shutil.rmtree(world.folder)
        next_life(world)
        await world.call("ping")
        ends = (await world.buffers[0].ends("q"))[0]
        assert ends.gaps[0].first == 0 and ends.gaps[0].end >= 5 + LOSS_MARGIN
        (answer,) = await world.buffers[0].append("q", [(0, *wire([b"y"], 0))], 0)
        if policy == "stop":
            assert ends.state == "lost" and isinstance(answer, Refused)
            assert (await world.buffers[1].ends("q"))[1].state == "lost", "also where nothing was"
        else:
            assert isinstance(answer, Appended)
            assert (answer.base_offset or 0) >= 5 + LOSS_MARGIN

    with (
        mock.patch.object(known_ends, "LOOK_PAUSE_S", 0.05),
        mock.patch.object(kept_ends, "FAR_OFFSETS", 1),
    ):
        play(tmp_path, scene, lost_log_policy=policy)
