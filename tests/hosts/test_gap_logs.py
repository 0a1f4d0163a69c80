"""What is done out of order stays done: a host is lost with its disk, a disk is full, clocks are
wrong; and there is much more of it than a row of the registry holds.

What was done, and how often, is known from the witnesses' notes alone.
"""

from __future__ import annotations

import time
from collections import Counter

from tests.hosts.conftest import Cluster
from tests.hosts.inside.holding import RELEASED, is_held
from tests.hosts.world import World

KEYS = MESSAGES = 4_500
WAIT_S = 120
# Longer than a commit waits, and a record of gaps on a full disk.
QUIET_S = 6.0


def done(world: World) -> Counter[str]:
    """How often the message of each key was handled to its end."""
    return Counter(one.key for one in world.handled())


def free_ones_are_done(world: World, among: int) -> bool:
    """Whether everything that nobody holds back was handled."""
    found = done(world)
    acknowledged = [one.key for one in world.acknowledged()]
    return len(acknowledged) >= among and all(found[k] for k in acknowledged if not is_held(k))


def test_what_was_done_out_of_order_comes_again_to_nobody(cluster: Cluster) -> None:
    group = {"processing": {"mode": "by_key", "parallelism": 32}}
    world = cluster.world(partitions=3, replicas=2, replace_host_after_s=600, group=group)
    world.start(holding=True)
    world.settled()
    options = (f"--keys={KEYS}", f"--count={MESSAGES}", "--per-second=200")
    load = world.begin_load(0, *options)
    load.wait_up()
    world.until(lambda: len(world.acknowledged()) > MESSAGES // 4, WAIT_S, "a quarter")
    full = world.one_to_lose()
    cluster.hosts[full].fill_disk()
    try:
        time.sleep(4 * world.options["lease_ttl_seconds"])
    finally:
        cluster.hosts[full].free_disk()
    assert load.end(), load.told()
    world.until(lambda: free_ones_are_done(world, MESSAGES), WAIT_S, "what is free is done")
    world.until_in_sync()
    time.sleep(QUIET_S)
    before, lost_s = done(world), time.monotonic()
    held = sum(map(is_held, {one.key for one in world.acknowledged()}))
    assert held == MESSAGES // 2 and not any(is_held(key) for key in before)
    # Its consumer is lost with the gap map that it had, and the logs that it led with their disk.
    cluster.hosts.power_off(full)
    world.until(lambda: len(world.group()["owners"]) > 0, WAIT_S, "owned")
    (world.notes / RELEASED).touch()
    world.until(lambda: len(done(world)) == MESSAGES, WAIT_S, "all of it is done")
    again = [key for key, count in (done(world) - before).items() if not is_held(key)]
    print("held", held, "came again", len(again), "after", time.monotonic() - lost_s)
    assert not again, f"{len(again)} came again: {world.told()}"
    verdict = world.verdict()
    assert verdict.sound and verdict.refused == 0, f"{verdict}\n{world.told()}"
    cluster.hosts.power_on(full, empty_disk=True)
