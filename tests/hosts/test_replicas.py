"""Logs on two hosts of three: a host that is lost with its disk loses nothing that was acknowledged.

What was acknowledged, and what was handled, is known from the witnesses' notes alone.
"""

from __future__ import annotations

import time

from tests.hosts.conftest import COUNT, Cluster
from tests.hosts.world import World

GOES_ON_S = 30


def leading_host(world: World) -> int:
    """A host with a leader, and with neither the head nor the coordinator."""
    coordinator = world.homes()["coordinator"]
    places = {host.address: host.index for host in world.hosts}
    leads = [places[one["host"]] for one in world.status()["buffers_at"]]
    return next(host for host in leads if host not in (0, coordinator))


def test_a_topology_with_replicas_works(cluster: Cluster) -> None:
    world = cluster.world(replicas=2)
    world.start()
    with world.load(0, 1):
        world.until(lambda: len(world.acknowledged()) > 100, GOES_ON_S, "acknowledged")
    verdict = world.verdict()
    assert verdict.sound and verdict.refused == 0, f"{verdict}\n{world.told()}"
