"""Virtual time, processes that crash and freeze, and the network between them.

Rules of this file. One thread, one source of chance: the same seed gives the same run, to the
last event. Nothing here knows what PXRS is.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from typing import TypeVar

from pxrs_ray.clock import Instant
from tests.simulation.history import HistoryEvent
from tests.simulation.simulator.scenario import Network, Scenario

Action = Callable[[], None]
Answer = TypeVar("Answer")

EPOCH_MS = 1_700_000_000_000
DRIFT_PART = 0.02


class World:
    """Time, chance, the network's quality, and the history of what happened."""

    def __init__(self, seed: int, scenario: Scenario) -> None:
        self.random = random.Random(f"world {seed}")
        self.scenario = scenario
        self.network: Network = scenario.network
        self.now_ms = 0
        self.wall_offset_ms = EPOCH_MS
        self.history: list[HistoryEvent] = []
        self._due: list[tuple[int, int, Action]] = []
        self._scheduled = 0

    def at(self, delay_ms: int, action: Action) -> None:
        """Do `action` in `delay_ms`; things due at the same moment happen in order of asking."""
        self._scheduled += 1
        heapq.heappush(self._due, (self.now_ms + delay_ms, self._scheduled, action))

    def run_until(self, end_ms: int) -> None:
        """Let time pass until `end_ms`."""
        due = self._due
        while due and due[0][0] <= end_ms:
            self.now_ms, _, action = heapq.heappop(due)
            action()
        self.now_ms = end_ms

    def chance(self, share: float) -> bool:
        """True for about this share of the calls."""
        return share > 0 and self.random.random() < share

    def record(self, event: HistoryEvent) -> None:
        """Write down what happened."""
        self.history.append(event)


class Process:
    """Something with a life of its own: it can crash, and freeze and thaw again.

    What comes due while it is frozen happens when it thaws; what comes due after its end, never.
    `cut_from` are the roles that it can neither reach nor be reached by.
    """

    role = "process"

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.alive = True
        self.frozen = False
        self.cut_from: set[str] = set()
        self._clock_base_ms = world.random.randrange(10_000_000)
        # Of dice of its own: other draws stay what they were.
        drift = random.Random(f"drift {name} {self._clock_base_ms}")
        self._clock_rate = drift.uniform(1 - DRIFT_PART, 1 + DRIFT_PART)
        self._missed: list[Action] = []

    def now(self) -> Instant:
        """The time by this process's clocks.

        Each host counts its monotonic time from elsewhere, and a little faster or slower.
        """
        world = self.world
        monotonic_ms = self._clock_base_ms + int(world.now_ms * self._clock_rate)
        return Instant(monotonic_ms, world.now_ms + world.wall_offset_ms)

    def run(self, action: Action) -> None:
        """Do `action` as this process: now, at the thaw, or never."""
        if not self.alive:
            return
        if self.frozen:
            self._missed.append(action)
        else:
            action()

    def after(self, delay_ms: int, action: Action) -> None:
        """Do `action` as this process in `delay_ms`."""
        self.world.at(delay_ms, lambda: self.run(action))

    def every(self, interval_ms: int, action: Action) -> None:
        """Do `action` now and in every `interval_ms` again."""

        def again() -> None:
            action()
            self.after(interval_ms, again)

        self.run(again)

    def repeat(self, begin: Callable[[Action], None], wait_ms: int, pause_ms: int) -> None:
        """Do `begin` over and over, one at a time, each ended by its answer or after `wait_ms`."""

        def again() -> None:
            done = once(lambda: self.after(pause_ms, again))
            begin(done)
            self.after(wait_ms, done)

        self.run(again)

    def crash(self) -> None:
        """End at once; nothing is cleaned up."""
        self.alive = False
        self._missed.clear()

    def freeze(self) -> None:
        """Stand still."""
        self.frozen = True

    def thaw(self) -> None:
        """Go on, first with everything that was missed."""
        self.frozen = False
        missed, self._missed = self._missed, []
        for action in missed:
            self.run(action)


def send(source: Process, target: Process, action: Action) -> None:
    """Have `action` done at `target`: perhaps late, perhaps twice, perhaps never."""
    world = source.world
    network = world.network
    if target.role in source.cut_from or source.role in target.cut_from:
        return
    if world.chance(network.lost):
        return
    for _ in range(2 if world.chance(network.doubled) else 1):
        delay_ms = world.random.randint(1, 3)
        if world.chance(network.slow):
            delay_ms = world.random.randint(1, network.slow_ms_max)
        world.at(delay_ms, lambda: target.run(action))


def call(
    source: Process,
    target: Process,
    handle: Callable[[Callable[[Answer], None]], None],
    on_answer: Callable[[Answer], None],
) -> None:
    """Call `target`, which may answer through the function it is given; both ways are a network."""

    def answer(value: Answer) -> None:
        send(target, source, lambda: on_answer(value))

    send(source, target, lambda: handle(answer))


def once(do: Action) -> Action:
    """`do`, the first time; nothing after that."""
    done = False

    def first_time_only() -> None:
        nonlocal done
        if not done:
            done = True
            do()

    return first_time_only
