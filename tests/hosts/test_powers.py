"""A host goes and comes back, with its disk or without, or is drained: what waits, what goes on.

The desk and the head are on host 0, so it is another one that goes, and not the coordinator's.
"""

from __future__ import annotations

import re
import time

from tests.hosts import kernel
from tests.hosts.conftest import Cluster
from tests.hosts.world import LEASE_S

TOLD = re.compile(r"\blost\b|waits for")
NOTICED_S = 20
BACK_S = 10
# Between a lease's end and the note of it: a scheduler that is late.
SLACK_S = 0.5


def test_a_host_goes_and_comes_back_with_its_disk(cluster: Cluster) -> None:
    world, hosts = cluster.world(), cluster.hosts
    world.start()
    world.settled()
    going = world.one_to_lose()
    there = world.partitions_of(going)
    with world.load(0):
        world.until(lambda: len(world.handled()) > 60, 30, "work")
        hosts.power_off(going)
        off_s = time.monotonic()
        others = set(range(world.partitions)) - there
        world.until(
            lambda: others <= world.handled_since(off_s + 5), 40, "the others' partitions go on"
        )
        world.until(lambda: going not in world.homes().values(), NOTICED_S, "Ray gives it up")
        time.sleep(2)
        assert going not in world.homes().values() and len(world.homes()) < 4, "moved by itself"
        assert f"waits for host {hosts[going].address}" in world.told()
        hosts.power_on(going)
        hosts.ray_again(going)
        on_s = time.monotonic()
        world.until(lambda: there <= world.handled_since(on_s), BACK_S, "its partitions go on")
    verdict = world.verdict(overlap_s_max=0.5)
    assert verdict.sound and verdict.refused == 0, f"{verdict}\n{world.told()}"


def test_a_host_that_ray_gave_up_goes_on_when_it_is_back(cluster: Cluster) -> None:
    world, hosts = cluster.world(), cluster.hosts
    world.start()
    world.settled()
    going = world.one_to_lose()
    there = world.partitions_of(going)
    behind = world.begin_load(going, "--per-second=60")  # what it runs on ends with its node
    behind.wait_up()
    with world.load(0):
        world.until(lambda: len(world.handled()) > 60, 30, "work")
        hosts.cut(going)
        cut_s = time.monotonic()
        world.until(
            lambda: hosts[going].address not in world.desk("nodes"), NOTICED_S, "Ray gives it up"
        )
        time.sleep(3)
        healed_s = time.monotonic()
        hosts.heal()
        kernel.wait_for(lambda: not hosts[going].find("raylet/raylet"), 30, "its node ends")
        hosts[going].stop_ray()
        hosts.ray_again(going)
        on_s = time.monotonic()
        world.until(lambda: there <= world.handled_since(on_s), BACK_S, "its partitions go on")
    behind.end()
    late = [a for a in world.acknowledged() if a.partition in there]
    late = [a for a in late if cut_s + LEASE_S + SLACK_S < a.at_s < healed_s]
    assert not late, f"{len(late)} acknowledged behind the cut, the last {late[-1]}"
    verdict = world.verdict(overlap_s_max=0.5)
    assert verdict.sound and verdict.refused == 0, f"{verdict}\n{world.told()}"


def test_the_coordinators_host_goes_and_comes_back(cluster: Cluster) -> None:
    hosts, going = cluster.hosts, 1
    world = cluster.world(registry_at=hosts[going].address)
    world.start()
    world.settled()
    assert world.homes()["coordinator"] == going
    every = set(range(world.partitions))
    with world.load(0):
        world.until(lambda: len(world.handled()) > 60, 30, "work")
        hosts.power_off(going)
        world.until(lambda: going not in world.homes().values(), NOTICED_S, "Ray gives it up")
        time.sleep(3)
        assert "coordinator" not in world.homes(), "made where its registry is not"
        hosts.power_on(going)
        hosts.ray_again(going)
        on_s = time.monotonic()
        world.until(lambda: every <= world.handled_since(on_s), 2 * BACK_S, "everything goes on")
    assert world.homes()["coordinator"] == going
    verdict = world.verdict(overlap_s_max=0.5)
    assert verdict.sound and verdict.refused == 0, f"{verdict}\n{world.told()}"


def test_a_disk_that_was_emptied_is_told_as_lost(cluster: Cluster) -> None:
    world, hosts = cluster.world(append_timeout_ms=5_000), cluster.hosts
    world.send(0, 60)  # read by nobody yet: checkpoint 0 says nothing of what was there
    going = world.one_to_lose()
    there = world.partitions_of(going)
    hosts.power_off(going)
    hosts.power_on(going, empty_disk=True)
    hosts.ray_again(going)
    world.start()
    world.send(0, 60)
    lost = {ack.partition for ack in world.acknowledged()} & there
    assert lost, "nothing was in the logs that are gone"
    world.until(lambda: TOLD.search(world.told()), 20, "that is told")
    told = world.told()
    verdict = world.verdict(given_up=there)
    assert verdict.sound, f"{verdict}\n{told}"
    # What was sent after it is not among what the old logs held: nothing went into a new log.
    assert verdict.refused > 0, told


def test_a_drained_host_hands_over_its_logs_before_it_goes(cluster: Cluster) -> None:
    world, hosts = cluster.world(), cluster.hosts
    world.start(consumers=2)
    world.settled(2)
    going = world.one_to_lose()
    there = world.partitions_of(going)
    with world.load(0):
        world.until(lambda: len(world.handled()) > 60, 30, "work")
        hosts.drain(going, seconds=40)

        def moved() -> bool:
            every = world.actors()
            return bool(every) and going not in {host for host, _ in every.values()}

        world.until(moved, 35, "nothing of it is on the drained host")
        hosts.power_off(going)
        gone_s = time.monotonic()
        world.until(lambda: there <= world.handled_since(gone_s), 10, "its partitions go on")
    verdict = world.verdict()
    assert verdict.sound and verdict.refused == 0, f"{verdict}\n{world.told()}"
