"""The world of known ends: what has been in the logs for long is in the registry."""

from __future__ import annotations

import pytest

from tests.simulation.ends_world import Ends

SEEDS = range(60)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_in_the_logs_is_kept_in_time_and_never_goes_back(seed: int) -> None:
    assert Ends(seed).live() == []


def test_the_world_of_ends_comes_to_what_it_is_for() -> None:
    worlds = [Ends(seed) for seed in SEEDS[:10]]
    assert not any(world.live() for world in worlds)
    assert sum(world.kept for world in worlds) > 150
