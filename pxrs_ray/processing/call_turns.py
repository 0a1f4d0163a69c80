"""`CallTurns`: which messages of a partition are taken, begun, left alone and over, when many are
processed at the same time. Pure: the caller passes the time, and holds the worker's lock.

Rules of this file. Callers take from the deque `todo` and put results into the deque `ended`,
without the lock. A caller with nothing left makes a *turn*: `hear` reports to the scheduler what
ended, `take` asks what may begin. While calls are short, one caller makes all of them and takes
more than there are slots. Long calls are made by as many callers as there are slots. A call that
takes too long is left alone, and its caller no longer counts. When as many calls were left alone as
there are slots, the worker halts.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from dataclasses import field
from enum import Enum
from math import inf

from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.processing.scheduler import Item, Task, WorkScheduler

# After so many short calls, one after the other, calls are short.
QUICK_ENOUGH = 32
# How much more than there are slots is taken while calls are short.
AHEAD_MAX = 64
# While calls are short, it is looked so often whether they still are.
WATCH_MS = 10.0

# How a call ended that was never begun: the worker had to stop first.
NOT_BEGUN = "not begun"

Ended = tuple[Task, str | None]


@dataclass(slots=True)
class TurnNews:
    """What a turn has heard that is to be told.

    `failed` with its error; `too_late`: ended after it had been left alone; `late`: takes too long,
    and whether its call was begun; `left`: nobody waits for its call any more. `commits`: so much
    is done that it is to be committed.
    """

    failed: list[Ended] = field(default_factory=list)
    too_late: list[Task] = field(default_factory=list)
    late: list[tuple[Task, bool]] = field(default_factory=list)
    left: list[Task] = field(default_factory=list)
    commits: bool = False


class Told(Enum):
    """What follows for a caller that has told how its call went."""

    GO_ON = "go on"
    # Nobody waited for it any more: a turn is to be made, and this caller is over.
    OVER = "over"


class CallTurns:
    """See the rules at the head of this file.

    `timed`: a call may be left alone, so its begin and its end are told (`begins`, `is_over`).
    `one_is_enough`: one caller does as much as many while calls are short.
    """

    def __init__(
        self,
        scheduler: WorkScheduler,
        *,
        slots: int,
        timeout_ms: int | None,
        timed: bool,
        one_is_enough: bool,
    ) -> None:
        self.scheduler = scheduler
        self.todo: deque[Task] = deque()
        self.ended: deque[Ended] = deque()
        # Callers that are there, those whose calls are left alone not counted.
        self.active = 0
        self.left_alone = 0
        self.slots = slots
        # How many calls in a row were short.
        self.quick = 0
        self._timeout_ms, self.timed = timeout_ms, timed
        self._one_is_enough = one_is_enough
        # What was taken, and is not over.
        self._busy = 0
        self._untold = 0
        self._calling: set[Task] = set()
        # The caller that goes on where one is enough.
        self._busiest: object = None
        self._watched: Task | None = None

    # --- a turn -----------------------------------------------------------------------------------

    def hear(self, now_ms: int, commit_records: int) -> TurnNews:
        """Tell the scheduler what has ended, and what takes too long."""
        heard = self.settle(now_ms, commit_records)
        for task in self.scheduler.expire(now_ms):
            heard.late.append((task, self._is_begun(task)))
            if task.over:
                self._busy -= 1
                heard.left.append(task)
                self._leave_alone(task)
        return heard

    def settle(self, now_ms: int, commit_records: int) -> TurnNews:
        """Tell the scheduler what has ended."""
        heard, ended, scheduler = TurnNews(), self.ended, self.scheduler
        while ended:
            task, error = ended.popleft()
            if error is not None or task.over:
                self._ended_badly(task, error, now_ms, heard)
                continue
            self._busy -= 1
            self._untold += len(task.items)
            scheduler.ended(task, None, now_ms)
        if self._untold >= commit_records:
            self._untold %= commit_records
            heard.commits = True
        return heard

    def _ended_badly(self, task: Task, error: str | None, now_ms: int, heard: TurnNews) -> None:
        if task.over:
            self.left_alone -= 1
            heard.too_late.append(task)
            return
        self._busy -= 1
        if error is None or error is NOT_BEGUN:
            return
        self.scheduler.ended(task, error, now_ms)
        heard.failed.append((task, error))

    def take(self, now_ms: int) -> None:
        """Take what may begin now."""
        if self.left_alone >= self.slots:
            return
        tasks = self.scheduler.take(now_ms, self.slots + self._ahead - self._busy)
        self._busy += len(tasks)
        if self._timeout_ms is not None:
            for task in tasks:
                # Its time begins when its call does.
                task.due_ms = None
        self.todo.extend(tasks)

    def drop(self) -> None:
        """Forget what was not begun: the worker ends."""
        todo = self.todo
        while todo:
            try:
                todo.popleft()
            except IndexError:  # a caller took it
                return
            self._busy -= 1

    @property
    def stopped_by(self) -> Item | None:
        """The item that failed for good under the policy to stop."""
        return self.scheduler.stopped_by

    @property
    def halts(self) -> bool:
        """Whether every slot is taken by a call that never returned."""
        return self.left_alone >= self.slots

    @property
    def _ahead(self) -> int:
        """How much more than there are slots may be taken."""
        return min(self.quick, AHEAD_MAX)

    # --- who calls --------------------------------------------------------------------------------

    @property
    def are_quick(self) -> bool:
        """Whether calls are short."""
        return self.quick >= QUICK_ENOUGH

    def callers_wanted(self, free: int) -> int:
        """How many more callers there is work for, beside `free` ones that look for some."""
        most = 1 if self.are_quick and self._one_is_enough else self.slots
        return min(len(self.todo) - free, most - self.active)

    def no_caller(self, error: str) -> None:
        """One that was counted could not be had: without any, all fails that was to be done."""
        self.active -= 1
        if not self.active:
            while self.todo:
                self.ended.append((self.todo.popleft(), error))

    def goes_on(self, caller: object) -> bool:
        """After its turn: whether it calls more. Otherwise it is over, and not counted."""
        if self.todo and not self._is_too_many(caller):
            return True
        self.active -= 1
        return False

    def _is_too_many(self, caller: object) -> bool:
        """Whether calls are short, and another caller makes turns too. One that makes none does not
        count: its call is long."""
        if not (self._one_is_enough and self.are_quick):
            return False
        if self._busiest is None or self.active == 1:
            self._busiest = caller
        return self._busiest is not caller

    def have_become_long(self) -> bool:
        """Where nothing more is taken since it was asked last, the calls have become long: then all
        callers are wanted."""
        next_one = self._next_unless_full
        are_long = next_one is not None and next_one is self._watched
        if are_long:
            self.quick, self._busiest = 0, None
        self._watched = next_one
        return are_long

    @property
    def _next_unless_full(self) -> Task | None:
        """What a caller would take next, where there might be more callers: if that stays what it
        is, the calls that are under way are long ones."""
        if not (self._one_is_enough and self.are_quick and self.active < self.slots):
            return None
        try:
            return self.todo[0]
        except IndexError:
            return None

    # --- calls that may be left alone -------------------------------------------------------------

    def begins(self, task: Task, now_ms: int) -> bool:
        """Note that the call begins; False when it was left alone before it could."""
        if task.over:
            return False
        self._calling.add(task)
        if self._timeout_ms is not None:
            task.due_ms = now_ms + self._timeout_ms
        return True

    def is_over(self, task: Task, error: str | None) -> Told:
        """A call has ended, or was not begun."""
        begun = task in self._calling
        self._calling.discard(task)
        if task.over and not begun:
            return Told.GO_ON
        self.ended.append((task, error))
        return Told.OVER if task.over else Told.GO_ON

    def _is_begun(self, task: Task) -> bool:
        return task in self._calling if self.timed else task not in self.todo

    def _leave_alone(self, task: Task) -> None:
        if task in self._calling:
            self.active -= 1
            self.left_alone += 1
            return
        with suppress(ValueError):  # a caller has it in hand, and will see that it is over
            self.todo.remove(task)

    # --- when to look -----------------------------------------------------------------------------

    def due_ms(self, now_ms: float) -> float:
        """When a turn is to be made although nobody asks for one."""
        moments = [inf]
        if self.left_alone < self.slots:
            due_ms = self.scheduler.due_ms()
            moments += [due_ms] if due_ms is not None else []
        if self.active and self._timeout_ms is not None:
            # A call that begins meanwhile is late no sooner.
            moments.append(now_ms + self._timeout_ms)
        if self._next_unless_full is not None:
            moments.append(now_ms + WATCH_MS)
        return min(moments)

    def is_left_to_us(self, *, has_more: bool) -> bool:
        """Whether there is something to hear or to offer that no caller does; `has_more`: messages
        wait that were not offered."""
        return bool(self.ended and not self.active) or (has_more and self.scheduler.has_room())
