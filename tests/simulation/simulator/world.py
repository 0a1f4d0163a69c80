"""Virtual time, processes that crash and freeze, and the network between them.

Rules of this file. One thread, one source of chance: the same seed gives the same run, to the
last event. Nothing here knows what PXRS is.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from functools import partial
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
        self.roll = self.random.random
        self.scenario = scenario
        self.network: Network = scenario.network
        self.now_ms = 0
        self.wall_offset_ms = EPOCH_MS
        # Messages whose handler ends its process.
        self.deadly: set[str] = set()
        self.history: list[HistoryEvent] = []
        self.record = self.history.append
        self._numbers = 0
        # By the moment at which it is due: a run has a few events a millisecond.
        self.due: defaultdict[int, list[tuple[Process | None, Action]]] = defaultdict(list)

    def at(self, delay_ms: int, action: Action, whose: Process | None = None) -> None:
        """Do `action` in `delay_ms`, as the process `whose` it is.

        Things that are due at the same moment happen in the order in which they were asked for.
        """
        self.due[self.now_ms + delay_ms].append((whose, action))

    def run_until(self, end_ms: int) -> None:
        """Let time pass until `end_ms`."""
        due = self.due
        for now_ms in range(self.now_ms, end_ms + 1):
            if now_ms not in due:
                continue
            self.now_ms = now_ms
            # It may grow while it is walked through.
            for whose, action in due[now_ms]:
                if whose is None or (whose.alive and not whose.frozen):
                    action()
                elif whose.alive:
                    whose.missed.append(action)
            del due[now_ms]
        self.now_ms = end_ms

    def number(self) -> int:
        """A number that nobody else of this run gets."""
        self._numbers += 1
        return self._numbers

    def close(self) -> None:
        """Forget everything: what was still to come holds every process of the run."""
        forget(self)

    def chance(self, share: float) -> bool:
        """True for about this share of the calls."""
        return share > 0 and self.roll() < share


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
        self.missed: list[Action] = []
        self._now = Instant(-1, -1)
        self._now_at_ms = -1

    def now(self) -> Instant:
        """The time by this process's clocks.

        Each host counts its monotonic time from elsewhere, and a little faster or slower.
        """
        world = self.world
        now_ms = world.now_ms
        wall_ms = now_ms + world.wall_offset_ms
        if now_ms != self._now_at_ms or wall_ms != self._now.wall_ms:
            self._now_at_ms = now_ms
            self._now = Instant(self._clock_base_ms + int(now_ms * self._clock_rate), wall_ms)
        return self._now

    def monotonic_ms(self) -> int:
        """The time by this process's monotonic clock."""
        return self._clock_base_ms + int(self.world.now_ms * self._clock_rate)

    def run(self, action: Action) -> None:
        """Do `action` as this process: now, at the thaw, or never."""
        if not self.alive:
            return
        if self.frozen:
            self.missed.append(action)
        else:
            action()

    def after(self, delay_ms: int, action: Action) -> None:
        """Do `action` as this process in `delay_ms`: `World.at`, without another call."""
        world = self.world
        world.due[world.now_ms + delay_ms].append((self, action))

    def every(self, interval_ms: int, action: Action) -> None:
        """Do `action` now and in every `interval_ms` again."""
        self.run(partial(self._do_again, interval_ms, action))

    def _do_again(self, interval_ms: int, action: Action) -> None:
        action()
        self.after(interval_ms, partial(self._do_again, interval_ms, action))

    def crash(self) -> None:
        """End at once; nothing is cleaned up."""
        self.alive = False
        self.missed.clear()

    def freeze(self) -> None:
        """Stand still."""
        self.frozen = True

    def thaw(self) -> None:
        """Go on, first with everything that was missed."""
        self.frozen = False
        missed, self.missed = self.missed, []
        for action in missed:
            self.run(action)


def forget(thing: object) -> None:
    """Let go of everything that it holds; a compiled one holds it where nobody can see it."""
    getattr(thing, "__dict__", {}).clear()


def send(source: Process, target: Process, action: Action) -> None:
    """Have `action` done at `target`: perhaps late, perhaps twice, perhaps never."""
    world, roll = source.world, source.world.roll
    network = world.network
    if target.role in source.cut_from or source.role in target.cut_from:
        return
    if network.lost > 0 and roll() < network.lost:
        return
    for _ in range(2 if network.doubled > 0 and roll() < network.doubled else 1):
        # `randint` takes five times as long, and is asked for every call and answer.
        delay_ms = 1 + int(roll() * 3)
        if network.slow > 0 and roll() < network.slow:
            delay_ms = 1 + int(roll() * network.slow_ms_max)
        world.due[world.now_ms + delay_ms].append((target, action))


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
