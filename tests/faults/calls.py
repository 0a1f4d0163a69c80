"""Every call between processes, lost, late, doubled, or with a process killed at either end of it.

For each scenario a run without faults tells which calls there are. Then each kind of call, at
several of its places, gets each fault, in a world of its own; the witness judges what came of it.
`python -m tests.faults.calls [scenario ...]` tells every failure; `--all` leaves nothing out.
"""

from __future__ import annotations

import gc
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.faults import FaultReport
from tests.world.plan import Plan
from tests.world.scenarios import SCENARIOS
from tests.world.world import World

SECONDS_MAX = 900.0
HANDLED_S_MAX = 45.0
PLACES = 1
PART = 3
COLLECTED_EVERY = (50_000, 20, 20)

FAULTS = (
    "lost",
    "unanswered",
    "answered late",
    "delayed",
    "doubled",
    "doubled late",
    "callee killed before",
    "callee killed after",
    "caller killed before",
    "caller killed after",
)


@contextmanager
def quick_collection() -> Iterator[None]:
    """Worlds collect their garbage when they end: seldom before, and not through what was there."""
    gc.collect()
    frozen_already = gc.get_freeze_count()  # as in a run of tests
    gc.freeze()
    thresholds = gc.get_threshold()
    gc.set_threshold(*COLLECTED_EVERY)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        if not frozen_already:
            gc.unfreeze()


def attempt(scenario: str, plan: Plan) -> list[str]:
    """One world with one fault; answers what is wrong."""
    with tempfile.TemporaryDirectory(prefix="pxrs-world-") as folder:
        world = World(Path(folder), plan)
        try:
            wrong = list(world.run(SCENARIOS[scenario], SECONDS_MAX))
        except Exception as error:
            wrong = [*world.witness.wrong, *world.kernel.faults, repr(error)]
        else:
            wrong += [one for one in world.witness.judge() if one not in wrong]
            wrong += world.witness.slow(HANDLED_S_MAX)
    return wrong


def census(scenario: str) -> Counter[str]:
    """Which calls there are, and how many of each. Raises AssertionError where that goes wrong."""
    plan = Plan()
    wrong = attempt(scenario, plan)
    assert not wrong, f"{scenario} without any fault: {wrong}"
    return plan.seen


def plans(seen: Counter[str], places: int) -> Iterator[Plan]:
    """Each fault at the first, the last and some places between, of each kind of call."""
    for kind, count in sorted(seen.items()):
        last = count - 1
        numbers = {round(last * n / max(1, places - 1)) for n in range(min(places, count))}
        for number in sorted(numbers):
            for fault in FAULTS:
                # The registry itself is what all rests on: it is away at times, and never gone.
                if not (kind.startswith("store.") and fault.startswith("callee killed")):
                    yield Plan(kind, number, fault)


def run(
    scenarios: Sequence[str] = tuple(SCENARIOS),
    places: int = PLACES,
    *,
    part: int = PART,
    tell: Callable[[str], object] = str,
) -> FaultReport:
    """Fail the calls of these scenarios, one by one: every `part`th of all there are."""
    report = FaultReport(0)
    with quick_collection():
        for scenario in scenarios:
            seen = census(scenario)
            for plan in list(plans(seen, places))[::part]:
                wrong = attempt(scenario, plan)
                told = [f"{scenario}: {plan.kind} {plan.number} {plan.fault}: {w}" for w in wrong]
                report += FaultReport(int(plan.put), told)
                for line in told:
                    tell(line)
    return report


def main(arguments: list[str]) -> int:
    """Tell what was found, as it comes."""
    places = 6 if "--all" in arguments else PLACES
    named = [name for name in arguments if name in SCENARIOS] or list(SCENARIOS)
    failed = 0
    for scenario in named:
        report = run((scenario,), places, part=1, tell=lambda line: print(f"  {line}", flush=True))
        failed += len(report.failures)
        print(f"{scenario}: {report.steps} calls failed, {len(report.failures)} findings")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
