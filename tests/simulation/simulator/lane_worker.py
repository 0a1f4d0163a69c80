"""A worker of many messages of a partition at once, on virtual time: `KeyLanes`, `CallTurns` and
`call_apart`, as they ship.

Rules of this file, the same as the shell's: a caller takes from what is to be done, calls, and puts
down how that went; with nothing to take it makes a turn. Whatever is special about a call goes
step by step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

from pxrs_ray.config.scheduling import lane_rules
from pxrs_ray.model import Grant, Progress
from pxrs_ray.processing.call_apart import (
    AwaitLease,
    AwaitPause,
    CallIt,
    LeavePlace,
    PutAside,
    TakePlace,
    Went,
    call_apart,
)
from pxrs_ray.processing.call_turns import CallTurns, Told
from pxrs_ray.processing.key_ordered import KeyLanes
from pxrs_ray.processing.scheduler import Item, Task
from pxrs_ray.processing.scheduler import Work as Kind
from pxrs_ray.steps import Do
from tests.simulation.simulator.worker_base import CANNOT_KEEP, FAILS, LOOK_MS, SimulatedWorker
from tests.simulation.step_driver import Tell, drive

if TYPE_CHECKING:
    from tests.simulation.simulator.worker import Work

# A call that takes no longer is a short one here.
QUICK_MS = 3


class _Caller:
    """Who makes calls: the owner of a slot."""

    __slots__ = ("epoch", "partition", "quick")

    def __init__(self, worker: LaneWorker) -> None:
        self.partition, self.epoch = worker.partition, worker.epoch
        self.quick = worker.turns.quick


class LaneWorker(SimulatedWorker):
    """One message of each key at a time."""

    def __init__(self, room: Work, grant: Grant) -> None:
        super().__init__(room, grant)
        # A row alone: what a gap log adds has a world of its own.
        self.scheduler = KeyLanes(grant.progress, replace(lane_rules(room.config), gap_log=False))
        self.turns = CallTurns(
            self.scheduler,
            slots=room.world.scenario.lanes,
            timeout_ms=None,
            timed=False,
            one_is_enough=True,
        )
        self._began_s = room.now_s()
        self._alarm_ms = inf

    def progress(self) -> Progress:
        """How far it is."""
        self._settled(self.turns.settle(self._now_ms(), self._commit_records).commits)
        return self.scheduler.progress()

    @property
    def _commit_records(self) -> int:
        return self.world.scenario.commit_records

    def _now_ms(self) -> int:
        return self.room.process.monotonic_ms()

    def _settled(self, commits: bool) -> None:
        if commits:
            self.room.commit_soon()

    # --- turns ------------------------------------------------------------------------------------

    def work(self) -> None:
        """Look, as its own thread does where messages came or time is up."""
        if self.turns.have_become_long():
            self._engage(0)
        self._turn(0)

    def _turn(self, free: int) -> None:
        turns, now_ms = self.turns, self._now_ms()
        self._settled(turns.hear(now_ms, self._commit_records).commits)
        self.room.change()
        if self.end.is_ending:
            turns.drop()
            return
        while self.scheduler.has_room() and (found := self.taken()) is not None:
            if isinstance(found, int):
                self.scheduler.skip(found)
                continue
            self.scheduler.offer(
                [Item(line.offset, line.key, message=line, size_bytes=1) for line in found.lines]
            )
        turns.take(now_ms)
        self._engage(free)
        self._set_alarm(now_ms)

    def _engage(self, free: int) -> None:
        for _ in range(self.turns.callers_wanted(free)):
            self.turns.active += 1
            self.busy = self.turns.active
            self.room.process.after(0, partial(self._call_next, _Caller(self)))

    def _set_alarm(self, now_ms: int) -> None:
        due_ms = self.turns.due_ms(now_ms)
        if due_ms < self._alarm_ms:
            self._alarm_ms = due_ms
            self.room.process.after(max(1, int(due_ms) - now_ms), self._alarmed)

    def _alarmed(self) -> None:
        self._alarm_ms = inf
        self.go_on()

    # --- callers ----------------------------------------------------------------------------------

    def _call_next(self, caller: _Caller) -> None:
        turns = self.turns
        if not turns.todo:
            turns.quick = caller.quick
            self._turn(1)
            if not turns.goes_on(caller):
                self.busy = turns.active
                self.go_on()
                return
        task, room = turns.todo.popleft(), self.room
        plain = task.work is Kind.HANDLE and task.item.suspect is None
        if plain and room.may_begin() and not self.end.is_ending:
            offset = task.item.offset
            if room.enter(caller, offset, offset + 1, None):
                self._call(caller, task, partial(self._called, caller, task))
                return
        make = partial(self._step, caller, task)
        drive(room.process, call_apart(task), make, partial(self._over, caller, task))

    def _call(self, caller: _Caller, task: Task, tell: Callable[[Went], None]) -> None:
        self.begun(task.item.message)
        takes_ms = self.room.takes_ms()
        caller.quick = caller.quick + 1 if takes_ms <= QUICK_MS else 0
        self.room.process.after(takes_ms, partial(self._handled, caller, task, tell))

    def _handled(self, caller: _Caller, task: Task, tell: Callable[[Went], None]) -> None:
        room, line = self.room, task.item.message
        if room.kills(line):
            return
        room.call_over(caller)
        if self.world.chance(FAILS):
            self.raised(line.offset)
            tell(Went("failed", void=room.is_void(self)))
        else:
            self.processed(line)
            tell(Went())

    def _called(self, caller: _Caller, task: Task, went: Went) -> None:
        if went.void:
            make = partial(self._step, caller, task)
            drive(self.room.process, call_apart(task), make, partial(self._over, caller, task))
        else:
            self._over(caller, task, went.error)

    def _over(self, caller: _Caller, task: Task, error: Any) -> None:
        if isinstance(error, BaseException):
            raise error
        told = self.turns.is_over(task, error)
        assert told is Told.GO_ON
        if error is None:
            self.room.done(self)
        self._call_next(caller)

    # --- what is special --------------------------------------------------------------------------

    def _step(self, caller: _Caller, task: Task, step: Do[Any], tell: Tell) -> None:
        room, item = self.room, task.item
        match step:
            case PutAside():
                room.process.after(LOOK_MS, partial(self._keep, task, tell))
            case AwaitPause(pause_ms):
                end_s = self._began_s + pause_ms / 1_000
                self._await(lambda: room.now_s() >= end_s, tell)
            case AwaitLease():
                self._await(room.may_begin, tell)
            case TakePlace():
                place = (caller, item.offset, item.offset + 1, item.suspect)
                self._await(lambda: room.enter(*place), tell)
            case CallIt():
                self._call(caller, task, tell)
            case LeavePlace():
                room.call_over(caller)
                room.give_up_turn(caller)
                tell(None)
            case _:
                tell(True)

    def _await(self, holds: Callable[[], bool], tell: Tell) -> None:
        """Ask until it holds, or the worker is to end."""
        if self.end.is_ending:
            tell(False)
        elif holds():
            tell(True)
        else:
            self.room.waits_for_lease = True
            self.room.process.after(LOOK_MS, partial(self._await, holds, tell))

    def _keep(self, task: Task, tell: Tell) -> None:
        if self.world.chance(CANNOT_KEEP):
            tell(Went("cannot be kept"))
            return
        for item in task.items:
            self.put_aside(item.message)
        tell(Went())
