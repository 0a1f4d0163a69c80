"""How a figure is declared, measured and told.

    @figure("core.import_ms", unit="ms")
    def import_ms() -> float:                      # called `runs` times; answers one value
        ...

    @figures({"ray.rows_per_s": "rows/s", "ray.p99_ms": "ms"}, runs=3, setup=cluster)
    def feed(address: str) -> dict[str, float]:    # several figures out of one run
        ...

`setup` is a context manager function; what it yields is handed to each run. Figures with the same
setup, declared one after the other, share one. `warmups` runs come first and are not counted.
A run returns its own measurement, since only it knows what belongs to the clocked part.
"""

from __future__ import annotations

import json
import statistics
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, TextIO

Setup = Callable[[], AbstractContextManager[Any]]
Run = Callable[..., Mapping[str, float]]


@dataclass(frozen=True)
class Bench:
    """One function that measures one or several figures."""

    units: Mapping[str, str]
    run: Run
    runs: int
    warmups: int
    setup: Setup | None

    def __post_init__(self) -> None:
        assert self.runs >= 1 and self.warmups >= 0
        assert all("." in name for name in self.units), "a figure is named <group>.<what>_<unit>"


@dataclass(frozen=True)
class Result:
    """What all runs of one figure gave."""

    figure: str
    unit: str
    runs: tuple[float, ...]
    median: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "median", statistics.median(self.runs))

    def to_json(self) -> str:
        """The one line that other programs read."""
        told = {
            "figure": self.figure,
            "median": _rounded(self.median),
            "unit": self.unit,
            "runs": [_rounded(value) for value in self.runs],
        }
        return json.dumps(told)

    def to_row(self) -> str:
        """The one line that people read: the median, and how far the runs lie apart."""
        low, high = min(self.runs), max(self.runs)
        spread = (high - low) / self.median * 100 if self.median else 0.0
        around = f"{low:,.6g} to {high:,.6g} ({spread:.0f} %, {len(self.runs)} runs)"
        return f"{self.figure:<40} {self.median:>14,.6g} {self.unit:<10} {around}"


class LeftOut(Exception):
    """Raised by a run that cannot be made here; the text says what is missing. No failure."""


BENCHES: list[Bench] = []


def figure(
    name: str, unit: str, *, runs: int = 5, warmups: int = 1, setup: Setup | None = None
) -> Callable[[Callable[..., float]], Callable[..., float]]:
    """Declare a function that measures one figure and returns its value."""

    def declare(function: Callable[..., float]) -> Callable[..., float]:
        def run(*given: Any) -> Mapping[str, float]:
            return {name: function(*given)}

        BENCHES.append(Bench({name: unit}, run, runs, warmups, setup))
        return function

    return declare


def figures(
    units: Mapping[str, str], *, runs: int = 5, warmups: int = 1, setup: Setup | None = None
) -> Callable[[Run], Run]:
    """Declare a function that measures several figures at once: returns a value by name."""

    def declare(function: Run) -> Run:
        BENCHES.append(Bench(dict(units), function, runs, warmups, setup))
        return function

    return declare


def measure(benches: Iterable[Bench], json_out: TextIO, table_out: TextIO = sys.stderr) -> int:
    """Run every bench, tell each figure as soon as it is known, and count the benches that failed.

    A bench that raises is told on `table_out` and does not stop the others.
    """
    failed = 0
    for setup, shared in _by_setup(benches):
        try:
            with setup() if setup else nullcontext() as value:
                for bench in shared:
                    failed += not _measure_one(
                        bench, (value,) if setup else (), json_out, table_out
                    )
        except Exception:
            traceback.print_exc(file=table_out)
            failed += 1
    return failed


def _by_setup(benches: Iterable[Bench]) -> list[tuple[Setup | None, list[Bench]]]:
    parts: list[tuple[Setup | None, list[Bench]]] = []
    for bench in benches:
        if not parts or parts[-1][0] is not bench.setup:
            parts.append((bench.setup, []))
        parts[-1][1].append(bench)
    return parts


def _measure_one(bench: Bench, given: tuple[Any, ...], json_out: TextIO, table_out: TextIO) -> bool:
    try:
        for _ in range(bench.warmups):
            bench.run(*given)
        values = [bench.run(*given) for _ in range(bench.runs)]
        assert all(set(run) == set(bench.units) for run in values), "a run forgot a figure"
    except LeftOut as missing:
        print(f"left out: {', '.join(bench.units)}: {missing}", file=table_out)
        return True
    except Exception:
        print(f"FAILED {', '.join(bench.units)}", file=table_out)
        traceback.print_exc(file=table_out)
        return False
    for name, unit in bench.units.items():
        result = Result(name, unit, tuple(run[name] for run in values))
        print(result.to_json(), file=json_out, flush=True)
        print(result.to_row(), file=table_out, flush=True)
    return True


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")
