"""A worker of a partition in order: the steps of `InOrder`, as it ships, on virtual time.

Rules of this file, the same as the shell's: a step is made, and how it went is told. A wait for a
pause, the lease, the gate or a commit ends when the worker is to end.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from pxrs_ray.model import Grant, Offset, Progress
from pxrs_ray.processing.in_order import (
    CallOne,
    CommitNow,
    GiveUp,
    InOrder,
    PauseUntil,
    RunOn,
    TakeBatch,
)
from tests.simulation.simulator.frames import Line
from tests.simulation.simulator.worker_base import CANNOT_KEEP, FAILS, LOOK_MS, SimulatedWorker

if TYPE_CHECKING:
    from tests.simulation.simulator.worker import Work


class InOrderWorker(SimulatedWorker):
    """One message after the other, or one batch after the other."""

    def __init__(self, room: Work, grant: Grant) -> None:
        super().__init__(room, grant)
        scenario = room.world.scenario
        self._batches = scenario.batches
        self.machine = InOrder(
            grant.progress,
            room.rules,
            ("interval", "batch", "message")[scenario.commit_mode],
            scenario.commit_records,
            room.commit_soon,
            wants_batch=scenario.batches,
            began_s=room.now_s(),
        )
        self._batch: Any = None
        # What it waits for; whatever comes of an earlier wait is not listened to.
        self._wait = 0

    def progress(self) -> Progress:
        """How far it is."""
        return self.machine.progress(self._in_hand)

    def _in_hand(self) -> Offset:
        call = self.room.in_hand.get(self)
        return call[2] if call is not None else -1

    def work(self) -> None:
        """Make one step after the other, until one takes time."""
        while not self.busy and not self.end.is_ending and not self.over:
            self._wait += 1
            if not self._step():
                return
        if self.end.is_ending:
            self.go_on()

    def _step(self) -> bool:
        """Make the next step; False when it takes time."""
        machine, room = self.machine, self.room
        match step := machine.next(room.now_s()):
            case TakeBatch():
                found = self.taken()
                if found is None:
                    return False
                if isinstance(found, int):
                    machine.skipped(found)
                    room.change()
                else:
                    machine.took(found.base_offset, found.end_offset)
                    self._batch = found
                return True
            case RunOn():
                return self._run(step.first, step.end)
            case CallOne():
                return self._call(step)
            case PauseUntil():
                self._go_on_later(max(1, 1 + int((step.until_s - room.now_s()) * 1_000)))
            case GiveUp():
                self.busy = 1
                room.process.after(LOOK_MS, partial(self._keep, step))
            case CommitNow():
                room.await_commit(self, partial(self._waited, self._wait))
        return False

    def _go_on_later(self, wait_ms: int) -> None:
        self.room.process.after(wait_ms, partial(self._waited, self._wait))

    def _waited(self, wait: int) -> None:
        if wait == self._wait:
            self.go_on()

    def _line(self, offset: Offset) -> Line:
        line: Line = self._batch.lines[offset - self._batch.base_offset]
        return line

    # --- a run of messages ------------------------------------------------------------------------

    def _run(self, at: Offset, end: Offset) -> bool:
        room = self.room
        if not room.may_begin() or room.gate.closed or self.end.is_ending:
            self.machine.ran(at, None, room.now_s())
            room.in_hand.pop(self, None)
            return True
        self.busy = 1
        room.in_hand[self] = (self.partition, self.epoch, at, at + 1, room.process.monotonic_ms())
        self.begun(self._line(at))
        room.process.after(room.takes_ms(), partial(self._ran, at, end))
        return False

    def _ran(self, at: Offset, end: Offset) -> None:
        room, machine, line = self.room, self.machine, self._line(at)
        if room.kills(line):
            return
        self.busy = 0
        now_s = room.now_s()
        if self.world.chance(FAILS):
            self.raised(at)
            machine.next_offset = at
            del room.in_hand[self]
            machine.ran(at, None if room.is_void(self) else "failed", now_s)
        else:
            self.processed(line)
            done = at + 1
            if at >= machine.kick_from:
                machine.passed(done)
            if done == end:
                machine.ran(end, None, now_s)
                del room.in_hand[self]
            is_running = done < end and not self._run(done, end)
            room.done(self)
            if is_running:
                room.change()
                return
        room.change()
        self.go_on()

    # --- a call by itself -------------------------------------------------------------------------

    def _call(self, step: CallOne) -> bool:
        room = self.room
        if not room.may_begin():
            room.waits_for_lease = True
            return False
        if not room.enter(self, step.first, step.end, step.suspect):
            self._go_on_later(LOOK_MS)
            return False
        self.busy = 1
        for offset in range(step.first, step.end):
            self.begun(self._line(offset))
        room.process.after(room.takes_ms(), partial(self._called, step))
        return False

    def _called(self, step: CallOne) -> None:
        room, machine = self.room, self.machine
        lines = [self._line(offset) for offset in range(step.first, step.end)]
        if any(room.kills(line) for line in lines):
            return
        room.call_over(self)
        self.busy = 0
        if self.world.chance(FAILS * 3):
            for line in lines:
                self.raised(line.offset)
            if room.is_void(self):
                machine.ended(step)
            else:
                machine.called(step, "failed", room.now_s())
        else:
            for line in lines:
                self.processed(line)
            machine.called(step, None, room.now_s())
            room.done(self)
        room.change()
        self.go_on()

    def _keep(self, step: GiveUp) -> None:
        self.busy = 0
        if self.world.chance(CANNOT_KEEP):
            self.machine.not_kept(self.room.now_s())
        else:
            for offset in range(step.first, step.end):
                self.put_aside(self._line(offset))
            self.machine.kept()
        self.room.change()
        self.go_on()
