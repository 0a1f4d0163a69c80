"""What `import pxrs_ray` costs in a fresh interpreter."""

from __future__ import annotations

import statistics
import subprocess
import sys

from tests.benchmarks.harness import figures

TRIES = 5


def _import_ms(statement: str) -> float:
    """The time of `statement` inside a fresh interpreter: the middle one of several tries."""
    program = (
        f"import time; began = time.perf_counter(); {statement};"
        "print((time.perf_counter() - began) * 1000)"
    )
    found = [
        float(
            subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout
        )
        for _ in range(TRIES)
    ]
    return statistics.median(found)


@figures({"core.import_ms": "ms", "core.import_config_ms": "ms"})
def import_ms() -> dict[str, float]:
    return {
        "core.import_ms": _import_ms("import pxrs_ray"),
        "core.import_config_ms": _import_ms("import pxrs_ray; pxrs_ray.PxrsConfig"),
    }
