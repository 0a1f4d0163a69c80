"""Where replicas are by the labels of their nodes, and who is at home where."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pxrs_ray.replication.own_lag import OwnLag
from pxrs_ray.replication.placement import InSync, Placement
from pxrs_ray.topology.homes import Home, Homes
from pxrs_ray.topology.node_seen import NodeSeen
from pxrs_ray.topology.replica_spread import (
    another_disk,
    homes_as_placed,
    shared_places,
    spread_replicas,
)

BOTH = Placement(("a", "b", "c"), (InSync("a", "boot 1"), InSync("b", "boot 1")), "a", 1, 1, 1)


def zoned(zones: str) -> list[NodeSeen]:
    """A node of each of these zones; `-` has no label."""
    return [
        NodeSeen(f"n{at}", f"h{at}", f"d{at}", labels={} if z == "-" else {"zone": z})
        for at, z in enumerate(zones)
    ]


@pytest.mark.parametrize(
    ("zones", "replicas"), [("aabb", 2), ("aaabbc", 3), ("aab", 2), ("aa-", 2)]
)
def test_replicas_are_in_zones_of_their_own_as_far_as_there_are_as_many(
    zones: str, replicas: int
) -> None:
    there = zoned(zones)
    placed = spread_replicas(range(12), there, replicas, "zone")
    for disks in placed.values():
        assert shared_places(disks, there, "zone") == {}
    assert any(
        shared_places(d, there, "zone") for d in spread_replicas(range(12), there, 2).values()
    )


def test_where_there_are_fewer_zones_than_replicas_hosts_count_and_it_is_told() -> None:
    there = zoned("aab")
    disks = spread_replicas([0], there, 3, "zone")[0]
    assert sorted(disks) == ["d0", "d1", "d2"]
    assert shared_places(disks, there, "zone") == {"a": ["h0", "h1"]}
    assert shared_places(disks, there, "") == {} == shared_places(("d0", "gone"), there, "zone")


def test_one_that_is_lost_is_replaced_in_a_zone_that_has_none() -> None:
    there, placed = zoned("aabc"), {0: ("d0", "d2"), 1: ("d3", "d1")}
    assert another_disk(0, placed, ["d2"], there) == "d1"
    assert another_disk(0, placed, ["d2"], there, spread_by="zone") == "d3"
    assert another_disk(0, placed, ["d2"], there, ["d1"], "zone") == "d3", "not where one has begun"
    assert another_disk(0, placed, [], there, spread_by="zone") == "d3"


def test_who_was_elected_is_at_home_there_though_the_document_of_homes_came_late() -> None:
    known = Home("a", "n1", "h1", 1, "boot", since=1)
    homes = Homes().with_slot(0, known).with_slot(1, known)
    led = {0: replace(BOTH, leader="b", epoch=2), 1: BOTH, 2: replace(BOTH, leader="", epoch=0)}
    found = homes_as_placed(homes, led)
    assert found.slots == {0: Home("b", "", "", 2, since=2), 1: known}
    stays = homes_as_placed(homes, {0: replace(BOTH, epoch=3)}).slots[0]
    assert (stays.disk, stays.term, stays.since) == ("a", 3, 1)


def test_however_late_a_coordinator_was_who_is_gone_is_missed() -> None:
    lag = OwnLag(50, 1_000)
    lag.ticked(0)
    lag.ticked(90)
    assert lag.grace_ms(90) == 0, "nothing is done to the millisecond"
    lag.ticked(500)
    lag.ticked(9_000)
    assert lag.grace_ms(9_000) == 1_000, "as long again at the most"
    assert lag.grace_ms(10_001) == 0, "whoever lives has answered since"
