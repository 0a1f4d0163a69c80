"""A small world of nodes: buffers that miss their coordinator, and start one where it belongs.

`CoordinatorWatch` decides as it ships, in each buffer; here its looks are carried. `Nodes.run`
judges from outside: who was made, where, and how long there was none.
"""

from __future__ import annotations

import random
from functools import partial

from pxrs_ray.supervision.coordinator_watch import (
    AGAIN_S,
    ANYWHERE,
    LOOK_PAUSE_S,
    QUIET_S_MIN,
    CoordinatorWatch,
)
from tests.simulation.simulator.scenario import Network, Scenario
from tests.simulation.simulator.world import Process, World, send

LOOK_PAUSE_MS = int(LOOK_PAUSE_S * 1_000)
LEASE_S = 4.0
PING_MS = 800
LEAVE_MS = 2_000
TROUBLE_EVERY_MS = 6_000
RUN_MS = 120_000
DRIFT = 0.05
# Without a coordinator, with the node that has the registry there: so long at most.
MISSED_MS = int((max(QUIET_S_MIN, LEASE_S / 2) + AGAIN_S + 4 * LOOK_PAUSE_S) * 1_000 * (1 + DRIFT))
# A look at the names and at the disks of all nodes takes a while.
LOOK_TAKES_MS = (5, 60, 400)


class CoordinatorProcess(Process):
    """It speaks to every buffer that it reaches, and leaves with them what it is made of."""

    role = "coordinator"

    def __init__(self, nodes: Nodes, node: str) -> None:
        super().__init__(nodes.world, f"coordinator on {node}")
        self.node = node
        self._nodes = nodes
        self.every(PING_MS, partial(self._tell, "heard"))
        self.every(LEAVE_MS, partial(self._tell, "told"))

    def _tell(self, what: str) -> None:
        for buffer in self._nodes.buffers.values():
            send(self, buffer, partial(buffer.hear, what))


class BufferProcess(Process):
    """A buffer, with its watch."""

    role = "buffer"

    def __init__(self, nodes: Nodes, node: str) -> None:
        super().__init__(nodes.world, f"buffer on {node}")
        self.node = node
        self._nodes = nodes
        self.closed = False
        self.heard_ms: int | None = None
        self._watch = CoordinatorWatch(LEASE_S, self._now_s())
        self.after(LOOK_PAUSE_MS, self._look)

    def _now_s(self) -> float:
        return self.monotonic_ms() / 1_000

    def hear(self, what: str) -> None:
        """A coordinator speaks."""
        self.heard_ms = self.world.now_ms
        (self._watch.told if what == "told" else self._watch.heard)(self._now_s())

    def close(self) -> None:
        """The topology is shut down."""
        self.closed = True
        self._watch.close()

    def _look(self) -> None:
        if self.closed:
            return
        if not self._watch.misses_it(self._now_s()) or self._nodes.runs():
            self.after(LOOK_PAUSE_MS, self._look)
            return
        living = frozenset(self._nodes.living)
        node: str | None = ANYWHERE
        if self._nodes.registry:
            if not self._watch.looks_at_disks(living, self._now_s()):
                self.after(LOOK_PAUSE_MS, self._look)
                return
            node = self._nodes.registry if self._nodes.registry in living else None
        self.after(self._nodes.dice.choice(LOOK_TAKES_MS), partial(self._seen, living, node))
        if self._nodes.closing:  # in the middle of a look
            self.close()

    def _seen(self, living: frozenset[str], node: str | None) -> None:
        if self._nodes.registry:
            self._watch.disks_seen(living, self._now_s())
        if node is not None and self._watch.makes(node, runs=self._nodes.runs()):
            self._nodes.make(node, self)
        self.after(LOOK_PAUSE_MS, self._look)


