"""Logs on two hosts of three: a host that is lost with its disk loses nothing acknowledged.

What was acknowledged, and what was handled, is known from the witnesses' notes alone.
"""

from __future__ import annotations

import time

from tests.hosts.conftest import COUNT, Cluster
from tests.hosts.world import World

GOES_ON_S = 30


def leaders(world: World) -> dict[int, int]:
    """The host of each buffer's leader."""
    hosts = {host.address: host.index for host in world.hosts}
    return {one["buffer"]: hosts[one["host"]] for one in world.status()["places"]}


def one_that_leads(world: World) -> int:
    """A host with a leader, and with neither the head nor the coordinator."""
    others = {0, world.homes()["coordinator"]}
    return next(host for host in leaders(world).values() if host not in others)


def test_a_topology_with_replicas_works(cluster: Cluster) -> None:
    world = cluster.world(replicas=2)
    world.start()
    with world.load(0, 1):
        world.until(lambda: len(world.acknowledged()) > 100, GOES_ON_S, "acknowledged")
    verdict = world.verdict()
    assert verdict.sound and verdict.refused == 0, f"{verdict}\n{world.told()}"


def test_a_killed_leader_is_replaced_and_nothing_acknowledged_is_lost(cluster: Cluster) -> None:
    world = cluster.world(replicas=2)
    world.start()
    world.settled()
    every = set(range(world.partitions))
    with world.load(0, 1):
        world.until(lambda: len(world.acknowledged()) > 60, GOES_ON_S, "acknowledged")
        for slot in range(COUNT):
            before = leaders(world)
            disk = next(p["disk"] for p in world.status()["places"] if p["buffer"] == slot)
            killed_s = time.monotonic()
            world.kill_actor(f"buffer/{slot}/{disk}")
            world.until(
                lambda: every <= {a.partition for a in world.acknowledged() if a.at_s > killed_s},  # noqa: B023
                GOES_ON_S,
                "every partition goes on",
            )
            print("killed", slot, time.monotonic() - killed_s, before, leaders(world))
    verdict = world.verdict()
    assert verdict.sound and verdict.refused == 0, f"{verdict}\n{world.told()}"


def test_a_host_that_is_lost_with_its_disk_loses_nothing(cluster: Cluster) -> None:
    world, hosts = cluster.world(replicas=2), cluster.hosts
    world.start()
    world.settled()
    every = set(range(world.partitions))
    with world.load(0):
        world.until(lambda: len(world.acknowledged()) > 60, GOES_ON_S, "acknowledged")
        lost = one_that_leads(world)
        lost_s = time.monotonic()
        hosts.power_off(lost)
        world.until(
            lambda: every <= {a.partition for a in world.acknowledged() if a.at_s > lost_s},
            GOES_ON_S,
            "every partition goes on",
        )
        print("lost", time.monotonic() - lost_s, leaders(world), world.told())
        assert lost not in leaders(world).values()
    verdict = world.verdict()
    assert verdict.sound and verdict.refused == 0, f"{verdict}\n{world.told()}"
    hosts.power_on(lost, empty_disk=True)
