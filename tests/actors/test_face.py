"""The coordinator as Ray knows it: complete, and cheap to look up."""

from __future__ import annotations

import inspect
import subprocess
import sys

from pxrs_ray.actors.coordinator.coordinator import Coordinator
from pxrs_ray.actors.coordinator.coordinator_actor import METHODS, CoordinatorActor

OF_SHELLS = ("check_leading",)


def test_every_method_of_the_coordinator_is_there() -> None:
    asked = inspect.getmembers(Coordinator, inspect.iscoroutinefunction)
    # What its group shells call is nobody else's.
    public = [name for name, _ in asked if not name.startswith("_") and name not in OF_SHELLS]
    assert sorted(METHODS) == public
    assert all(inspect.iscoroutinefunction(getattr(CoordinatorActor, name)) for name in METHODS)


def loaded(imports: str, *wanted: str) -> str:
    """Which of the modules that are `wanted` a new process has loaded after these imports."""
    program = f"import sys, {imports}\nprint(sorted({set(wanted)} & set(sys.modules)))\n"
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return ran.stdout


def test_asking_needs_none_of_what_working_needs() -> None:
    face = "pxrs_ray.actors.coordinator.coordinator_actor, pxrs_ray.actors.client.topology"
    imports = f"{face}, pxrs_ray.cli._ray, pxrs_ray.status.answers"
    assert loaded(imports, "numpy", "pyarrow", "pydantic") == "[]\n"


def test_a_buffer_needs_no_configuration_to_begin() -> None:
    """Who waits for one that was killed waits for its imports."""
    assert loaded("pxrs_ray.actors.buffer.buffer_actor", "pydantic", "pxrs_ray.config") == "[]\n"
