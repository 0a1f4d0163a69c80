"""`python -m tests.benchmarks [group or figure ...]`: JSON lines on stdout, a table on stderr."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path

from tests.benchmarks import harness

PREFIX = "bench_"


def modules() -> list[str]:
    """Name every module that declares figures, without the prefix."""
    return sorted(
        path.stem.removeprefix(PREFIX) for path in Path(__file__).parent.glob(f"{PREFIX}*.py")
    )


def main(wanted: list[str]) -> int:
    """Measure the wanted groups and figures (all when none is named); answer the exit status."""
    os.environ["RAY_ADDRESS"] = "local"  # whatever else runs here, figures are of a Ray of our own
    groups = {name.split(".")[0] for name in wanted}
    for module in modules():
        if not groups or module.split("_")[0] in groups:
            import_module(f"tests.benchmarks.{PREFIX}{module}")
    chosen = [
        bench
        for bench in harness.BENCHES
        if not wanted or any(name in wanted or name.split(".")[0] in wanted for name in bench.units)
    ]
    if not chosen:
        known = ", ".join(sorted({module.split("_")[0] for module in modules()}))
        print(f"no such figure or group: {', '.join(wanted)}; groups are: {known}", file=sys.stderr)
        return 2
    # Whatever a library or a child process prints goes to stderr: stdout carries figures alone.
    with os.fdopen(os.dup(1), "w") as json_out:
        os.dup2(2, 1)
        return 1 if harness.measure(chosen, json_out) else 0


if __name__ == "__main__":
    names = [name for argument in sys.argv[1:] for name in argument.split(",") if name]
    sys.exit(main(names))
