"""Whatever ends on a healthy cluster comes back where its disk is, and goes on from there."""

from __future__ import annotations

import os
from typing import Any

from tests.hosts.conftest import COUNT, Cluster
from tests.hosts.world import World

RESTARTS = int(os.environ.get("HOSTS_RESTARTS", "2"))
BACK_S = 10


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


def test_buffers_are_on_different_hosts(cluster: Cluster) -> None:
    homes = cluster.world().homes()
    assert sorted(host for name, host in homes.items() if name != "coordinator") == [0, 1, 2]


def test_shutdown_and_deploy_keep_the_topology(cluster: Cluster) -> None:
    world = cluster.world()
    world.start()
    for number in range(RESTARTS):
        world.send(number % COUNT, 120)
        worked_off(world)
        before, homes = standing(world), world.homes()
        world.shutdown()
        world.deploy()
        check_it_stands(world, before, homes)
        world.start()
    verdict = world.verdict()
    assert verdict.sound and verdict.handled_again == 0, f"{verdict}\n{world.told()}"


def test_a_killed_buffer_is_back_at_home_with_its_log(cluster: Cluster) -> None:
    world = cluster.world()
    homes = world.homes()
    # Nobody has read yet: no checkpoint says how far the logs had come.
    world.send(0, 60)
    killed = [f"buffer/{number % COUNT}" for number in range(2 * COUNT)]
    with world.load(1):
        for name in killed:
            _, pid = world.kill_actor(name)
            assert world.wait_back(name, pid, BACK_S) == homes[name]
    world.start()
    verdict = world.verdict()
    assert verdict.sound and verdict.refused == 0, f"{verdict}\n{world.told()}"


def test_a_killed_coordinator_is_back_at_home_with_its_registry(cluster: Cluster) -> None:
    world = cluster.world()
    world.start()
    world.settled()
    home = world.homes()["coordinator"]
    with world.load(1):
        for _ in range(3):
            _, pid = world.kill_actor("coordinator")
            assert world.wait_back("coordinator", pid, BACK_S) == home
            world.until(lambda: world.group()["partitions"], 20, "the group is known")
    world.settled()
    verdict = world.verdict()
    assert verdict.sound, f"{verdict}\n{world.told()}"


def test_an_upgrade_moves_nothing_and_repeats_nothing(cluster: Cluster) -> None:
    world = cluster.world()
    world.start()
    world.settled()
    with world.load(1):
        for number in range(1, RESTARTS + 1):
            enough = 60 * number
            world.until(lambda: len(world.handled()) > enough, 30, "work")  # noqa: B023
            before, homes = standing(world), world.homes()
            world.upgrade()
            after = standing(world)
            assert world.homes() == homes, world.told()
            assert after["epochs"] == before["epochs"]
            pairs = zip(before["checkpoints"], after["checkpoints"], strict=True)
            assert all(new >= old for old, new in pairs)
    verdict = world.verdict()
    assert verdict.sound and verdict.handled_again == 0, f"{verdict}\n{world.told()}"


def test_a_whole_clusters_restart_keeps_the_topology(cluster: Cluster) -> None:
    world, hosts = cluster.world(), cluster.hosts
    world.start()
    for number in range(RESTARTS):
        world.send(number % COUNT, 120)
        worked_off(world)
        before, homes = standing(world), world.homes()
        hosts.power_cycle()
        world.desk = cluster.desk
        world.deploy()
        check_it_stands(world, before, homes)
        world.start()
    verdict = world.verdict()
    assert verdict.sound and verdict.handled_again == 0, f"{verdict}\n{world.told()}"
