"""A host's disk is full: what cannot be written is not acknowledged, and the others go on."""

from __future__ import annotations

import time

from tests.hosts.conftest import Cluster

FULL_S = 4.0


def test_a_full_disk_stops_its_own_partitions_and_loses_nothing(cluster: Cluster) -> None:
    world, hosts = cluster.world(), cluster.hosts
    world.start()
    world.settled()
    filling = world.one_to_lose()
    others = set(range(world.partitions)) - world.partitions_of(filling)
    with world.load(0):
        world.until(lambda: len(world.handled()) > 60, 30, "work")
        hosts[filling].fill_disk()
        try:
            full_s = time.monotonic()
            world.until(
                lambda: others <= world.handled_since(full_s + 1), 20, "the others' partitions"
            )
            time.sleep(FULL_S)
        finally:
            hosts[filling].free_disk()
        freed_s = time.monotonic()
        every = set(range(world.partitions))
        world.until(lambda: every <= world.handled_since(freed_s), 20, "every partition goes on")
    verdict = world.verdict()
    assert verdict.sound and verdict.refused == 0, f"{verdict}\n{world.told()}"
