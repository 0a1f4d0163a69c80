"""Many simulated runs, each judged by every checker.

    python -m tests.simulation.command --runs 2000            # seeds 0 to 1999, on every core
    python -m tests.simulation.command --seed 17 --history    # one run again, told in full
    python -m tests.simulation.command --world feed           # Spark's feeds instead of a group

`--set NAME=NUMBER` fixes a number of every scenario, or the weight of a fault (see `scenario`). A
failure prints the one command that replays it; the first one is made small and told in full.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

from pxrs_ray.errors import UsageError
from tests.simulation.coverage import Pair, pairs
from tests.simulation.feeding.feed_scenario import FEED_FAULTS
from tests.simulation.shrink import Case, shrink, transcript
from tests.simulation.simulator.run import uncollected
from tests.simulation.simulator.scenario import FAULTS
from tests.simulation.worlds import GROUP, WORLDS

CHUNK_RUNS = 25
# So many chunks a process are under way or wait to be counted: what waits is bounded.
CHUNKS_AHEAD = 4
TELL_S = 60.0
FAILURES_MAX = 5
TOLD_MAX = 3
LIKES_MAX = 20
LIKELIER = 5


@dataclass(frozen=True)
class Failure:
    """A run that breaks a promise."""

    case: Case
    violations: list[str]


@dataclass
class Result:
    """What became of some runs."""

    runs: int = 0
    events: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    pairs: Counter[Pair] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    settled_ms_max: int = 0

    def add(self, other: Result) -> None:
        """Count these as well."""
        self.runs += other.runs
        self.events += other.events
        self.faults += other.faults
        self.pairs += other.pairs
        self.failures += other.failures
        self.settled_ms_max = max(self.settled_ms_max, other.settled_ms_max)


def judge(
    seeds: range, overrides: Mapping[str, float], *, steer: bool = False, world: str = GROUP
) -> Result:
    """Simulate and check the runs of `seeds`.

    With `steer`, seeds that come after one that has shown something new are run as a like of it.
    """
    result = Result()
    likes: list[Mapping[str, float]] = []
    with uncollected():
        for start in range(0, len(seeds), CHUNK_RUNS):
            for seed in seeds[start : start + CHUNK_RUNS]:
                like = likes.pop() if likes else {}
                case = Case(seed, {**like, **overrides}, world=world)
                new = _judge_one(case, result)
                if steer and new:
                    likes = [*_likes(case, new), *likes][:LIKES_MAX]
                # At once, while it is in the processor's caches: later it takes five times as long.
                gc.collect(0)
            gc.collect()
    return result


def _judge_one(case: Case, result: Result) -> set[Pair]:
    """Count it, and answer the pairs that it is the first to show."""
    done = case.run()
    result.runs += 1
    for kind, count in Counter(map(type, done.history)).items():
        result.events[kind.__name__] += count
    result.faults.update(done.faults)
    result.settled_ms_max = max(result.settled_ms_max, done.settled_ms)
    found = pairs(done.history)
    new = found - result.pairs.keys()
    result.pairs.update(found)
    violations = [str(violation) for violation in done.violations()]
    if violations:
        result.failures.append(Failure(case, violations))
    return new


def _likes(case: Case, new: set[Pair]) -> list[Mapping[str, float]]:
    """Settings that lead near what was new: more of the faults in it, and closer together."""
    faults = FAULTS if case.world == GROUP else FEED_FAULTS
    told = sorted({name for pair in new for name in pair if name in faults})
    near = {name: LIKELIER * faults[name] for name in told[:2]}
    return [{**case.overrides, **near}, {**case.overrides, **near, "fault_interval_ms": 120}]


def _begin_process() -> None:
    """A process that only simulates need not look at what is imported, again and again."""
    gc.collect()
    gc.freeze()


def simulate(
    seeds: range,
    overrides: Mapping[str, float],
    *,
    jobs: int = 1,
    stop_at_first: bool = False,
    steer: bool = False,
    world: str = GROUP,
    tell: Callable[[Result], None] = lambda _: None,
) -> Result:
    """Judge `seeds` with that many processes; stop early when enough has been found.

    `tell` is called with the results so far, again and again.
    """
    enough = 1 if stop_at_first else FAILURES_MAX
    total = Result()
    work = partial(judge, overrides=overrides, steer=steer, world=world)
    with closing(_judged(seeds, jobs, work)) as results:
        for result in results:
            total.add(result)
            tell(total)
            if len(total.failures) >= enough:
                break
    return total


def _judged(seeds: range, jobs: int, judge_some: Callable[[range], Result]) -> Iterator[Result]:
    """The results of all seeds, in their order; only so many are under way or wait at a time."""
    chunks = (seeds[at : at + CHUNK_RUNS] for at in range(0, len(seeds), CHUNK_RUNS))
    if jobs == 1:
        yield from map(judge_some, chunks)
        return
    with ProcessPoolExecutor(jobs, initializer=_begin_process) as pool:
        ahead = deque(
            pool.submit(judge_some, chunk) for chunk in islice(chunks, jobs * CHUNKS_AHEAD)
        )
        try:
            while ahead:
                yield ahead.popleft().result()
                ahead.extend(pool.submit(judge_some, chunk) for chunk in islice(chunks, 1))
        finally:
            pool.shutdown(cancel_futures=True)


class Teller:
    """Says now and then how far a long run is."""

    def __init__(self, runs: int, now_s: Callable[[], float] = time.monotonic) -> None:
        self._runs = runs
        self._now_s = now_s
        self._began_s = self._told_s = now_s()

    @property
    def seconds(self) -> float:
        """Since it began."""
        return self._now_s() - self._began_s

    def __call__(self, total: Result) -> None:
        """Say it, if that was not done for a while."""
        now_s = self._now_s()
        if now_s - self._told_s < TELL_S:
            return
        self._told_s, seconds = now_s, now_s - self._began_s
        left_s = (self._runs - total.runs) / total.runs * seconds
        print(
            f"{total.runs:,} of {self._runs:,} runs in {_time(seconds)}, "
            f"{total.runs / seconds:.1f} a second, {len(total.failures)} failed; "
            f"{sum(total.faults.values()):,} faults, {len(total.pairs):,} pairs; "
            f"{_time(left_s)} to go",
            flush=True,
        )


def _time(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def main(arguments: list[str] | None = None) -> int:
    """The command line; answers the exit status."""
    options = _parse(arguments)
    try:
        overrides = dict(_setting(text) for text in options.set)
        if options.seed is not None:
            case = Case(options.seed, overrides, _chosen(options.faults), options.world)
            return _replay(case, history=options.history)
        seeds = range(options.first_seed, options.first_seed + options.runs)
        tell = Teller(options.runs)
        total = simulate(
            seeds,
            overrides,
            jobs=options.jobs,
            stop_at_first=options.stop_at_first,
            steer=options.steer,
            world=options.world,
            tell=tell,
        )
        seconds = tell.seconds
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2
    for failure in total.failures[:FAILURES_MAX]:
        print(f"\nseed {failure.case.seed} breaks a promise:")
        for violation in failure.violations[:TOLD_MAX]:
            print(f"  {violation}")
        print(f"replay it with: {failure.case.command()}")
    if total.failures and not options.no_shrink:
        _tell_small(total.failures[0].case)
    print(
        f"{total.runs} runs, {len(total.failures)} failed, {seconds:.1f} s; "
        f"{sum(total.faults.values())} faults, {len(total.pairs)} pairs of a state and an event "
        f"({sum(n == 1 for n in total.pairs.values())} of them once), "
        f"at rest after {total.settled_ms_max} ms at most"
    )
    for what, counts in (("events", total.events), ("faults", total.faults)):
        print(f"{what}: " + ", ".join(f"{name} {n}" for name, n in sorted(counts.items())))
    return 1 if total.failures else 0


def _tell_small(case: Case) -> None:
    """The smallest run that was found to break the same, as a transcript."""
    small = shrink(case)
    done = small.run()
    print(f"\nthe smallest run that breaks the same ({len(done.history)} events):")
    print(transcript(tuple(done.history), done.violations()))
    print(f"replay it with: {small.command()}")


def _chosen(text: str | None) -> frozenset[int] | None:
    if text is None:
        return None
    return frozenset(int(number) for number in text.split(",") if number != "none")


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.command", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--runs", type=int, default=2_000)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=NUMBER")
    parser.add_argument("--stop-at-first", action="store_true", help="stop at the first failure")
    parser.add_argument("--seed", type=int, help="replay the run of this seed")
    parser.add_argument("--faults", help="with --seed: only these faults of it, as 3,7 or none")
    parser.add_argument("--world", choices=sorted(WORLDS), default=GROUP)
    parser.add_argument("--steer", action="store_true", help="look near what was new")
    parser.add_argument("--no-shrink", action="store_true", help="do not make a failure small")
    parser.add_argument("--history", action="store_true", help="with --seed: print what happened")
    return parser.parse_args(arguments)


def _setting(text: str) -> tuple[str, float]:
    name, separator, number = text.partition("=")
    try:
        return name, float(number)
    except ValueError:
        pass
    raise UsageError(f"--set takes NAME=NUMBER, not {text!r}{'' if separator else ': no ='}")


def _replay(case: Case, *, history: bool) -> int:
    done = case.run()
    violations = done.violations()
    if history:
        for event in done.history:
            print(event)
    elif violations:
        print(transcript(tuple(done.history), violations))
    print(f"seed {case.seed}: {done.scenario}")
    print(f"at rest {done.settled_ms} ms after the last fault; faults: {dict(done.faults)}")
    for violation in violations:
        print(violation)
    if not violations:
        print("every promise was kept")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
