"""A worker of many messages of a partition at once: the `KeyLanes` that ship, on virtual time."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from pxrs_ray.config.scheduling import lane_rules
from pxrs_ray.model import Grant, Progress
from pxrs_ray.processing.key_ordered import KeyLanes
from pxrs_ray.processing.scheduler import Item, Task
from pxrs_ray.processing.scheduler import Work as Kind
from tests.simulation.simulator.worker_base import CANNOT_KEEP, FAILS, LOOK_MS, SimulatedWorker

if TYPE_CHECKING:
    from tests.simulation.simulator.worker import Work


class _Call:
    """Who makes one call: the owner of a slot."""

    __slots__ = ("epoch", "partition")

    def __init__(self, worker: LaneWorker) -> None:
        self.partition, self.epoch = worker.partition, worker.epoch


class LaneWorker(SimulatedWorker):
    """One message of each key at a time."""

    def __init__(self, room: Work, grant: Grant) -> None:
        super().__init__(room, grant)
        self.scheduler = KeyLanes(grant.progress, lane_rules(room.config))
        self._began_s = room.now_s()
        self._offering: Any = None

    def progress(self) -> Progress:
        """How far it is."""
        return self.scheduler.progress()

    def work(self) -> None:
        """Begin what may begin beside each other: one message a key."""
        room, scheduler = self.room, self.scheduler
        while scheduler.has_room() and (found := self.taken()) is not None:
            if isinstance(found, int):
                scheduler.skip(found)
                room.change()
                continue
            scheduler.offer(
                [Item(line.offset, line.key, message=line, size_bytes=1) for line in found.lines]
            )
        if not room.may_begin():
            room.waits_for_lease = True
            return
        now_ms = room.process.monotonic_ms()
        for task in scheduler.take(now_ms, self.world.scenario.lanes - self.busy):
            self.busy += 1
            self._begin_task(task, _Call(self))
        due_ms = scheduler.due_ms()
        if due_ms is not None:
            room.process.after(max(1, due_ms - now_ms), self.go_on)

    def _begin_task(self, task: Task, call: _Call) -> None:
        """Begin when the gate, the lease and a suspect's pause let it; forget it at our end."""
        room, item, again = self.room, task.item, partial(self._begin_task, task, call)
        if self.end.is_ending:
            self.busy -= 1
            room.call_over(call)
            room.give_up_turn(call)
            self.go_on()
            return
        if task.work is not Kind.HANDLE:
            room.process.after(LOOK_MS, partial(self._keep, task))
            return
        suspect = item.suspect
        paused_s = self._began_s + suspect.pause_ms / 1_000 if suspect is not None else 0.0
        is_paused = room.now_s() < paused_s or not room.may_begin()
        if is_paused or not room.enter(call, item.offset, item.offset + 1, suspect):
            room.process.after(LOOK_MS, again)
            return
        self.begun(item.message)
        room.process.after(room.takes_ms(), partial(self._handled, task, call))

    def _handled(self, task: Task, call: _Call) -> None:
        room, line = self.room, task.item.message
        if room.kills(line):
            return
        room.call_over(call)
        failed = self.world.chance(FAILS)
        if failed:
            self.raised(line.offset)
            if room.is_void(self):
                self._begin_task(task, call)
                return
        else:
            self.processed(line)
        self._over(task, "failed" if failed else None)

    def _keep(self, task: Task) -> None:
        if self.world.chance(CANNOT_KEEP):
            self._over(task, "cannot be kept")
            return
        for item in task.items:
            self.put_aside(item.message)
        self._over(task, None)

    def _over(self, task: Task, error: str | None) -> None:
        self.busy -= 1
        self.scheduler.ended(task, error, self.room.process.monotonic_ms())
        self.room.change()
        if error is None:
            self.room.done(self)
        self.go_on()
