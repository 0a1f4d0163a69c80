"""One local Ray for all tests of the shell: starting it costs seconds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

RAY_CPUS = 4


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[Any]:
    """A local Ray with 4 CPUs (whatever the machine has); answers ray.init's context."""
    import ray

    context = ray.init(
        num_cpus=RAY_CPUS,
        include_dashboard=False,
        log_to_driver=False,
        configure_logging=False,
        namespace="pxrs-tests",
    )
    yield context
    ray.shutdown()
