"""The world of a registry that goes and comes: callers hear what was done, and people the truth."""

from __future__ import annotations

import pytest

from tests.simulation.registry_world import Calls

SEEDS = range(40)


@pytest.mark.parametrize("seed", SEEDS)
def test_callers_hear_the_outcome_and_people_whether_it_is_there(seed: int) -> None:
    assert Calls(seed).live() == []


def test_the_world_of_registries_comes_to_what_it_is_for() -> None:
    worlds = [Calls(seed) for seed in SEEDS[:10]]
    assert not any(world.live() for world in worlds)
    assert sum(world.outages for world in worlds) > 30
    assert sum(len(world.done) for world in worlds) > 200
