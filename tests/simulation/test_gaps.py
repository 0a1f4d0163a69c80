"""What is done out of order is done once, however much of it there is, whoever dies in between."""

from __future__ import annotations

import pytest

from tests.simulation.gap_world import run


@pytest.mark.parametrize("seed", range(30))
def test_what_was_told_as_done_never_comes_again_and_nothing_is_lost(seed: int) -> None:
    broken, _ = run(seed)
    assert broken == []


def test_these_worlds_have_more_gaps_than_a_row_holds_and_read_them_back() -> None:
    worlds = [run(seed)[1] for seed in range(8)]
    assert max(world.gaps_most for world in worlds) > 80
    assert sum(world.restored for world in worlds) > 50
    assert sum(world.leads for world in worlds) > 20 and sum(world.full for world in worlds) > 20
