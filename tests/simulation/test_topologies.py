"""Groups and queues are made and removed whole, whoever dies at whichever step: many runs of it."""

from __future__ import annotations

from tests.simulation.topology_world import run

RUNS = 300


def test_what_is_made_is_whole_what_is_removed_never_comes_back_and_commits_survive() -> None:
    broken = {seed: found for seed in range(RUNS) if (found := run(seed)[0])}
    assert not broken, broken


def test_the_runs_have_what_they_are_about() -> None:
    """A world in which nobody dies and nothing is granted would prove nothing."""
    seen = [run(seed)[1] for seed in range(20)]
    assert sum(each.deaths for each in seen) > 1_000
    assert sum(each.steps for each in seen) > 10_000
    assert sum(len(each.granted) for each in seen) > 50
