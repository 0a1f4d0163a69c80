"""What every simulated worker is: its queue and its end, as they ship, and the one before it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pxrs_ray.consumer.work_queue import WorkEnd, WorkQueue
from pxrs_ray.model import Grant, Offset, Progress
from tests.simulation.history import Begun, Processed, PutAside, Raised
from tests.simulation.simulator.frames import Line

if TYPE_CHECKING:
    from tests.simulation.simulator.worker import Work

# How much waits for one worker: no more is fetched for it then.
QUEUED_MAX = 12
LOOK_MS = 5
FAILS = 0.03
CANNOT_KEEP = 0.2


class SimulatedWorker:
    """Works one partition from a grant's checkpoint on, until it is stopped."""

    def __init__(self, room: Work, grant: Grant) -> None:
        self.partition, self.epoch, self.checkpoint = grant.partition, grant.epoch, grant.checkpoint
        self.room, self.world = room, room.world
        self.session = room.member.machine.session
        self.queue = WorkQueue(QUEUED_MAX)
        self.end = WorkEnd()
        self.fault: str | None = None
        self.over = False
        # How many calls are under way, or cannot be left.
        self.busy = 0
        self._began = False
        self._followers: list[SimulatedWorker] = []

    # --- what the roster knows of it --------------------------------------------------------------

    @property
    def told_to_stop(self) -> bool:
        """Whether its partition goes."""
        return self.end.told_to_stop

    @property
    def passed(self) -> int:
        """How many offsets it has passed."""
        return self.progress().checkpoint - self.checkpoint

    def is_well(self, healed_s: float) -> bool:
        """Whether it has got over what was."""
        return self.end.is_well(self.passed, healed_s, self.room.now_s())

    def stop(self) -> None:
        """Begin nothing more."""
        self.end.stop()
        self.go_on()

    # --- its life ---------------------------------------------------------------------------------

    def start(self, before: SimulatedWorker | None) -> None:
        """Begin, when the one before has ended: a partition is never worked twice in a process."""
        if before is not None and not before.over:
            before._followers.append(self)
        else:
            self.room.process.after(0, self._begin)

    def _begin(self) -> None:
        if self.world.chance(self.world.scenario.assigned_fails):
            self.fault = "on_assigned raised"
            self._is_over()
            return
        self._began = True
        self.end.began(self.room.now_s())
        self.go_on()

    def go_on(self) -> None:
        """Do what is next, if nothing is under way."""
        if self.over or not self._began:
            return
        if not self.end.is_ending:
            self.work()
        elif not self.busy:
            self._is_over()

    def _is_over(self) -> None:
        self.over = True
        self.room.ended(self)
        for follower in self._followers:
            self.room.process.after(0, follower._begin)

    def fail(self, error: Exception) -> None:
        """A fault of ours: it ends, and its partition begins again."""
        self.fault = repr(error)
        self.end.renew()

    # --- what each kind does ----------------------------------------------------------------------

    def progress(self) -> Progress:
        """How far it is."""
        raise NotImplementedError

    def work(self) -> None:
        """Begin what may begin."""
        raise NotImplementedError

    # --- calls ------------------------------------------------------------------------------------

    def taken(self) -> Any | Offset | None:
        """The next of what waits."""
        if not len(self.queue):
            return None
        found, has_room = self.queue.pop()
        if has_room:
            self.room.room()
        return found

    def begun(self, line: Line) -> None:
        """The handler is called with a message."""
        session = self.session
        who = (self.partition, self.epoch, session.member, session.incarnation)
        self.world.record(Begun(self.world.now_ms, *who, line.offset))

    def processed(self, line: Line) -> None:
        """The handler is done: its side effects have happened, whoever owns the partition now."""
        self.world.record(Processed(*self._at(line)))

    def put_aside(self, line: Line) -> None:
        """A message is kept where its policy says, and is as good as done."""
        attempts_max = self.room.rules.attempts_max
        self.world.record(PutAside(*self._at(line), attempts_max=attempts_max))

    def raised(self, offset: Offset) -> None:
        """The handler failed."""
        self.world.record(Raised(self.world.now_ms, self.partition, offset))

    def _at(self, line: Line) -> tuple[Any, ...]:
        session = self.session
        who = (self.partition, self.epoch, session.member, session.incarnation)
        return (self.world.now_ms, *who, line.offset, line.key, line.message)
