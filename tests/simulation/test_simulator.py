"""Hundreds of runs with every checker on, and what makes such a run worth something."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from pxrs_ray.errors import UsageError
from tests.simulation.command import main, simulate
from tests.simulation.simulator.run import run
from tests.simulation.simulator.scenario import FAULTS, draw

# `make simulate` makes as many as one likes; what few show has a guard that begins at its seed.
RUNS = 600
# Shared by processes: of each slice as much is asked as of all runs.
SLICES = 8
SLICE = RUNS // SLICES


@pytest.mark.parametrize("number", range(SLICES))
def test_hundreds_of_runs_keep_every_promise(number: int) -> None:
    total = simulate(range(number * SLICE, (number + 1) * SLICE), {})
    told = [f"{failure.case.command()}\n  {failure.violations[0]}" for failure in total.failures]
    assert not told, "\n".join(told)
    assert total.runs == SLICE
    # The runs are worth something only if everything really happened in them.
    assert set(total.faults) == set(FAULTS)
    assert min(total.faults.values()) > SLICE / 10
    assert total.events["Processed"] > 100 * SLICE


def test_several_processes_judge_the_same_runs() -> None:
    assert simulate(range(16), {}, jobs=2) == simulate(range(16), {})


def test_a_seed_tells_the_whole_run() -> None:
    program = (
        "from tests.simulation.simulator.run import run;"
        "print([event for seed in range(5) for event in run(seed).history])"
    )
    told = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert told[0] == told[1]


def test_other_seeds_are_other_runs() -> None:
    assert run(1).history != run(2).history


def test_settings_override_what_a_seed_draws() -> None:
    scenario = draw(3, {"partitions": 7, "lost": 0.5, "seek": 9.0})
    assert (scenario.partitions, scenario.network.lost) == (7, 0.5)
    assert scenario.weights["seek"] == 9.0


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(UsageError, match="partitons"):
        draw(3, {"partitons": 7})


def test_the_command_line_replays_a_seed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "4"]) == 0
    assert "every promise was kept" in capsys.readouterr().out


def test_the_command_line_refuses_nonsense(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--set", "lost=much"]) == 2
    assert "NAME=NUMBER" in capsys.readouterr().err
