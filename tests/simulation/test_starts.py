"""The world of a coordinator's start: it begins when it may, and callers hear the truth."""

from __future__ import annotations

import pytest

from tests.simulation.start_world import Starts

SEEDS = range(60)


@pytest.mark.parametrize("seed", SEEDS)
def test_it_starts_when_its_trouble_is_over_and_callers_hear_the_truth(seed: int) -> None:
    assert Starts(seed).live() == []


def test_the_world_of_starts_comes_to_what_it_is_for() -> None:
    worlds = [Starts(seed) for seed in SEEDS[:20]]
    assert not any(world.live() for world in worlds)
    assert sum(world.begun for world in worlds) > 10
    heard = [change.heard for world in worlds for change in world.changes]
    assert all(heard.count(kind) > 20 for kind in ("refused", "waits", "made"))
