"""Whatever ends on a healthy cluster comes back where its disk is, and goes on from there.

One topology goes through all of it, one after the other: what is back from one end is ended again.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from tests.hosts.conftest import COUNT, Cluster
from tests.hosts.world import World

RESTARTS = int(os.environ.get("HOSTS_RESTARTS", "1"))
BACK_S = 10


@pytest.fixture
def world(lend_world: Callable[..., World]) -> World:
    """The one of all of them, at work."""
    return lend_world()


def standing(world: World) -> dict[str, Any]:
    """What must be the same after a restart: ends, checkpoints, epochs."""
    rows = world.group()["partitions"]
    return {
        "ends": world.desk("ends", name=world.name, partitions=world.partitions),
        "checkpoints": [row["checkpoint"] for row in rows],
        "epochs": [row["epoch"] for row in rows],
    }


def check_it_stands(world: World, before: dict[str, Any], homes: dict[str, int]) -> None:
    """Everything is as `before`, and where it was; epochs may have risen."""
    after = standing(world)
    assert world.homes() == homes, world.told()
    assert after["ends"] == before["ends"], world.told()
    assert after["checkpoints"] == before["checkpoints"]
    assert all(b >= a for a, b in zip(before["epochs"], after["epochs"], strict=True))


def worked_off(world: World) -> None:
    """Wait until the group has passed everything, and has committed that."""
    world.rest()
    world.until(lambda: world.group()["lag"] == 0, 30, "everything committed")


def test_a_killed_buffer_is_back_at_home_with_its_log(lend_world: Callable[..., World]) -> None:
    world = lend_world(started=False)
    homes = world.homes()
    buffers = [host for name, host in homes.items() if name != "coordinator"]
    assert sorted(buffers) == [0, 1, 2], "they are on different hosts"
    # Nobody has read yet: no checkpoint says how far the logs had come.
    world.send(0, 60)
    killed = [f"buffer/{number % COUNT}" for number in range(COUNT + 1)]
    with world.load(1):
        for name in killed:
            _, pid = world.kill_actor(name)
            assert world.wait_back(name, pid, BACK_S) == homes[name]
    world.start()
    verdict = world.verdict()
    assert verdict.sound and verdict.refused == 0, f"{verdict}\n{world.told()}"


def test_a_killed_coordinator_is_back_at_home_with_its_registry(world: World) -> None:
    home = world.homes()["coordinator"]
    with world.load(1):
        for _ in range(3):
            _, pid = world.kill_actor("coordinator")
            assert world.wait_back("coordinator", pid, BACK_S) == home
            world.until(lambda: world.group()["partitions"], 20, "the group is known")
    world.settled()
    verdict = world.verdict()
    assert verdict.sound, f"{verdict}\n{world.told()}"


def test_shutdown_and_deploy_keep_the_topology(world: World) -> None:
    again = world.verdict().handled_again
    for number in range(RESTARTS):
        world.send(number % COUNT, 120)
        worked_off(world)
        before, homes = standing(world), world.homes()
        world.shutdown()
        world.deploy()
        check_it_stands(world, before, homes)
        world.start()
    verdict = world.verdict()
    assert verdict.sound and verdict.handled_again == again, f"{verdict}\n{world.told()}"


def test_an_upgrade_moves_nothing_and_repeats_nothing(world: World) -> None:
    again, handled = world.verdict().handled_again, len(world.handled())
    with world.load(1):
        for number in range(1, RESTARTS + 1):
            enough = handled + 60 * number
            world.until(lambda: len(world.handled()) > enough, 30, "work")  # noqa: B023
            before, homes = standing(world), world.homes()
            world.upgrade()
            after = standing(world)
            assert world.homes() == homes, world.told()
            assert after["epochs"] == before["epochs"]
            pairs = zip(before["checkpoints"], after["checkpoints"], strict=True)
            assert all(new >= old for old, new in pairs)
    verdict = world.verdict()
    assert verdict.sound and verdict.handled_again == again, f"{verdict}\n{world.told()}"


def test_a_whole_clusters_restart_keeps_the_topology(world: World, shared_cluster: Cluster) -> None:
    hosts, again = shared_cluster.hosts, world.verdict().handled_again
    for number in range(RESTARTS):
        world.send(number % COUNT, 120)
        worked_off(world)
        before, homes = standing(world), world.homes()
        hosts.power_cycle()
        world.desk = shared_cluster.desk
        world.deploy()
        check_it_stands(world, before, homes)
        world.start()
    verdict = world.verdict()
    assert verdict.sound and verdict.handled_again == again, f"{verdict}\n{world.told()}"
