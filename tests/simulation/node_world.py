"""A small world of one node: processes that look at one another, freeze, hang and are busy.

`ProcessWatch` decides as it ships, in each of them; here its looks are carried, and clocks drift.
`Node.run` judges from outside: who stood still since when, and who was ended by whom.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

from pxrs_ray.supervision.freeze_detector import LOOKS_LEAST, MUTE_LEASES, ProcessLook
from pxrs_ray.supervision.process_watch import ProcessWatch
from tests.simulation.simulator.scenario import Scenario
from tests.simulation.simulator.world import Process, World

LOOK_PAUSE_MS = 1_000
ANSWER_WAIT_MS = 500
LEASE_MS = 4_000
START_MS = 300
TROUBLE_EVERY_MS = 3_000
RUN_MS = 240_000
# Who looks must not be able to miss that a process has gone on between two times of standing still.
CALM_MS = 12_000
# Clocks drift by so much.
DRIFT = 0.05
# From the first look that finds it mute to the one that is enough, in rounds that wait for others.
ROUNDS_MS = (LOOKS_LEAST + 2) * (LOOK_PAUSE_MS + 3 * ANSWER_WAIT_MS)


@dataclass(frozen=True, slots=True)
class Named:
    """What a process's file says of it."""

    role: str
    pid: int
    lease_ms: int = LEASE_MS


@dataclass(slots=True)
class Life:
    """One process, seen from outside."""

    named: Named
    born_ms: int
    # From when to when it stood still, and whether the system knew it as stopped.
    still: list[tuple[int, int, bool]] = field(default_factory=list)

    def was_still(self, from_ms: int, to_ms: int) -> bool:
        """Whether it stood still at some moment between."""
        return any(since < to_ms and until > from_ms for since, until, _ in self.still)


class NodeProcess(Process):
    """A process that answers, and looks at the others."""

    role = "process"

    def __init__(self, node: Node, role: str) -> None:
        self.named = Named(role, node.next_pid())
        super().__init__(node.world, f"{role} {self.named.pid}")
        self.life = Life(self.named, self.world.now_ms)
        node.lives.append(self.life)
        self._node = node
        self._watch: ProcessWatch[Named] = ProcessWatch(
            LOOK_PAUSE_MS / 1_000, ANSWER_WAIT_MS / 1_000
        )
        self.stopped = False
        self.since_ms = self.moved_ms = self.world.now_ms
        self.after(LOOK_PAUSE_MS, self._round)

    def stand_still(self, for_ms: int, *, stopped: bool, calm_ms: int = CALM_MS) -> None:
        """Do nothing for so long; `stopped` is whether the system tells it. Who has gone on less
        than `calm_ms` ago does not."""
        if self.frozen or not self.alive or self.world.now_ms - self.moved_ms < calm_ms:
            return
        self.since_ms, self.stopped = self.world.now_ms, stopped
        self.freeze()
        self.world.at(for_ms, self._go_on)

    def _go_on(self) -> None:
        if self.alive:
            self.note()
            self.moved_ms, self.stopped = self.world.now_ms, False
            self.thaw()

    def note(self) -> None:
        """Write down that it stood still until now, where it did."""
        if self.frozen:
            self.life.still.append((self.since_ms, self.world.now_ms, self.stopped))

    def _round(self) -> None:
        found = [each.named for each in self._node.processes if each.alive and each is not self]
        self._look_next(iter(self._watch.begin(found)))

    def _look_next(self, left: Iterator[Named]) -> None:
        named = next(left, None)
        if named is None:
            self.after(LOOK_PAUSE_MS, self._round)
            return
        other = self._node.of(named)
        answers = other is not None and not other.frozen
        stopped = other is not None and other.stopped
        self.after(1 if answers else ANSWER_WAIT_MS, partial(self._looked, named, stopped, left))

    def _looked(self, named: Named, stopped: bool, left: Iterator[Named]) -> None:
        other = self._node.of(named)
        # It answers also when it goes on while it is waited for.
        seen = ProcessLook(other is not None and not other.frozen, stopped)
        if self._watch.looked(named, seen, self.monotonic_ms() / 1_000):
            self._node.end(named)
        self._look_next(left)