class Nodes:
    """The nodes of one seed, and what befalls them."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(f"nodes {seed}")
        self.world = World(seed, Scenario(network=Network(lost=self.dice.choice((0.0, 0.1)))))
        self.living = ["a", "b", "c"]
        self.registry = self.dice.choice(("a", "a", ""))
        self.coordinator = CoordinatorProcess.__new__(CoordinatorProcess)
        self.buffers: dict[str, BufferProcess] = {}
        self.broken: list[str] = []
        self.made = 0
        self.closing = False
        self._missing_ms: int | None = None
        for node in self.living:
            self.buffers[node] = BufferProcess(self, node)
        self.coordinator = CoordinatorProcess(self, "a")
        self.world.at(TROUBLE_EVERY_MS, self._trouble)
        self.world.at(100, self._judge)

    def runs(self) -> bool:
        """Whether the coordinator's name is taken: one that is frozen has it too."""
        return self.coordinator.alive

    def make(self, node: str, by: BufferProcess) -> None:
        """A buffer makes a coordinator: Ray makes one of a name."""
        now_ms = self.world.now_ms
        if by.closed:
            self.broken.append(f"{now_ms}: {by.name} made one after the shutdown")
        if by.heard_ms is None:
            self.broken.append(f"{now_ms}: {by.name} made one and was never told of what")
        elif now_ms - by.heard_ms < max(QUIET_S_MIN, LEASE_S / 2) * 1_000 * (1 - DRIFT):
            self.broken.append(f"{now_ms}: {by.name} heard one at {by.heard_ms}")
        if self.registry and node != self.registry:
            self.broken.append(f"{now_ms}: {by.name} made one on {node or 'any node'}")
        if self.runs():
            self.broken.append(f"{now_ms}: {by.name} asks for a second one")
            return
        self._start(node if node in self.living else self.living[0])
        self.made += 1

    def _start(self, node: str) -> None:
        self.coordinator = CoordinatorProcess(self, node)

    # ---- what befalls them

    def _trouble(self) -> None:
        dice = self.dice
        kind = dice.choice(("end", "node", "deploy", "freeze", "cut", "buffer"))
        if kind == "end":
            self.coordinator.crash()
        elif kind == "freeze":
            self.coordinator.freeze()
            self.world.at(dice.randint(500, 5_000), self.coordinator.thaw)
        elif kind == "deploy":  # replaced: there is none for a moment
            self.coordinator.crash()
            self.world.at(dice.randint(50, 1_000), self._deployed)
        elif kind == "node" and len(self.living) > 1:
            self._lose(dice.choice(self.living), dice.choice((300, 4_000, 20_000)))
        elif kind == "cut":
            buffer = dice.choice(list(self.buffers.values()))
            buffer.cut_from.add("coordinator")
            self.world.at(dice.randint(500, 6_000), partial(buffer.cut_from.discard, "coordinator"))
        elif kind == "buffer":
            node = dice.choice(self.living)
            self.buffers[node].crash()
            self.buffers[node] = BufferProcess(self, node)
        if self.world.now_ms > RUN_MS - 20_000 and not self.closing:
            self.closing = True
            self.coordinator.crash()
            self.world.at(dice.randint(1_900, 3_200), self._close)
            return
        self.world.at(dice.randint(500, 2 * TROUBLE_EVERY_MS), self._trouble)

    def _close(self) -> None:
        for buffer in self.buffers.values():
            buffer.close()

    def _deployed(self) -> None:
        if not self.runs() and not self.closing:
            self._start(self.registry if self.registry in self.living else self.living[0])

    def _lose(self, node: str, for_ms: int) -> None:
        """A node goes with all that runs there, and comes back with its disk."""
        self.living.remove(node)
        self.buffers[node].crash()
        if self.coordinator.node == node:
            self.coordinator.crash()
        self.world.at(for_ms, partial(self._back, node))

    def _back(self, node: str) -> None:
        self.living.append(node)
        if not self.closing:
            self.buffers[node] = BufferProcess(self, node)

    # ---- judged

    def _judge(self) -> None:
        """Nobody is without a coordinator for long, while a buffer knows what it is made of."""
        could = not self.registry or self.registry in self.living
        told = any(
            buffer.alive and buffer.heard_ms is not None and not buffer.closed
            for buffer in self.buffers.values()
        )
        now_ms = self.world.now_ms
        if self.runs() or self.closing or not could or not told:
            self._missing_ms = None
        elif self._missing_ms is None:
            self._missing_ms = now_ms
        elif now_ms - self._missing_ms > MISSED_MS:
            self.broken.append(f"{now_ms}: there is none since {self._missing_ms}")
            self._missing_ms = now_ms
        self.world.at(100, self._judge)

    def run(self) -> list[str]:
        """Let it run; what was promised of it and did not hold."""
        self.world.run_until(RUN_MS)
        self.world.close()
        return self.broken
