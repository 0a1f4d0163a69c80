"""One run of the feeding world: trouble, then healing, then every feed is done, and each row
there once."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from contextlib import closing

from tests.simulation.feeding.feed_chaos import FeedChaos
from tests.simulation.feeding.feed_cluster import FeedCluster
from tests.simulation.feeding.feed_reading import read_back
from tests.simulation.feeding.feed_scenario import FeedScenario, draw_feeds
from tests.simulation.history import Failed
from tests.simulation.simulator.frames import begin_run
from tests.simulation.simulator.run import LOOK_MS, Run, quiet, uncollected
from tests.simulation.simulator.world import World

# So long frozen tasks, and calls that are late, may still do harm when all is done.
AFTER_MS = 4_000


def run(
    seed: int,
    overrides: Mapping[str, float] | None = None,
    chosen: frozenset[int] | None = None,
) -> Run:
    """Simulate the feeds of `seed`; of its faults only the `chosen` ones (None: all)."""
    scenario = draw_feeds(seed, overrides)
    begin_run()
    world = World(seed, scenario.base)
    with uncollected(), quiet():
        cluster = FeedCluster(world, seed, scenario)
        with closing(cluster), closing(world):
            chaos = FeedChaos(cluster, seed, chosen)
            try:
                _play(cluster, chaos, scenario, seed)
            except Exception as error:
                where = traceback.format_tb(error.__traceback__)[-1]
                world.record(Failed(world.now_ms, where, f"{type(error).__name__}: {error}"))
            settled_ms = world.now_ms - scenario.base.trouble_ms
            struck = tuple(chaos.struck)
            return Run(seed, scenario.base, world.history, chaos.counts, settled_ms, struck)


def _play(cluster: FeedCluster, chaos: FeedChaos, scenario: FeedScenario, seed: int) -> None:
    world = cluster.world
    world.run_until(scenario.base.trouble_ms)
    chaos.heal()
    end_ms = world.now_ms + scenario.base.settle_ms
    while cluster.ended().pending and world.now_ms < end_ms:
        world.run_until(world.now_ms + LOOK_MS)
    world.run_until(world.now_ms + AFTER_MS)
    found = [one for one in cluster.log.kept() if one.partition < scenario.partitions]
    for kept in found:
        world.record(kept)
    world.record(cluster.ended())
    if wrong := read_back(world, cluster.log, found, seed):
        world.record(Failed(world.now_ms, "reading", wrong))
