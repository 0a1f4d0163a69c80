"""The coordinator of replicas: the product's elections, on a registry that fences."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from pxrs_ray.replication.placement import (
    IsrChange,
    Placement,
    ReplicaSeen,
    change_isr,
    elect,
    with_replicas,
)
from tests.simulation.replicas.kept import HEARD_MS, PING_MS, STORE_MS
from tests.simulation.simulator.world import Process, call, send

if TYPE_CHECKING:
    from tests.simulation.replicas.group import ReplicaGroup


class PlacingCoordinator(Process):
    """A coordinator: it sees who lives, elects, and lets replicas in and out of the set."""

    role = "coordinator"

    def __init__(self, group: ReplicaGroup, number: int) -> None:
        super().__init__(group.world, f"coordinator {number}")
        self.group = group
        self.generation, self.placement = group.registry.lead()
        self.seen: dict[str, tuple[int, ReplicaSeen]] = {}
        self.began_ms = self.monotonic_ms()
        self.writing = False
        self.every(PING_MS, self._ping)

    def _living(self) -> dict[str, ReplicaSeen]:
        now_ms = self.monotonic_ms()
        return {d: seen for d, (at, seen) in self.seen.items() if now_ms - at <= HEARD_MS}

    def _absent(self) -> frozenset[str] | None:
        """Who is away; None for who began a moment ago, and has heard of nobody yet."""
        if self.monotonic_ms() - self.began_ms <= HEARD_MS:
            return None
        return frozenset(self.placement.replicas) - self._living().keys()

    def _ping(self) -> None:
        for disk in self.placement.replicas:
            process = self.group.processes.get(disk)
            if process is not None:
                asked = partial(process.pinged, self.placement, self._absent())
                call(self, process, asked, partial(self._heard, disk, self.monotonic_ms()))
        if self._absent() is not None:
            found = elect(self.placement, self._living(), self.group.rules.synced_only)
            if found is not None:
                self._write(found, lambda: None)

    def _heard(self, disk: str, asked_ms: int, seen: ReplicaSeen) -> None:
        """Counted from when it was asked. A later process of the disk is not forgotten for an
        earlier one's answer."""
        known = self.seen.get(disk)
        if known is None or known[0] <= asked_ms:
            self.seen[disk] = asked_ms, seen

    def died(self, disk: str, life: int) -> None:
        """Ray, or a closed connection, says so."""
        known = self.seen.get(disk)
        if known is not None and known[1].life == life:
            del self.seen[disk]

    def isr_asked(self, change: IsrChange, respond: Callable[[Placement], None]) -> None:
        """A leader asks for another in-sync set."""
        found = change_isr(self.placement, change, self._living())
        if found is None:
            respond(self.placement)
        else:
            self._write(found, lambda: respond(self.placement))

    def replace(self, old: str, new: str) -> None:
        """A disk does not come back: another one takes its place."""
        placement = self.placement
        if old not in placement.replicas:
            return
        if placement.leader == old or {m.disk for m in placement.isr} == {old}:
            self.after(100, partial(self.replace, old, new))
            return
        replicas = tuple(new if disk == old else disk for disk in placement.replicas)
        if not self._write(with_replicas(placement, replicas), lambda: None):
            self.after(100, partial(self.replace, old, new))

    def _write(self, placement: Placement, then: Callable[[], None]) -> bool:
        """One change at a time; durable before anybody hears of it."""
        if self.writing:
            return False
        self.writing = True
        takes_ms = self.world.random.randrange(STORE_MS)

        def arrive() -> None:
            done = self.group.registry.put(self.generation, placement)
            self.after(takes_ms, partial(self._written, placement if done else None, then))

        self.world.at(1 + takes_ms, arrive)
        return True

    def _written(self, placement: Placement | None, then: Callable[[], None]) -> None:
        self.writing = False
        if placement is None:
            self.crash()  # it was replaced
            return
        self.placement = placement
        for disk in placement.replicas:
            process = self.group.processes.get(disk)
            if process is not None:
                send(self, process, partial(process.placed, placement))
        then()
