"""The world of a group's consumers: whatever befalls them, who is wanted works in the end."""

from __future__ import annotations

import pytest

from tests.simulation.consumers_world import Consumers

SEEDS = range(90)


@pytest.mark.parametrize("seed", SEEDS)
def test_who_is_wanted_works_in_the_end_and_nobody_else(seed: int) -> None:
    assert Consumers(seed).live() == []


def test_the_world_of_consumers_comes_to_what_it_is_for() -> None:
    worlds = [Consumers(seed) for seed in SEEDS[:10]]
    assert not any(world.live() for world in worlds)
    assert sum(world.made for world in worlds) > 150
    assert sum(world.killed for world in worlds) > 20
