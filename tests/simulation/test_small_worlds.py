"""The small worlds: who is frozen is ended in time and nobody else, and who has no coordinator
starts one where it belongs."""

from __future__ import annotations

import pytest

from tests.simulation.link_world import Links
from tests.simulation.node_world import Node
from tests.simulation.recovery_world import Nodes

SEEDS = range(40)


@pytest.mark.parametrize("seed", SEEDS)
def test_who_stands_still_is_ended_in_time_and_nobody_else(seed: int) -> None:
    assert Node(seed).run() == []


@pytest.mark.parametrize("seed", SEEDS)
def test_a_coordinator_that_is_gone_is_made_once_where_its_registry_is(seed: int) -> None:
    assert Nodes(seed).run() == []


def test_the_worlds_come_to_what_they_are_for() -> None:
    nodes = [Node(seed) for seed in SEEDS[:10]]
    assert not any(node.run() for node in nodes)
    assert sum(node.ended for node in nodes) > 20
    recovered = [Nodes(seed) for seed in SEEDS[:10]]
    assert not any(each.run() for each in recovered)
    assert sum(each.made for each in recovered) > 10


@pytest.mark.parametrize("seed", SEEDS)
def test_calls_end_in_time_and_a_connection_that_is_over_is_made_anew(seed: int) -> None:
    assert Links(seed).run() == []


def test_calls_go_by_connections_and_some_of_those_are_given_up() -> None:
    links = [Links(seed) for seed in SEEDS[:10]]
    assert not any(each.run() for each in links)
    assert sum(each.by_line for each in links) > 500
    assert sum(each.given_up for each in links) > 3
