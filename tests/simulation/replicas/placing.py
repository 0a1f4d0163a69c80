"""The coordinator of replicas: the product's `SlotPlacements`, on a registry that fences."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from pxrs_ray.replication.placement import IsrChange, Placement, ReplicaSeen
from pxrs_ray.replication.placements import (
    PLACEMENTS,
    KeepPlacements,
    PlacementRules,
    SlotPlacements,
    TellReplicas,
    placements_from,
)
from tests.simulation.replicas.kept import HEARD_MS, PING_MS, SLOT, STORE_MS
from tests.simulation.simulator.world import Process, call, send

if TYPE_CHECKING:
    from tests.simulation.replicas.group import ReplicaGroup


class PlacingCoordinator(Process):
    """A coordinator: it asks who lives, and carries what `SlotPlacements` decides."""

    role = "coordinator"

    def __init__(self, group: ReplicaGroup, number: int) -> None:
        super().__init__(group.world, f"coordinator {number}")
        self.group = group
        self.generation, text = group.registry.lead()
        rules = PlacementRules(HEARD_MS, group.rules.synced_only)
        self.table = SlotPlacements(placements_from(text), rules, self.monotonic_ms())
        self.every(PING_MS, self._ping)

    @property
    def placement(self) -> Placement:
        """What it knows to stand."""
        return self.table.placements.slots[SLOT]

    def _ping(self) -> None:
        for disk in self.placement.replicas:
            process = self.group.processes.get(disk)
            if process is not None:
                now_ms = self.monotonic_ms()
                asked = partial(process.pinged, self.placement, self.table.absent(SLOT, now_ms))
                call(self, process, asked, partial(self._heard, disk, now_ms))
        self._do(lambda now_ms: self.table.look(now_ms))

    def _do(self, action: Callable[[int], None]) -> None:
        action(self.monotonic_ms())
        while self.alive and (effect := self.table.take_effect()) is not None:
            match effect:
                case KeepPlacements(placements):
                    self._keep(PLACEMENTS.encode_text(placements))
                case TellReplicas(_, placement):
                    self._tell(placement)

    def _heard(self, disk: str, asked_ms: int, seen: ReplicaSeen) -> None:
        self._do(lambda now_ms: self.table.heard(SLOT, disk, asked_ms, seen, now_ms))

    def died(self, disk: str, life: int) -> None:
        """Ray, or a closed connection, says so."""
        self._do(lambda now_ms: self.table.died(SLOT, disk, life, now_ms))

    def isr_asked(self, change: IsrChange, respond: Callable[[Placement], None]) -> None:
        """A leader asks for another in-sync set."""
        self._do(lambda now_ms: self.table.isr_asked(SLOT, change, now_ms))
        if self.alive:
            respond(self.placement)

    def replace(self, old: str, new: str) -> None:
        """A disk does not come back: another one takes its place."""
        self._do(lambda now_ms: self.table.replace_disk(SLOT, old, new, now_ms))

    def _keep(self, text: str) -> None:
        """It takes its time, both ways."""
        takes_ms = self.world.random.randrange(STORE_MS)

        def arrive() -> None:
            done = self.group.registry.put(self.generation, text)
            self.after(takes_ms, partial(self._kept, done))

        self.world.at(1 + takes_ms, arrive)

    def _kept(self, done: bool) -> None:
        self._do(lambda now_ms: self.table.kept(done, now_ms))
        if self.table.ended:
            self.crash()  # it was replaced

    def _tell(self, placement: Placement) -> None:
        for disk in placement.replicas:
            process = self.group.processes.get(disk)
            if process is not None:
                send(self, process, partial(process.placed, placement))
