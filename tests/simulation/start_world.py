"""A small world of a coordinator that starts, and of the changes that are asked of it.

`BeginTries` and `ChangesUnderWay` decide as they ship; here a start's tries and a registry's calls
take their time, and fail for as long as a trouble lasts. `Starts.live` judges from outside: what
callers heard, what was begun and taken back, and what was changed.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import partial

from pxrs_ray.errors import DiskFull, NotFound, StoreUnavailable, UsageError
from pxrs_ray.supervision.changes_under_way import ANSWER_MS, ChangesUnderWay
from pxrs_ray.supervision.start_tries import PAUSE_MOST_MS, BeginTries
from tests.simulation.simulator.scenario import Scenario
from tests.simulation.simulator.world import Process, World

RUN_MS = 120_000
CALM_MS = 80_000
TRY_MS = (5, 60, 700)
WAIT_MS = 4_000
LOOK_MS = 100
DRIFT = 0.05
# A caller that asks all the time has it begun so soon after the trouble is over.
BEGUN_MS = int(PAUSE_MOST_MS * (1 + DRIFT)) + 2 * max(TRY_MS) + WAIT_MS
PASSING, LASTING = (DiskFull("full"), StoreUnavailable("away")), UsageError("no such option")
# Who is refused at once hears it sooner than who waits for the registry.
HEARD_MS = int((ANSWER_MS + LOOK_MS) * (1 + DRIFT)) + 2 * LOOK_MS


@dataclass(slots=True)
class Change:
    """One change that somebody asked for. `heard` is what its caller was told."""

    asked_ms: int
    heard: str = ""
    made: bool = False


class Starting(Process):
    """One incarnation: it starts, and then makes changes."""

    role = "coordinator"

    def __init__(self, starts: Starts) -> None:
        super().__init__(starts.world, "coordinator")
        self.starts = starts
        self.tries = BeginTries()
        self.changes = ChangesUnderWay()
        self.deleted = starts.deleted
        # How much a former try has left, and whether a try is under way.
        self.left = False
        self.trying = False
        self._failed_ms: list[int] = []

    # --- its start --------------------------------------------------------------------------------

    def ask(self) -> None:
        """A caller waits for its start, and asks again when it has an answer."""
        if self.tries.asked():
            if self.trying:
                self.starts.broken.append(f"{self.world.now_ms}: two tries at a time")
            self._try()
        if not self.tries.done:
            self.after(WAIT_MS, self.ask)

    def _try(self) -> None:
        self.trying = True
        if self.tries.begins():
            self.left = False
        if self.left:
            self.starts.broken.append(f"{self.world.now_ms}: what was left is not taken back")
        takes_ms = self.starts.dice.choice(TRY_MS)
        self.after(takes_ms, self._tried)

    def _tried(self) -> None:
        starts, now_ms = self.starts, self.world.now_ms
        self.trying, self.left = False, True
        error = NotFound("it is being deleted") if self.deleted else starts.trouble
        if error is None:
            self.tries.begun()
            self.left = False
            return
        pause_s = self.tries.failed(error)
        passes = error in PASSING
        if pause_s is not None:
            if not passes:
                starts.broken.append(f"{now_ms}: {error!r} lasts, and is tried again by itself")
            self._failed_ms = [ms for ms in self._failed_ms if ms > now_ms - 10_000] + [now_ms]
            if len(self._failed_ms) > 16:
                starts.broken.append(f"{now_ms}: it is tried too often")
            self.after(max(1, int(pause_s * 1_000)), self._try)
            return
        if error is PASSING[0]:
            starts.broken.append(f"{now_ms}: {error!r} passes, and goes out to who waits")
        if not self.deleted:
            self.ask()

    # --- changes ----------------------------------------------------------------------------------

    def away_ms(self) -> int | None:
        """For how long the registry has been away, as this process has noticed."""
        since_ms = self.starts.away_since_ms
        return None if since_ms is None else self.world.now_ms - since_ms

    def change(self) -> None:
        """Somebody asks for a change."""
        change = Change(self.world.now_ms)
        self.starts.changes.append(change)
        if self.changes.refuses(self.away_ms()):
            change.heard = "refused"
            return
        self.changes.begins(id(change), "a change")
        self._make(change)
        self._look(change)

    def _make(self, change: Change) -> None:
        """The registry is asked until it answers."""
        if self.starts.away_since_ms is None:
            self.after(self.starts.dice.choice((1, 20)), partial(self._made, change))
        else:
            self.after(LOOK_MS, partial(self._make, change))

    def _made(self, change: Change) -> None:
        change.made = True
        self.changes.over(id(change))
        change.heard = change.heard or "made"

    def _look(self, change: Change) -> None:
        if change.heard:
            return
        if self.changes.refuses(self.away_ms()):
            change.heard = "waits"
            if not self.changes.waiting(self.away_ms()):
                self.starts.broken.append(f"{self.world.now_ms}: what waits is not named")
            return
        if self.world.now_ms - change.asked_ms > HEARD_MS:
            self.starts.broken.append(f"{self.world.now_ms}: asked at {change.asked_ms}, no answer")
            change.heard = "nothing"
        self.after(LOOK_MS, partial(self._look, change))


class Starts:
    """The coordinators of one seed, one after the other, and what befalls them."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(f"starts {seed}")
        self.world = World(seed, Scenario())
        self.broken: list[str] = []
        self.changes: list[Change] = []
        self.trouble: Exception | None = None
        self.deleted = False
        self.away_since_ms: int | None = None
        self.begun = 0
        self.calm_ms = CALM_MS
        self.coordinator = self._next()
        self.world.at(1_000, self._befall)
        self.world.at(500, self._ask_for_change)

    def _next(self) -> Starting:
        self.deleted = self.dice.random() < 0.1 and self.world.now_ms < CALM_MS
        coordinator = Starting(self)
        coordinator.after(10, coordinator.ask)
        coordinator.after(400, coordinator.ask)
        return coordinator

    def _ask_for_change(self) -> None:
        if self.coordinator.tries.done and self.world.now_ms < RUN_MS - HEARD_MS:
            self.coordinator.change()
        self.world.at(self.dice.randint(100, 1_500), self._ask_for_change)

    def _befall(self) -> None:
        dice, now_ms = self.dice, self.world.now_ms
        if now_ms > CALM_MS:
            self.trouble, self.away_since_ms, self.calm_ms = None, None, now_ms
            if self.coordinator.deleted:
                self._again()
            return
        kind = dice.choice(("end", "passing", "store", "lasting", "well", "away", "back"))
        if kind == "end":
            self._again()
        elif kind == "passing":
            self.trouble = PASSING[0]
        elif kind == "store":
            self.trouble = PASSING[1]
        elif kind == "lasting":
            self.trouble = LASTING
        elif kind == "well":
            self.trouble = None
        elif kind == "away":
            self.away_since_ms = self.away_since_ms or now_ms
        else:
            self.away_since_ms = None
        self.world.at(dice.randint(200, 6_000), self._befall)

    def _again(self) -> None:
        self.begun += self.coordinator.tries.done
        self.coordinator.crash()
        self.coordinator = self._next()

    def live(self) -> list[str]:
        """Let it run; what was promised of it and did not hold."""
        self.world.run_until(CALM_MS)
        while self.world.now_ms < RUN_MS and self.calm_ms == CALM_MS:
            self.world.run_until(self.world.now_ms + 100)
        self.world.run_until(max(RUN_MS, self.calm_ms + BEGUN_MS))
        coordinator = self.coordinator
        if not coordinator.tries.done:
            self.broken.append(f"it does not start: {coordinator.tries.trouble!r}")
        if coordinator.changes.waiting(0):
            self.broken.append("a change is named that is over")
        for change in self.changes:
            if change.heard == "refused" and change.made:
                self.broken.append(f"{change} was refused, and made")
            if change.heard == "made" and not change.made:
                self.broken.append(f"{change} was not made")
        self.world.close()
        return self.broken
