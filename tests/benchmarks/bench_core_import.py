"""What `import pxrs_ray` costs in a fresh interpreter."""

from __future__ import annotations

import statistics
import subprocess
import sys

from tests.benchmarks.harness import figure

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


@figure("core.import_ms", unit="ms")
def import_ms() -> float:
    return _import_ms("import pxrs_ray")
