"""A small world to try scalers in: partitions, consumers that take time to start, a shared limit.

Rules of this file: steps of one second, no randomness, the same world for every policy. What a
policy costs is `area`: the mean lag times the seconds of consumers that were paid for.
`python -m tests.simulation.scaling_world traces.png` plots every scenario.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from pxrs_ray.clock import Instant
from pxrs_ray.config.options import ScalingConfig
from pxrs_ray.data.protocol import LogEnds
from pxrs_ray.group.assignors import assign
from pxrs_ray.model import Member, PartitionRow
from pxrs_ray.scaling import Advice, Observation, PartitionLoad, ScalerSettings
from pxrs_ray.scaling.group_scaling import AskAges, AskLogEnds, GroupScaling, GroupSeen, ScaleTo

STEP_MS = 1_000
WALL_MS = 1_700_000_000_000


class Policy(Protocol):
    """Whatever says how many consumers there should be."""

    def advise(self, seen: Observation) -> Advice:
        """Judge one observation."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A load and a world. Rates are messages a second.

    `arriving(t)` gives the rate of each partition at second t; `limit(consumers)` is what all
    together can do at most (a database behind them); a consumer works `start_s` after it was
    asked for. `settles_at` is the range of sizes in which a policy should end.
    """

    name: str
    partitions: int
    seconds: int
    per_consumer: float
    arriving: Callable[[int], list[float]]
    limit: Callable[[int], float]
    start_s: int
    load_changes: int
    settles_at: tuple[int, int]


@dataclass(slots=True)
class Trace:
    """What happened, second by second."""

    scenario: str
    lag: list[int] = field(default_factory=list)
    wanted: list[int] = field(default_factory=list)
    running: list[int] = field(default_factory=list)
    skewed: set[int] = field(default_factory=set)

    @property
    def area(self) -> float:
        """Mean lag times consumer-seconds: small is good, and neither can be had for nothing."""
        return (sum(self.lag) / len(self.lag) + 1) * sum(self.running)

    @property
    def turns(self) -> int:
        """How often the direction of scaling has changed."""
        steps = [b - a for a, b in zip(self.wanted, self.wanted[1:], strict=False) if a != b]
        return sum((a > 0) != (b > 0) for a, b in itertools.pairwise(steps))


class _World:
    def __init__(self, scenario: Scenario, consumers: int) -> None:
        self.scenario = scenario
        self.wanted = self.running = consumers
        self.starting: deque[int] = deque()
        self.ends = [0.0] * scenario.partitions
        self.done = [0.0] * scenario.partitions
        self.arrived: list[deque[tuple[int, float]]] = [deque() for _ in self.ends]
        self.owners: dict[int, str] = {}
        self._share()

    def _share(self) -> None:
        members = [Member(f"c{n:03}", 1) for n in range(self.running)]
        self.owners = assign("sticky", members, len(self.ends), self.owners)

    def scale(self, consumers: int, second: int) -> None:
        for _ in range(consumers - self.wanted):
            self.starting.append(second + self.scenario.start_s)
        for _ in range(self.wanted - consumers):
            if self.starting:
                self.starting.pop()
            else:
                self.running -= 1
        self.wanted = consumers
        self._share()

    def step(self, second: int) -> None:
        while self.starting and self.starting[0] <= second:
            self.starting.popleft()
            self.running += 1
            self._share()
        for p, rate in enumerate(self.scenario.arriving(second)):
            self.ends[p] += rate
            if rate:
                self.arrived[p].append((second, self.ends[p]))
        wished = [0.0] * len(self.ends)
        mine: dict[str, list[int]] = {}
        for p, owner in self.owners.items():
            mine.setdefault(owner, []).append(p)
        for partitions in mine.values():
            left = self.scenario.per_consumer
            for rank, p in enumerate(sorted(partitions, key=self._waits)):
                give = min(self._waits(p), left / (len(partitions) - rank))
                wished[p] = give
                left -= give
        total = sum(wished)
        limit = self.scenario.limit(self.running)
        shrink = min(1.0, limit / total) if total else 1.0
        for p, amount in enumerate(wished):
            self.done[p] += amount * shrink
            while self.arrived[p] and self.arrived[p][0][1] <= self.done[p] + 1e-9:
                self.arrived[p].popleft()

    def _waits(self, partition: int) -> float:
        return self.ends[partition] - self.done[partition]

    def observe(self, second: int) -> Observation:
        loads = tuple(
            PartitionLoad(
                p,
                math.floor(self.ends[p] + 1e-6),
                math.floor(self.done[p] + 1e-6),
                (second - self.arrived[p][0][0]) * STEP_MS if self.arrived[p] else 0,
                self.owners.get(p),
            )
            for p in range(len(self.ends))
        )
        return Observation(second * STEP_MS, self.wanted, self.running, loads)


class Shipped:
    """The scaling that ships: a `GroupScaling`, asked as a coordinator asks it.

    `away` says at which seconds a buffer is away; `pins` what an operator sets at a second, while
    an advice waits for its turn.
    """

    def __init__(
        self,
        settings: ScalerSettings,
        away: Callable[[int], bool] = lambda _: False,
        pins: Mapping[int, int | None] | None = None,
    ) -> None:
        self._away, self._pins = away, dict(pins or {})
        self._now = Instant(0, 0)
        self._scaling = GroupScaling(lambda: self._now)
        self._scaling.configure(settings)

    def advise(self, seen: Observation) -> Advice:
        """Judge what there is to be seen at one second."""
        self._now = Instant(seen.at_ms, WALL_MS + seen.at_ms)
        wanted, asked = seen.wanted, "nothing is to be changed"
        steps = self._scaling.looking()
        answer: Any = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration:
                break
            if isinstance(step, ScaleTo):
                self._set_by_hand(seen.at_ms // STEP_MS)
                wanted, asked, answer = step.choose(seen.wanted), step.advice.reason, None
            else:
                answer = self._answer(step, seen)
        self._set_by_hand(seen.at_ms // STEP_MS)
        told = self._scaling.advice
        return Advice(wanted, asked, told.skew if told is not None else None)

    def _set_by_hand(self, second: int) -> None:
        if second in self._pins:
            self._scaling.pin(self._pins.pop(second))

    def _answer(self, step: object, seen: Observation) -> Any:
        loads = seen.partitions
        if isinstance(step, AskLogEnds):
            there = loads[:-1] if self._away(seen.at_ms // STEP_MS) else loads
            return {load.partition: _ends_of(load) for load in there}
        if isinstance(step, AskAges):
            ages = {load.partition: load.lag_ms for load in loads}
            return {p: self._now.wall_ms - ages[p] for p in step.offsets}
        rows = [
            PartitionRow(p.partition, p.owner, 1 if p.owner else 0, 1, p.checkpoint) for p in loads
        ]
        return GroupSeen(rows, len(rows), seen.wanted, seen.running)


def _ends_of(load: PartitionLoad) -> LogEnds:
    return LogEnds(load.partition, 0, load.end_offset, load.end_offset, None, None, 0, 0)


def run(scenario: Scenario, policy: Policy, consumers: int = 1) -> Trace:
    """Let `policy` steer the world of `scenario` from its first to its last second."""
    world, trace = _World(scenario, consumers), Trace(scenario.name)
    for second in range(scenario.seconds):
        world.step(second)
        seen = world.observe(second)
        advice = policy.advise(seen)
        if advice.skew is not None:
            trace.skewed.add(advice.skew)
        if advice.consumers != world.wanted:
            world.scale(advice.consumers, second)
        trace.lag.append(seen.lag)
        trace.wanted.append(world.wanted)
        trace.running.append(world.running + len(world.starting))
    return trace


class ThresholdRule:
    """What a lag-threshold autoscaler with a cool-down does, at its usual settings.

    Every 15 s: lag / threshold consumers, rounded up, at most one a partition; outwards at once,
    by at most doubling or four; inwards to the most that was asked for within the last 300 s.
    """

    def __init__(self, lag_threshold: int, consumers_min: int = 1) -> None:
        self._threshold = lag_threshold
        self._min = consumers_min
        self._asked: deque[tuple[int, int]] = deque()

    def advise(self, seen: Observation) -> Advice:
        """Judge one observation."""
        if seen.at_ms % 15_000:
            return Advice(seen.wanted, "between two looks")
        asked = math.ceil(seen.lag / self._threshold)
        asked = max(self._min, min(asked, len(seen.partitions)))
        self._asked.append((seen.at_ms, asked))
        while seen.at_ms - self._asked[0][0] > 300_000:
            self._asked.popleft()
        size = max(count for _, count in self._asked)
        return Advice(min(size, max(seen.wanted * 2, seen.wanted + 4)), "lag over threshold")


def scenarios() -> list[Scenario]:
    """The worlds that a scaler must do well in."""
    free = float("inf")

    def even(rate: float, partitions: int) -> list[float]:
        return [rate / partitions] * partitions

    def hot(second: int) -> list[float]:
        return [130.0 if 120 <= second < 900 else 10.0, *even(90, 15)]

    return [
        Scenario(
            "database that saturates",
            32,
            1_800,
            100.0,
            lambda s: even(420 if 60 <= s < 900 else 150, 32),
            lambda c: 330.0 if c <= 4 else 330.0 * 0.96 ** (c - 4),
            3,
            2,
            (2, 3),
        ),
        Scenario(
            "sawtooth",
            32,
            2_400,
            100.0,
            lambda s: even(50 + 600 * ((s % 800) / 800), 32),
            lambda c: free,
            3,
            3,
            (1, 10),
        ),
        Scenario("hot key", 16, 1_800, 100.0, hot, lambda c: free, 3, 2, (1, 3)),
        Scenario(
            "one-minute burst",
            32,
            1_200,
            100.0,
            lambda s: even(1_500 if 300 <= s < 360 else 80, 32),
            lambda c: free,
            3,
            2,
            (1, 2),
        ),
        Scenario(
            "slow node starts",
            32,
            1_800,
            100.0,
            lambda s: even(700 if 120 <= s < 1_000 else 80, 32),
            lambda c: free,
            90,
            2,
            (1, 2),
        ),
    ]


def shipped() -> Shipped:
    """The scaling that ships, with the settings that nobody has changed."""
    return Shipped(ScalingConfig().settings())


def compare(settings: ScalerSettings | None = None) -> list[tuple[Trace, Trace]]:
    """Each scenario under our scaler and under the threshold rule, with the same target."""
    ours = settings or ScalingConfig().settings()
    threshold_s = ours.target_lag_ms / 1_000
    return [
        (
            run(world, Shipped(ours)),
            run(world, ThresholdRule(round(world.per_consumer * threshold_s))),
        )
        for world in scenarios()
    ]


def plot(file: str) -> None:
    """Write a picture of every scenario: lag and consumers over time, ours and the rule's."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    results = compare()
    figure, rows = plt.subplots(len(results), 2, figsize=(12, 2.6 * len(results)))
    for (ours, rule), (left, right) in zip(results, rows, strict=True):
        for trace, name in ((ours, "ours"), (rule, "threshold rule")):
            left.plot(trace.lag, label=name)
            right.plot(trace.running, label=name)
        left.set_title(f"{ours.scenario}: messages waiting", fontsize=9)
        right.set_title(f"{ours.scenario}: consumers", fontsize=9)
        right.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(file, dpi=80)
    plt.close(figure)


if __name__ == "__main__":
    import sys

    plot(sys.argv[1] if len(sys.argv) > 1 else "scaling.png")
