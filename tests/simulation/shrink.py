"""A run that breaks a promise, made small: as few faults, and as little of everything, as still
break it; and told as a transcript."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from pxrs_ray.group.events import Tick
from tests.simulation.checkers import Violation
from tests.simulation.history import Decided, HistoryEvent
from tests.simulation.simulator.run import Run
from tests.simulation.worlds import GROUP, run_in

# What makes a run simpler; each is kept if the promise is still broken.
SIMPLER: tuple[Mapping[str, float], ...] = (
    {"lost": 0, "doubled": 0, "slow": 0},
    {"producers": 1},
    {"members": 1},
    {"members": 2},
    {"partitions": 1},
    {"partitions": 2},
    {"lanes": 0},
    {"grace_share": 0},
    {"prepare_ms": 0},
    {"stale_name": 0},
    {"worn": 0},
    {"keys": 1},
    {"send_interval_ms": 200},
    {"commit_interval_ms": 60},
)
SIMPLER_FEEDS: tuple[Mapping[str, float], ...] = (
    {"lost": 0, "doubled": 0, "slow": 0},
    {"batches": 0},
    {"feeds": 0},
    {"feeds": 1},
    {"unstable": 0},
    {"partitions": 1},
    {"spark_partitions": 1},
    {"rows": 4},
    {"tasks_max": 1},
)
SECONDS_MAX = 60.0


@dataclass(frozen=True)
class Case:
    """One run: its seed, what of its scenario is set otherwise, and which of its faults happen."""

    seed: int
    overrides: Mapping[str, float] = field(default_factory=dict)
    faults: frozenset[int] | None = None
    world: str = GROUP

    def run(self) -> Run:
        """Simulate it."""
        return run_in(self.world, self.seed, self.overrides, self.faults)

    def command(self) -> str:
        """The one command that replays it."""
        told = [f"make simulate SEED={self.seed}"]
        if self.world != GROUP:
            told.append(f"WORLD={self.world}")
        if self.faults is not None:
            told.append(f"FAULTS={','.join(map(str, sorted(self.faults))) or 'none'}")
        if self.overrides:
            settings = " ".join(f"{name}={value:g}" for name, value in self.overrides.items())
            told.append(f'SET="{settings}"')
        return " ".join(told)


def broken(case: Case) -> frozenset[str]:
    """The checkers that find something."""
    return frozenset(violation.checker for violation in case.run().violations())


def shrink(
    case: Case,
    fails: Callable[[Case], frozenset[str]] = broken,
    seconds_max: float = SECONDS_MAX,
) -> Case:
    """The smallest case found that breaks what `case` breaks; itself if that is nothing."""
    wanted, end_s = fails(case), time.monotonic() + seconds_max
    if not wanted:
        return case

    def still(other: Case) -> bool:
        return time.monotonic() < end_s and bool(fails(other) & wanted)

    if case.faults is None:
        case = replace(case, faults=frozenset(case.run().struck))
    smaller = True
    while smaller and time.monotonic() < end_s:
        smaller = False
        for other in _smaller(case):
            if still(other):
                case, smaller = other, True
                break
    return case


def _smaller(case: Case) -> Iterator[Case]:
    """What might do as well, the boldest first."""
    faults = sorted(case.faults or ())
    size = len(faults)
    while size >= 1:
        for start in range(0, len(faults), size):
            yield replace(case, faults=frozenset(faults[:start] + faults[start + size :]))
        size //= 2
    for simpler in SIMPLER if case.world == GROUP else SIMPLER_FEEDS:
        changed = {**simpler, **case.overrides}
        if changed != case.overrides:
            yield replace(case, overrides=changed)


def transcript(history: tuple[HistoryEvent, ...], found: tuple[Violation, ...]) -> str:
    """What happened until the first promise was broken, a line an event; ticks that did nothing
    are left out."""
    end_ms = found[0].at_ms if found else history[-1].at_ms
    lines = []
    for event in history:
        if event.at_ms > end_ms:
            break
        if isinstance(event, Decided) and isinstance(event.event, Tick) and not event.records:
            continue
        kind, _, rest = repr(event).partition("(at_ms=")
        lines.append(f"{event.at_ms:>7} ms  {kind:<12} {rest.partition(', ')[2].rstrip(')')}")
    lines += [f"{violation.at_ms:>7} ms  BROKEN       {violation}" for violation in found[:3]]
    return "\n".join(lines)
