"""The coordinator as Ray knows it: cheap to look up."""

from __future__ import annotations

import subprocess
import sys

REQUESTS = ", ".join(
    f"pxrs_ray.actors.{name}"
    for name in (
        "buffer.start_notice",
        "consumer.member_requests",
        "coordinator.group_requests",
        "coordinator.topology_requests",
    )
)


def loaded(imports: str, *wanted: str) -> str:
    """Which of the modules that are `wanted` a new process has loaded after these imports."""
    program = f"import sys, {imports}\nprint(sorted({set(wanted)} & set(sys.modules)))\n"
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return ran.stdout


def test_asking_needs_none_of_what_working_needs() -> None:
    face = "pxrs_ray.actors.coordinator.coordinator_actor, pxrs_ray.actors.client.topology"
    imports = f"{face}, pxrs_ray.cli._ray, pxrs_ray.status.answers, {REQUESTS}"
    assert loaded(imports, "numpy", "pyarrow", "pydantic") == "[]\n"


def test_a_buffer_needs_no_configuration_to_begin() -> None:
    """Who waits for one that was killed waits for its imports."""
    assert loaded("pxrs_ray.actors.buffer.buffer_actor", "pydantic", "pxrs_ray.config") == "[]\n"
