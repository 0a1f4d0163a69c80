"""Clients of the coordinator: the real `RequestTries`, over a network that does what it likes.

Rules of this file, the same as `CoordinatorClient`'s: what the machine says is carried, what came
of it is told, and nothing is decided. An answer that comes after its time is heard too: no real
one is, but nothing may come of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from pxrs_ray.errors import CoordinatorDeposed, PxrsError
from pxrs_ray.group.events import Configure, Event, Response
from pxrs_ray.model import Snapshot
from pxrs_ray.supervision.request_tries import (
    KnownCoordinator,
    LookUp,
    Make,
    Pause,
    RequestTries,
    Unheard,
)
from tests.simulation.simulator.coordinator import RETRY_MS, CoordinatorProcess, Respond
from tests.simulation.simulator.store import GROUP, store_call
from tests.simulation.simulator.world import Action, Process, call

if TYPE_CHECKING:
    from tests.simulation.simulator.cluster import Cluster

# Whoever called a process that has ended hears so within this time, as from Ray.
NOTICED_MS = 60
COMMAND_MS = 4_000

Asks = Callable[[CoordinatorProcess, Respond], None]
Hears = Callable[[Response | PxrsError], None]


def _nothing() -> None:
    """Nobody is to be told."""


class CoordinatorLink:
    """One client's connection to whoever coordinates."""

    def __init__(self, process: Process, cluster: Cluster) -> None:
        self.process = process
        self.cluster = cluster
        self.known = KnownCoordinator()
        self.under_way: dict[Asked, None] = {}

    def ask(
        self,
        wait_ms: int,
        make: Asks,
        heard: Hears,
        unanswered: Action,
        leaves: Action = _nothing,
    ) -> None:
        """Make a request, again after faults; `unanswered` when it is given up.

        `leaves` is told whenever it is sent.
        """
        tries = RequestTries(self.known, self.process.monotonic_ms() / 1_000, wait_ms / 1_000)
        asked = Asked(self, tries, make, heard, unanswered, leaves)
        self.under_way[asked] = None
        asked.go_on()

    def ended(self, coordinator: CoordinatorProcess) -> None:
        """A coordinator's process has ended: who waits for it hears so."""
        for asked in self.under_way:
            if asked.target is coordinator:
                asked.told_of_end()


class Asked:
    """One request, from its first try to its end."""

    def __init__(
        self,
        link: CoordinatorLink,
        tries: RequestTries,
        make: Asks,
        heard: Hears,
        unanswered: Action,
        leaves: Action,
    ) -> None:
        self.link = link
        self.target: CoordinatorProcess | None = None
        self._tries = tries
        self._make = make
        self._heard = heard
        self._unanswered = unanswered
        self._leaves = leaves
        # Which step it is at: what comes of an earlier one is no news.
        self._step = 0

    def _now_s(self) -> float:
        return self.link.process.monotonic_ms() / 1_000

    def go_on(self) -> None:
        """Carry what is next."""
        process, found = self.link.process, self._tries.next(self._now_s())
        self._step += 1
        self.target = None
        match found:
            case Unheard():
                self.link.under_way.pop(self, None)
                self._unanswered()
            case Pause(wait_s):
                process.after(_whole_ms(wait_s), self.go_on)
            case LookUp(wait_s):
                self._look_up(wait_s)
            case Make(actor, wait_s):
                self._call(actor, wait_s)

    def _look_up(self, wait_s: float) -> None:
        process, world = self.link.process, self.link.process.world
        if world.chance(world.network.lost):
            process.after(_whole_ms(wait_s), lambda: self._told(self._tries.names_away, "lost"))
        else:
            process.after(1 + int(world.roll() * 3), self._found)

    def _found(self) -> None:
        self._told(self._tries.found, self.link.cluster.find_coordinator())

    def _call(self, coordinator: CoordinatorProcess, wait_s: float) -> None:
        process, step = self.link.process, self._step
        self.target = coordinator
        self._leaves()
        call(process, coordinator, partial(self._make, coordinator), partial(self._answered, step))
        process.after(_whole_ms(wait_s), partial(self._late, step))
        if not coordinator.alive:
            self.told_of_end()

    def told_of_end(self) -> None:
        """The process that was asked has ended."""
        process, step = self.link.process, self._step
        delay_ms = 1 + int(process.world.roll() * NOTICED_MS)
        process.after(delay_ms, partial(self._unreached, step))

    def _told(self, tell: Callable[[object], None], what: object) -> None:
        tell(what)
        self.go_on()

    def _unreached(self, step: int) -> None:
        if step == self._step:
            self._told(self._tries.unreached, "its process has ended")

    def _late(self, step: int) -> None:
        if step == self._step and self in self.link.under_way:
            self._tries.late()
            self.go_on()

    def _answered(self, step: int, answer: Response | PxrsError) -> None:
        if isinstance(answer, CoordinatorDeposed):
            if step == self._step:
                self._told(self._tries.deposed, answer)
            return
        if self.link.under_way.pop(self, self) is None:
            self._step += 1
        self._heard(answer)


class OperatorProcess(Process):
    """Somebody who gives commands, each when the one before is answered or given up."""

    role = "operator"

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster.world, "operator")
        self.cluster = cluster
        self.link = CoordinatorLink(self, cluster)
        self._waiting: list[Event] = []

    def command(self, event: Event) -> None:
        """Have it done, as soon as it is its turn."""
        self._waiting.append(event)
        if len(self._waiting) == 1:
            self._ask()

    def idle(self) -> bool:
        """Whether every command is answered or given up."""
        return not self._waiting

    def _ask(self) -> None:
        event = self._waiting[0]
        self.link.ask(
            COMMAND_MS, partial(self._make, event), partial(self._over, event), self._next
        )

    def _make(self, event: Event, coordinator: CoordinatorProcess, respond: Respond) -> None:
        if isinstance(event, Configure):
            coordinator.receive(event, partial(self._keep, coordinator, respond))
        else:
            coordinator.receive(event, respond)

    def _keep(
        self, coordinator: CoordinatorProcess, respond: Respond, answer: Response | PxrsError
    ) -> None:
        """Keep for later coordinators what was taken, under the generation, as the shell does."""
        core, store = coordinator.core, self.cluster.store
        if core is None or isinstance(answer, PxrsError):
            respond(answer)
            return

        def kept(found: Snapshot | PxrsError | None) -> None:
            if isinstance(found, PxrsError):
                coordinator.after(RETRY_MS, lambda: self._keep(coordinator, respond, answer))
            elif found is not None and found.generation > core.state.generation:
                coordinator.crash()
            else:
                self.cluster.settings = core.settings
                respond(answer)

        latency_ms = self.world.scenario.write_latency_ms
        store_call(coordinator, lambda: store.load(GROUP), kept, latency_ms)

    def _over(self, event: Event, _: Response | PxrsError) -> None:
        if self._waiting and self._waiting[0] is event:
            self._next()

    def _next(self) -> None:
        del self._waiting[0]
        if self._waiting:
            self._ask()


def _whole_ms(seconds: float) -> int:
    return max(1, math.ceil(seconds * 1_000))
