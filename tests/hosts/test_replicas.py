"""Logs on two hosts of three: a host that is lost with its disk loses nothing acknowledged.

What was acknowledged, and what was handled, is known from the witnesses' notes alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.hosts.conftest import COUNT, Cluster
from tests.hosts.test_drain_command import pxrs, told
from tests.hosts.world import World

GOES_ON_S = 30
SYNC_S = 60


@pytest.fixture
def world(lend_world: Callable[..., World]) -> World:
    """At work, with its logs on two hosts each."""
    return lend_world(replicas=2)


def leaders(world: World) -> dict[int, int]:
    """The host of each buffer's leader."""
    hosts = {host.address: host.index for host in world.hosts}
    return {one["buffer"]: hosts[one["host"]] for one in world.status()["places"]}


def one_that_leads(world: World) -> int:
    """A host with a leader, and with neither the head nor the coordinator."""
    others = {0, world.homes()["coordinator"]}
    return next(host for host in leaders(world).values() if host not in others)


def until_in_sync(world: World, seconds: float = SYNC_S) -> None:
    """Wait until no replica lacks anything."""
    try:
        world.until_in_sync(seconds)
    except TimeoutError as error:
        raise AssertionError(world.told()) from error


def goes_on(world: World, since_s: float) -> float:
    """Wait until every partition acknowledges once more; how long that took, since then."""
    every, now_s = set(range(world.partitions)), time.monotonic()
    world.until(
        lambda: every <= {a.partition for a in world.acknowledged() if a.at_s > now_s},
        GOES_ON_S,
        "every partition goes on",
    )
    return time.monotonic() - since_s


def test_hosts_are_lost_with_their_disks_one_after_the_other_and_nothing_acknowledged_is(
    cluster: Cluster,
) -> None:
    world, hosts = cluster.world(replicas=2, replace_host_after_s=10), cluster.hosts
    world.start()
    world.settled()
    with world.load(0):
        world.until(lambda: len(world.acknowledged()) > 60, GOES_ON_S, "acknowledged")
        for left in (2, 1):
            lost, lost_s = one_that_leads(world), time.monotonic()
            hosts.power_off(lost)
            away = lambda: lost not in leaders(world).values()  # noqa: B023,E731
            world.until(away, GOES_ON_S, "others lead")
            print("lost", lost, goes_on(world, lost_s), leaders(world))
            if left > 1:  # the third host takes its place
                until_in_sync(world)
    verdict = world.verdict()
    assert verdict.sound and verdict.refused == 0, f"{verdict}\n{world.told()}"
    for host in hosts:
        if not host.is_on:
            hosts.power_on(host.index, empty_disk=True)


# This one and the one before it have worlds of their own, before there is one that is lent: there
# is room for the consumers of one.
def test_a_host_with_replicas_is_drained_and_goes_with_nothing_on_it(cluster: Cluster) -> None:
    world, hosts = cluster.world(replicas=2), cluster.hosts
    world.start()
    world.settled()
    with world.load(0):
        world.until(lambda: len(world.acknowledged()) > 60, GOES_ON_S, "acknowledged")
        until_in_sync(world)
        status, out = pxrs(hosts[0], "restart", "buffer/0", "-t", world.name)
        assert status == 0, out
        restarted_s = time.monotonic()
        print("restarted", goes_on(world, restarted_s))
        until_in_sync(world)
        going = one_that_leads(world)
        address = hosts[going].address
        plans = told(hosts[0], "plan", "--drain", address, "--deadline", "60")
        (plan,) = [each for each in plans if each["topology"] == world.name]
        assert plan["cannot"] == [] and len(plan["moves"]) == 2, plan
        begun_s = time.monotonic()
        status, out = pxrs(
            *(hosts[0], "drain", address, "--deadline", "60", "-t", world.name), seconds=90
        )
        assert status == 0 and "has no consumer and no log any more" in out, out
        print("drained", time.monotonic() - begun_s)
        hosts.power_off(going)
        gone_s = time.monotonic()
        assert goes_on(world, gone_s) < 5, "nobody was led from there"
        assert len({one["host"] for one in world.status()["places"]}) == 2
        until_in_sync(world, 5)
    verdict = world.verdict()
    assert verdict.sound and verdict.refused == 0, f"{verdict}\n{world.told()}"


def test_replicas_are_spread_by_a_label_of_nodes(cluster: Cluster) -> None:
    """Of three hosts one is alone in its zone: it has a replica of every buffer."""
    world = cluster.world(replicas=2, spread_by="zone")
    world.start()
    world.settled()
    for place in world.status()["places"]:
        assert {one["place"] for one in place["replicas"]} == {"odd", "even"}, place
    with world.load(0):
        world.until(lambda: len(world.acknowledged()) > 60, GOES_ON_S, "acknowledged")
    kinds = [one["kind"] for one in world.status()["reports"]]
    assert "replicas_together" not in kinds
    verdict = world.verdict()
    assert verdict.sound and verdict.refused == 0, f"{verdict}\n{world.told()}"


def test_killed_leaders_are_replaced_and_nothing_acknowledged_is_lost(world: World) -> None:
    with world.load(0, 1):
        world.until(lambda: len(world.acknowledged()) > 60, GOES_ON_S, "acknowledged")
        for slot in range(COUNT):
            before = world.status()["places"][slot]
            until_in_sync(world)
            killed_s = time.monotonic()
            world.kill_actor(f"buffer/{slot}/{before['disk']}")
            gone = before["disk"]
            led_by_another = lambda: world.status()["places"][slot]["disk"] != gone  # noqa: B023,E731
            world.until(led_by_another, GOES_ON_S, "another one leads")
            print("killed", slot, goes_on(world, killed_s))
        until_in_sync(world)
        _, pid = world.kill_actor("coordinator")
        killed_s = time.monotonic()
        world.wait_back("coordinator", pid)
        print("coordinator killed", goes_on(world, killed_s))
        until_in_sync(world)
    verdict = world.verdict()
    assert verdict.sound and verdict.refused == 0, f"{verdict}\n{world.told()}"


def test_a_whole_clusters_restart_keeps_what_was_acknowledged(
    world: World, shared_cluster: Cluster
) -> None:
    world.send(0, 120)
    shared_cluster.hosts.power_cycle()
    world.desk = shared_cluster.desk
    world.deploy()
    world.start()
    world.send(1, 120)
    world.shutdown()
    world.deploy()
    world.start()
    world.send(2, 120)
    verdict = world.verdict()
    assert verdict.sound and verdict.refused == 0, f"{verdict}\n{world.told()}"


def test_a_host_that_is_cut_off_is_replaced_and_joins_again(
    world: World, shared_cluster: Cluster
) -> None:
    hosts, enough = shared_cluster.hosts, len(world.acknowledged()) + 60
    with world.load(0):
        world.until(lambda: len(world.acknowledged()) > enough, GOES_ON_S, "acknowledged")
        lost, cut_s = one_that_leads(world), time.monotonic()
        hosts.cut(lost)
        away = lambda: lost not in leaders(world).values()  # noqa: E731
        world.until(away, GOES_ON_S, "others lead")
        print("cut", lost, goes_on(world, cut_s), leaders(world))
        hosts.heal()
        hosts.ray_where_missing()
        until_in_sync(world, 90)
    verdict = world.verdict()
    assert verdict.sound and verdict.refused == 0, f"{verdict}\n{world.told()}"