class Node:
    """The node of one seed, with a coordinator and some buffers, and what befalls them."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed, Scenario())
        self.processes: list[NodeProcess] = []
        self.lives: list[Life] = []
        self.broken: list[str] = []
        # How many were ended because they stood still.
        self.ended = 0
        self._dice = random.Random(f"node {seed}")
        roles = ("coordinator", "buffer 0", "buffer 1", "buffer 2")[: self._dice.choice((2, 4))]
        self.processes.extend(NodeProcess(self, role) for role in roles)
        self.world.at(START_MS, self._keep_up)
        self.world.at(CALM_MS, self._trouble)

    def next_pid(self) -> int:
        """The number of the next process."""
        return len(self.lives) + 1

    def of(self, named: Named) -> NodeProcess | None:
        """The process itself, while it lives."""
        return next((p for p in self.processes if p.alive and p.named == named), None)

    def end(self, named: Named) -> None:
        """Somebody has found it frozen, and ends it."""
        process = self.of(named)
        if process is None:
            return
        now_ms = self.world.now_ms
        still_ms = now_ms - process.since_ms if process.frozen else 0
        least_ms = LEASE_MS * (0.5 if process.stopped else MUTE_LEASES) * (1 - DRIFT)
        if still_ms < least_ms:
            self.broken.append(f"{now_ms}: {named} was ended after {still_ms} ms")
        self.ended += 1
        process.note()
        process.crash()

    def _keep_up(self) -> None:
        """Start anew what has ended, as Ray does: it knows only of ends."""
        for at, process in enumerate(self.processes):
            if not process.alive:
                self.processes[at] = NodeProcess(self, process.named.role)
        self.world.at(START_MS, self._keep_up)

    def _trouble(self) -> None:
        dice = self._dice
        for_ms = dice.choice((200, 1_500, 4_000, 9_000, 40_000))
        kind = dice.choice(("stop", "stop", "hang", "hang", "pause", "end", "twice"))
        one = dice.choice(self.processes)
        if kind == "pause":  # of the whole machine
            for process in self.processes:
                process.stand_still(for_ms, stopped=False)
        elif kind == "twice" and len(self.processes) == 2:
            self._twice(*self.processes)
        elif kind == "end" and one.alive:
            one.note()
            one.crash()
        else:
            one.stand_still(for_ms, stopped=kind == "stop")
        self.world.at(dice.randint(500, 8_000), self._trouble)

    def _twice(self, one: NodeProcess, other: NodeProcess) -> None:
        """One hangs twice, and who looks at it hangs from the first time into the second."""
        one.stand_still(2_600, stopped=False)
        self.world.at(1_800, partial(other.stand_still, 10_500, stopped=False))
        self.world.at(9_000, partial(one.stand_still, 9_000, stopped=False, calm_ms=6_000))

    def run(self) -> list[str]:
        """Let it run; what was promised of it and did not hold."""
        self.world.run_until(RUN_MS)
        for process in self.processes:
            process.note()
        for life in self.lives:
            for since_ms, until_ms, stopped in life.still:
                limit_ms = LEASE_MS * (0.5 if stopped else MUTE_LEASES) * (1 + DRIFT) + ROUNDS_MS
                if until_ms - since_ms > limit_ms and self._seen_by(life, since_ms, until_ms):
                    self.broken.append(f"{life.named} stood still from {since_ms} to {until_ms}")
        self.world.close()
        return self.broken

    def _seen_by(self, life: Life, since_ms: int, until_ms: int) -> bool:
        """Whether somebody could look at it all that time."""
        alive = {process.named for process in self.processes if process.alive}
        return any(
            other.named in alive
            and other.born_ms < since_ms
            and not other.was_still(since_ms - CALM_MS, until_ms)
            for other in self.lives
            if other is not life
        )
