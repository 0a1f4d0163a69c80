"""A small world of a registry that goes and comes, and of those who call it.

`until_known`, `look_until_back`, `RegistryHealth` and `RegistryWatch` decide as they ship; here the
registry is down for a while, loses answers of calls that it has done, and hangs. Calls are made one
after another, as by one thread. `Calls.live` judges from outside: what callers were told, how often
the registry was asked, and what was shown of it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

from pxrs_ray.errors import StoreUnavailable
from pxrs_ray.steps import Do
from pxrs_ray.supervision.registry_calls import (
    PAUSE_MOST_S,
    AwaitAnswer,
    CallOnce,
    IsAway,
    Look,
    RegistryHealth,
    RestBeforeLook,
    look_until_back,
    until_known,
)
from pxrs_ray.supervision.registry_watch import NOTICE_MS_MAX, RegistryWatch
from tests.simulation.simulator.scenario import Scenario
from tests.simulation.simulator.world import Process, World
from tests.simulation.step_driver import Tell, Turns, drive

TROUBLE_MS, RUN_MS = 60_000, 80_000
CALL_MS = (1, 4, 40)
HANG_MS = 2_500
AWAY = StoreUnavailable("away")
# Who calls hears so soon after the registry is back: a pause, a call that hangs, those before it.
BACK_MS = int(PAUSE_MOST_S * 1_000 * 1.1) + HANG_MS + 600
NOTICED_MS = NOTICE_MS_MAX + 100
# Where callers rest, so many calls a second reach a registry that is down.
ASKED_MAX = 12


class Caller(Process):
    """The process whose calls go to the registry."""

    role = "coordinator"

    def __init__(self, calls: Calls) -> None:
        super().__init__(calls.world, "coordinator")
        self.calls = calls
        self.watch = RegistryWatch()
        self.health = RegistryHealth(self.monotonic_ms())
        self.looks = False
        self.waiting: list[Callable[[], None]] = []
        self._turns = Turns()

    def away_ms(self) -> int | None:
        """What is shown of it."""
        return self.watch.away_ms(self.monotonic_ms(), NOTICE_MS_MAX)

    def call(self, number: int) -> None:
        """Have something done, however long that takes."""
        self.calls.asked[number] = self.world.now_ms
        drive(self, until_known(), partial(self._do, number), partial(self._over, number))

    def look_once(self) -> None:
        """Somebody asks, and gives up where there is no answer."""
        self._do(0, Look(), lambda _: None)

    def _over(self, number: int, came: Any) -> None:
        began_ms = self.calls.asked.pop(number)
        if came != number or number not in self.calls.done:
            self.calls.broken.append(f"{self.world.now_ms}: call {number} was told {came!r}")
        late_ms = self.world.now_ms - max(began_ms, self.calls.back_ms)
        if self.calls.is_up() and late_ms > BACK_MS:
            self.calls.broken.append(f"{self.world.now_ms}: call {number} heard {late_ms} ms late")

    def _do(self, number: int, what: Do[Any], tell: Tell) -> None:
        match what:
            case CallOnce():
                self._turns.take(partial(self._ask, number, tell))
            case AwaitAnswer(wait_s):
                self.waiting.append(partial(tell, None))
                self.after(max(1, int(wait_s * 1_000)), partial(tell, None))
            case IsAway():
                tell(self.away_ms() is not None)
            case RestBeforeLook(pause_s):
                self.after(max(1, int(pause_s * 1_000)), partial(tell, None))
            case Look():
                self._turns.take(partial(self._ask, 0, lambda _: tell(None)))
            case _:
                raise AssertionError(what)

    def _ask(self, number: int, tell: Tell) -> None:
        self.watch.asked(self.monotonic_ms())
        self.calls.asks.append(self.world.now_ms)
        came, takes_ms = self.calls.registry(number)
        self.after(takes_ms, partial(self._came, came, tell))

    def _came(self, came: Any, tell: Tell) -> None:
        if isinstance(came, StoreUnavailable):
            self.watch.failed(self.monotonic_ms())
            self.health.failed(came, self.now().wall_ms)
            self._look()
        else:
            self.watch.answered()
            self.health.answered(self.now())
            waiting, self.waiting = self.waiting, []
            for go_on in waiting:
                go_on()
        self._turns.over()
        tell(came)

    def _look(self) -> None:
        if not self.looks:
            self.looks = True
            drive(self, look_until_back(), partial(self._do, 0), self._looked)

    def _looked(self, _: Any) -> None:
        self.looks = False


class Calls:
    """One seed: the registry, who calls it, and what befalls it."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(f"registry {seed}")
        self.world = World(seed, Scenario())
        self.broken: list[str] = []
        # What was asked for and is not known yet, what is done, and when the registry was asked.
        self.asked: dict[int, int] = {}
        self.done: set[int] = set()
        self.asks: list[int] = []
        self.number = self.outages = self.back_ms = 0
        self.down = self.busy = False
        self.down_since_ms = 0
        self.loses = self.hangs = 0.0
        self.caller = Caller(self)
        self.world.at(200, self._trouble)
        self.world.at(50, self._ask)
        self.world.at(1_000, self._look)

    def is_up(self) -> bool:
        """Whether calls are answered now."""
        return not self.down and not self.loses

    def registry(self, number: int) -> tuple[Any, int]:
        """What comes of a call, and after which time."""
        takes_ms = self.dice.choice(CALL_MS)
        if self.down:
            return AWAY, HANG_MS if self.dice.random() < self.hangs else takes_ms
        self.done.add(number)
        return (AWAY if self.dice.random() < self.loses else number), takes_ms

    def _ask(self) -> None:
        if self.world.now_ms < TROUBLE_MS:
            if self.dice.random() < 0.3:
                self.caller.look_once()
            else:
                self.number += 1
                self.caller.call(self.number)
            self.world.at(self.dice.choice((30, 400, 400, 9_000)), self._ask)

    def _trouble(self) -> None:
        dice, now_ms = self.dice, self.world.now_ms
        was_up, was_down, calm = self.is_up(), self.down, now_ms > TROUBLE_MS
        self.down = not calm and dice.random() < 0.5
        self.loses = 0.0 if calm else dice.choice((0.0, 0.0, 0.4))
        self.hangs = dice.choice((0.0, 0.1, 0.9))
        self.outages += self.down
        if self.down and not was_down:
            self.down_since_ms = now_ms
        if self.is_up() and not was_up:
            self.back_ms = now_ms
        if not calm:
            pause_ms = dice.choice((300, 2_000, 6_000, 15_000))
            self.world.at(min(pause_ms, max(1, TROUBLE_MS + 1 - now_ms)), self._trouble)

    def _look(self) -> None:
        """What people are shown of it is true, and it is not asked to death."""
        now_ms, shown = self.world.now_ms, self.caller.away_ms()
        if self.is_up() and now_ms - self.back_ms > BACK_MS and shown is not None:
            self.broken.append(f"{now_ms}: it is up, and shown as away for {shown} ms")
        lately = sum(at_ms > now_ms - 1_000 for at_ms in self.asks)
        is_long_down = self.down and now_ms - self.down_since_ms > 8_000
        if is_long_down and lately > ASKED_MAX * (1 + len(self.asked)):
            self.broken.append(f"{now_ms}: it is down, and was asked {lately} times in a second")
        oldest_ms = min(self.asked.values(), default=now_ms)
        if is_long_down and shown is None and now_ms - oldest_ms > NOTICED_MS:
            self.broken.append(f"{now_ms}: it is down, and nobody is shown that")
        self.world.at(500, self._look)

    def live(self) -> list[str]:
        """Let it run; what was promised of it and did not hold."""
        self.world.run_until(RUN_MS)
        if self.asked:
            self.broken.append(f"nobody was told of {self.asked}")
        self.world.close()
        return self.broken
