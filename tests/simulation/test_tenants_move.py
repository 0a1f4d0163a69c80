"""A tenant's move is safe whatever goes wrong at whichever step: many simulated runs of it."""

from __future__ import annotations

import pytest

from tests.simulation.tenant_world import run

RUNS, BATCH = 120, 30


@pytest.mark.parametrize("first", range(0, RUNS, BATCH))
def test_no_message_is_lost_doubled_or_out_of_order_and_each_move_ends(first: int) -> None:
    broken = {seed: found for seed in range(first, first + BATCH) if (found := run(seed)[0])}
    assert not broken, broken


def test_the_runs_have_what_they_are_about() -> None:
    """A world in which nobody dies, freezes or moves would prove nothing."""
    seen = [run(seed)[1] for seed in range(20)]
    assert sum(judged.deaths for judged in seen) > 10
    assert sum(judged.steps for judged in seen) > 500
    assert sum(judged.faults.get("producer_freeze", 0) for judged in seen) > 10
    assert sum(message.state == "refused" for judged in seen for message in judged.sent) > 10
