"""The shared Ray cluster is what the tests of the shell take it for."""

from __future__ import annotations

import os
from typing import Any

import psutil
import pytest

from tests.light_ray import COLD, WARM

pytestmark = pytest.mark.ray


def test_actors_see_the_checkout_and_answer(ray_cluster: Any) -> None:
    import ray

    import pxrs_ray

    @ray.remote(num_cpus=0)
    class Probe:
        def version(self) -> str:
            import pxrs_ray.actors

            assert pxrs_ray.actors.__name__ == "pxrs_ray.actors"
            return pxrs_ray.__version__

        def begun_by(self) -> list[str]:
            return psutil.Process().parent().cmdline()

    probe = Probe.remote()
    try:
        assert ray.get(probe.version.remote(), timeout=60) == pxrs_ray.__version__
        begun_by = ray.get(probe.begun_by.remote(), timeout=60)
        assert COLD in os.environ or str(WARM / "warm_server.py") in begun_by
    finally:
        ray.kill(probe)
    assert ray.cluster_resources()["CPU"] == 4
