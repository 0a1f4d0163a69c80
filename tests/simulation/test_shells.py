"""No imitation is forgotten: what the simulator does not run as it ships is named."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pxrs_ray
from tests.simulation import feeding, simulator
from tests.simulation.shells import (
    CARRY,
    DECIDE,
    DECIDE_MAX,
    SHELLS,
    SPARK_DECIDE,
    SPARK_DECIDE_MAX,
    SPARK_SHELLS,
    WORLDS,
)

PACKAGE = Path(pxrs_ray.__file__).parent
ACTORS = (PACKAGE / "actors").resolve()
SPARK = (PACKAGE / "spark").resolve()
SIMULATOR = Path(simulator.__file__).parent
FEEDING = Path(feeding.__file__).parent
# A loop with a pause, or a back-off, is where decisions hide.
LOOP_WORDS = ("while True", "asyncio.sleep(", "Backoff(", "call_later(")


def _loaded(world: str = "simulator.run") -> set[str]:
    """The modules of the product that a simulated run has in memory, as paths."""
    program = (
        f"import sys, {', '.join(WORLDS)}, tests.simulation.{world} as r; r.run(1);"
        "print('\\n'.join(sorted(m for m in sys.modules if m.startswith('pxrs_ray'))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, text=True
    )
    names = done.stdout.split()
    return {name.removeprefix("pxrs_ray.").replace(".", "/") + ".py" for name in names}


def test_the_simulator_runs_every_machine_that_a_shell_carries_and_no_actor() -> None:
    loaded = _loaded()
    machines = {machine for of_shell in SHELLS.values() for machine in of_shell}
    assert machines <= loaded, machines - loaded
    assert not [name for name in loaded if name.startswith("actors/")]


def test_what_still_decides_in_actors_is_named_and_grows_no_more() -> None:
    there = {str(path.relative_to(ACTORS)) for path in ACTORS.rglob("*.py")}
    named = [*SHELLS, *DECIDE, *CARRY]
    assert len(set(named)) == len(named)
    assert set(named) <= there, set(named) - there
    assert len(DECIDE) == DECIDE_MAX, "it shrinks: a module that decides belongs to a pure machine"


def test_a_module_of_coordinators_or_buffers_that_waits_and_tries_again_is_named() -> None:
    rooms = ("buffer", "consumer", "coordinator")
    unnamed = [
        str(path.relative_to(ACTORS))
        for room in rooms
        for path in sorted((ACTORS / room).glob("*.py"))
        if any(word in path.read_text() for word in LOOP_WORDS)
        and str(path.relative_to(ACTORS)) not in {*SHELLS, *DECIDE, *CARRY}
    ]
    assert not unnamed


def test_the_world_of_feeds_runs_every_machine_that_spark_carries_and_no_spark() -> None:
    loaded = _loaded("feeding.feed_run")
    machines = {machine for of_shell in SPARK_SHELLS.values() for machine in of_shell}
    assert machines <= loaded, machines - loaded
    assert not [name for name in loaded if name.startswith(("actors/", "spark/"))]


def test_what_still_decides_in_spark_is_named_and_grows_no_more() -> None:
    there = {path.name for path in SPARK.glob("*.py")}
    named = [*SPARK_SHELLS, *SPARK_DECIDE]
    assert len(set(named)) == len(named)
    assert set(named) <= there, set(named) - there
    assert len(SPARK_DECIDE) == SPARK_DECIDE_MAX
    told = {text.rpartition(": ")[2] for text in SPARK_DECIDE.values() if text.endswith(".py")}
    assert told <= {path.name for path in FEEDING.glob("*.py")}
    words = (*LOOP_WORDS, "time.sleep(")
    loops = {path.name for path in SPARK.glob("*.py") if any(w in path.read_text() for w in words)}
    assert loops <= set(named), loops - set(named)
