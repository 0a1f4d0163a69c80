"""How fast one core simulates and judges whole groups, and how much happens in one such run."""

from __future__ import annotations

import gc
import time

from tests.benchmarks.harness import figures
from tests.simulation.command import Result, judge

SEEDS = range(50)


@figures(
    {
        "simulation.runs_per_s": "runs/s",
        "simulation.events_per_run": "events",
        "simulation.messages_per_run": "messages",
        "simulation.faults_per_run": "faults",
    }
)
def of_groups() -> dict[str, float]:
    """The same seeds each time; the clock is this process's own, so that others count less."""
    gc.collect()
    gc.freeze()
    began_s = time.process_time()
    try:
        total = judge(SEEDS, {})
    finally:
        took_s = time.process_time() - began_s
        gc.unfreeze()
    assert not total.failures, total.failures
    return {"simulation.runs_per_s": total.runs / took_s, **_per_run(total)}


def _per_run(total: Result) -> dict[str, float]:
    return {
        "simulation.events_per_run": sum(total.events.values()) / total.runs,
        "simulation.messages_per_run": total.events["Appended"] / total.runs,
        "simulation.faults_per_run": sum(total.faults.values()) / total.runs,
    }
