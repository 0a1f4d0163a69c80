"""The net over files, at a part of its steps; `python -m tests.faults.files` takes all of them."""

from __future__ import annotations

import asyncio
import os
from random import Random

import pytest

from pxrs_ray.data.log_limits import Durability
from pxrs_ray.errors import LogAway
from tests.faults.faulty_files import KINDS, Fault
from tests.faults.files import BURSTS, Case, QuickAndQuiet, play, sweep
from tests.faults.log_world import OTHER, QUEUE, World

PART = int(os.environ.get("PXRS_FAULTS_EVERY", "83"))


@pytest.mark.parametrize("durability", [Durability.INTERVAL, Durability.ALWAYS])
@pytest.mark.parametrize("kind", KINDS)
def test_no_promise_breaks_whatever_operation_fails(kind: str, durability: Durability) -> None:
    with QuickAndQuiet():
        for burst in BURSTS.get(kind, (1,)):
            found = list(sweep(durability, kind, burst, PART))
            assert sum(1 for fired, _ in found if fired) >= 2
            assert [broken for _, broken in found if broken] == []


@pytest.mark.parametrize("kind", KINDS)
def test_every_fault_is_really_put(kind: str) -> None:
    with QuickAndQuiet():
        fired, broken = play(Case(Durability.INTERVAL, Fault(kind, Random(kind).randint(0, 20))))
    assert (fired, broken) == (1, "")


def test_a_group_is_not_removed_while_a_log_that_knows_it_is_being_opened_anew() -> None:
    """Else that log waits for it for ever, until its partition is full."""

    async def scene(world: World) -> None:
        await world.start()
        buffer = world.alive
        await buffer.passed(QUEUE, OTHER, {0: 0, 1: 0})
        manager = buffer._manager
        manager._leave((QUEUE, 0), manager.log(QUEUE, 0))
        with pytest.raises(LogAway):
            await buffer.drop_group(QUEUE, OTHER)
        await world.insist(lambda: buffer.drop_group(QUEUE, OTHER))
        await world.stop()
        await world.start()
        assert OTHER not in (await world.alive.ends(QUEUE))[0].groups
        await world.stop()

    world = World(Durability.INTERVAL, 1)
    try:
        with QuickAndQuiet():
            asyncio.run(asyncio.wait_for(scene(world), 30))
    finally:
        world.close()
