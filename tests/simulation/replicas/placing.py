"""The coordinator of replicas: the product's `SlotPlacements`, on a registry that fences."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from pxrs_ray.errors import UsageError
from pxrs_ray.replication.placement import Disk, IsrChange, Placement, ReplicaSeen
from pxrs_ray.replication.placements import (
    PLACEMENTS,
    AskReplicas,
    KeepPlacements,
    PlacementRules,
    SlotPlacements,
    TellReplicas,
    placements_from,
)
from pxrs_ray.topology.away_disks import AwayDisks
from pxrs_ray.topology.node_seen import NodeSeen
from pxrs_ray.topology.replica_moves import BeginOn, BeOn, LeadFrom, ReplicaMoves, Wanted
from tests.simulation.replicas.kept import ANSWER_MS, HEARD_MS, PING_MS, REPLACE_MS, SLOT, STORE_MS
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
        rules = PlacementRules(HEARD_MS, group.rules.synced_only, ANSWER_MS, PING_MS)
        self.table = SlotPlacements(placements_from(text), rules, self.monotonic_ms())
        self.moves = ReplicaMoves()
        self.coming: Disk = ""
        # It dismisses nobody else: what others have begun may be about to be placed.
        self._looked_at: set[Process] = set()
        self._away = AwayDisks(self.table.placements.away_ms)
        self.every(PING_MS, self._ping)

    @property
    def placement(self) -> Placement:
        """What it knows to stand."""
        return self.table.placements.slots[SLOT]

    def _ping(self) -> None:
        self._ask_all()
        placement = self.placement
        for disk in placement.replicas:
            if disk in self.group.disks and disk not in self.group.processes:
                self.group.start(self.group.disks[disk])
        self._do(self._look)

    def _ask_all(self) -> None:
        placement, now_ms = self.placement, self.monotonic_ms()
        for disk, process in sorted(self.group.processes.items()):
            if disk in placement.replicas or disk == self.coming:
                names = self.generation, now_ms, placement, self.table.absent(SLOT, now_ms)
                names = (*names, self.group.min_isr)
                asked = partial(process.pinged, *names)
                self._looked_at.add(process)
                call(self, process, asked, partial(self._heard, disk, now_ms))
            elif process in self._looked_at:
                self.table.dismissed(SLOT, disk, now_ms)
                send(self, process, partial(process.retire, self.generation, now_ms))

    def _look(self, now_ms: int) -> None:
        """Who leads, and the next step to where the replicas are to be."""
        group, placement = self.group, self.placement
        self.table.tick(now_ms)
        self._away.see([d for d in placement.replicas if d not in group.disks], now_ms)
        nodes = [
            NodeSeen(f"n{disk}", f"h{disk}", disk, draining=disk in group.drained)
            for disk in group.disks
        ]
        wanted = Wanted(group.wanted, nodes, self._away.overdue(REPLACE_MS))
        living = self.table.living(SLOT, now_ms)
        step = self.moves.step(SLOT, {SLOT: placement}, living, wanted)
        self.coming = ""
        match step:
            case BeginOn(disk):
                self.coming = disk
                group.start(group.disks[disk])
            case LeadFrom(disk):
                self.table.hand_over(SLOT, disk, now_ms)
            case BeOn(version, replicas):
                self.coming = next((d for d in replicas if d not in placement.replicas), "")
                self.table.change_disks(SLOT, version, replicas, now_ms)

    def _do(self, action: Callable[[int], None]) -> None:
        action(self.monotonic_ms())
        while self.alive and (effect := self.table.take_effect()) is not None:
            match effect:
                case KeepPlacements(placements):
                    self._keep(PLACEMENTS.encode_text(placements))
                case TellReplicas(_, placement):
                    self._tell(placement)
                case AskReplicas():
                    self._ask_all()

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

    def move(self, source: str, target: str) -> None:
        """An operator wants a replica elsewhere."""
        node = NodeSeen(f"n{target}", f"h{target}", target)
        with suppress(UsageError):
            self.moves.ask(SLOT, self.placement, source, node)

    def hand_over(self, disk: str) -> None:
        """An operator wants this one to lead."""
        self._do(lambda now_ms: self.table.hand_over(SLOT, disk, now_ms))

    def _keep(self, text: str) -> None:
        """It takes its time, both ways."""
        takes_ms = self.world.random.randrange(STORE_MS)
        self.group.being_written.append(text)

        def arrive() -> None:
            self.group.being_written.remove(text)
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
