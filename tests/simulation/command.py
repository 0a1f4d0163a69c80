"""Many simulated runs, each judged by every checker.

    python -m tests.simulation.command --runs 2000            # seeds 0 to 1999, on every core
    python -m tests.simulation.command --seed 17 --history    # one run again, told in full

`--set NAME=NUMBER` fixes a number of every scenario, or the weight of a fault (see `scenario`). A
failure prints the one command that replays it.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from pxrs_ray.errors import UsageError
from tests.simulation.simulator.run import run

CHUNK_RUNS = 25
FAILURES_MAX = 5
TOLD_MAX = 3


@dataclass
class Result:
    """What became of some runs."""

    runs: int = 0
    events: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[int, list[str]]] = field(default_factory=list)
    settled_ms_max: int = 0

    def add(self, other: Result) -> None:
        """Count these as well."""
        self.runs += other.runs
        self.events += other.events
        self.faults += other.faults
        self.failures += other.failures
        self.settled_ms_max = max(self.settled_ms_max, other.settled_ms_max)


def judge(seeds: range, overrides: Mapping[str, float]) -> Result:
    """Simulate and check the runs of `seeds`."""
    result = Result()
    for seed in seeds:
        done = run(seed, overrides)
        result.runs += 1
        result.events.update(type(event).__name__ for event in done.history)
        result.faults.update(done.faults)
        result.settled_ms_max = max(result.settled_ms_max, done.settled_ms)
        violations = [str(violation) for violation in done.violations()]
        if violations:
            result.failures.append((seed, violations))
    return result


def simulate(
    seeds: range, overrides: Mapping[str, float], *, jobs: int = 1, stop_at_first: bool = False
) -> Result:
    """Judge `seeds` with that many processes; stop early when enough has been found."""
    chunks = [
        range(start, min(start + CHUNK_RUNS, seeds.stop))
        for start in range(seeds.start, seeds.stop, CHUNK_RUNS)
    ]
    enough = 1 if stop_at_first else FAILURES_MAX
    total = Result()
    if jobs == 1:
        for chunk in chunks:
            total.add(judge(chunk, overrides))
            if len(total.failures) >= enough:
                break
        return total
    with ProcessPoolExecutor(jobs) as pool:
        for result in pool.map(partial(judge, overrides=overrides), chunks):
            total.add(result)
            if len(total.failures) >= enough:
                pool.shutdown(cancel_futures=True)
                break
    return total


def main(arguments: list[str] | None = None) -> int:
    """The command line; answers the exit status."""
    options = _parse(arguments)
    settings = [f"--set {text}" for text in options.set]
    try:
        overrides = dict(_setting(text) for text in options.set)
        if options.seed is not None:
            return _replay(options.seed, overrides, history=options.history)
        seeds = range(options.first_seed, options.first_seed + options.runs)
        began = time.monotonic()
        total = simulate(seeds, overrides, jobs=options.jobs, stop_at_first=options.stop_at_first)
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2
    for seed, violations in total.failures[:FAILURES_MAX]:
        print(f"\nseed {seed} breaks a promise:")
        for violation in violations[:TOLD_MAX]:
            print(f"  {violation}")
        again = " ".join([f"--seed {seed}", *settings])
        print(f"replay it with: python -m tests.simulation.command {again}")
    seconds = time.monotonic() - began
    print(
        f"{total.runs} runs, {len(total.failures)} failed, {seconds:.1f} s; "
        f"{sum(total.faults.values())} faults, at rest after {total.settled_ms_max} ms at most"
    )
    for what, counts in (("events", total.events), ("faults", total.faults)):
        print(f"{what}: " + ", ".join(f"{name} {n}" for name, n in sorted(counts.items())))
    return 1 if total.failures else 0


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.command", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--runs", type=int, default=2_000)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=NUMBER")
    parser.add_argument("--stop-at-first", action="store_true", help="stop at the first failure")
    parser.add_argument("--seed", type=int, help="replay the run of this seed")
    parser.add_argument("--history", action="store_true", help="with --seed: print what happened")
    return parser.parse_args(arguments)


def _setting(text: str) -> tuple[str, float]:
    name, separator, number = text.partition("=")
    try:
        return name, float(number)
    except ValueError:
        pass
    raise UsageError(f"--set takes NAME=NUMBER, not {text!r}{'' if separator else ': no ='}")


def _replay(seed: int, overrides: Mapping[str, float], *, history: bool) -> int:
    done = run(seed, overrides)
    violations = done.violations()
    if history:
        for event in done.history:
            print(event)
    print(f"seed {seed}: {done.scenario}")
    print(f"at rest {done.settled_ms} ms after the last fault; faults: {dict(done.faults)}")
    for violation in violations:
        print(violation)
    if not violations:
        print("every promise was kept")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
