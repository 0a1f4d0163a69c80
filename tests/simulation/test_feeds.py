"""Feeds in a world of their own: many runs, and what makes them worth something."""

from __future__ import annotations

import pytest

from pxrs_ray.errors import UsageError
from tests.simulation.command import main, simulate
from tests.simulation.feeding.feed_run import run
from tests.simulation.feeding.feed_scenario import FEED_FAULTS, draw_feeds
from tests.simulation.worlds import FEED

RUNS = 180
SLICES = 3
SLICE = RUNS // SLICES


@pytest.mark.parametrize("number", range(SLICES))
def test_feeds_keep_every_promise(number: int) -> None:
    seeds = range(number * SLICE, (number + 1) * SLICE)
    total = simulate(seeds, {}, world=FEED)
    told = [f"{failure.case.command()}\n  {failure.violations[0]}" for failure in total.failures]
    assert not told, "\n".join(told)
    # The runs are worth something only if everything really happened in them.
    assert set(total.faults) == set(FEED_FAULTS)
    assert min(total.faults.values()) > SLICE / 10
    assert total.events["FeedDone"] > 3 * SLICE
    assert total.events["FeedEnded"] > SLICE / 2
    assert total.events["Appended"] > 100 * SLICE


def test_a_seed_tells_the_whole_run_of_feeds() -> None:
    assert str(run(3).history) == str(run(3).history)
    assert str(run(3).history) != str(run(4).history)


def test_settings_of_feeds_are_taken_and_unknown_ones_refused() -> None:
    scenario = draw_feeds(3, {"rows": 7, "lost": 0.5, "task_crash": 9, "partitions": 2})
    assert (scenario.rows, scenario.base.network.lost, scenario.base.partitions) == (7, 0.5, 4)
    assert scenario.weights["task_crash"] == 9
    with pytest.raises(UsageError, match="sek"):
        draw_feeds(3, {"sek": 1})


def test_the_command_line_replays_a_feed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--world", "feed", "--seed", "4"]) == 0
    assert "every promise was kept" in capsys.readouterr().out
