"""The machines of calls: how much is taken, what becomes of a call that is left alone, and what a
special one goes through."""

from __future__ import annotations

from typing import Any

from pxrs_ray.model import Progress
from pxrs_ray.processing.call_apart import (
    AwaitLease,
    AwaitPause,
    CallIt,
    LeavePlace,
    NoteBegin,
    TakePlace,
    Went,
    call_apart,
)
from pxrs_ray.processing.call_turns import NOT_BEGUN, CallTurns, Told
from pxrs_ray.processing.scheduler import Item, Task, Work
from pxrs_ray.processing.suspects import Suspect
from pxrs_ray.steps import Do, carry_now

MANY = 1_000


class Scheduler:
    """Every message by itself, in any order; a task is late when a test says so."""

    def __init__(self, count: int) -> None:
        self.waiting = [Task(Work.HANDLE, (Item(n),)) for n in range(count)]
        self.told: list[tuple[Task, str | None]] = []
        self.late: list[Task] = []
        self.stopped_by = None

    def offer(self, items: Any) -> None: ...

    def skip(self, to: int) -> None: ...

    def has_room(self) -> bool:
        return False

    def take(self, now_ms: int, room: int) -> list[Task]:
        taken, self.waiting = self.waiting[: max(0, room)], self.waiting[max(0, room) :]
        return taken

    def ended(self, task: Task, error: str | None, now_ms: int) -> None:
        self.told.append((task, error))

    def expire(self, now_ms: int) -> list[Task]:
        late, self.late = self.late, []
        for task in late:
            task.over = True
        return late

    def due_ms(self) -> int | None:
        return None

    def progress(self) -> Progress:
        return Progress(0)


def turns_of(scheduler: Scheduler, slots: int = 2, timeout_ms: int | None = 50) -> CallTurns:
    return CallTurns(scheduler, slots=slots, timeout_ms=timeout_ms, timed=True, one_is_enough=True)


def test_no_more_is_taken_than_there_are_slots() -> None:
    scheduler = Scheduler(9)
    turns = turns_of(scheduler, slots=3)
    turns.take(0)
    turns.take(0)
    assert len(turns.todo) == 3
    turns.is_over(turns.todo.popleft(), None)
    turns.hear(0, MANY)
    turns.take(0)
    assert len(turns.todo) == 3 and len(scheduler.told) == 1


def test_a_call_that_was_left_alone_counts_no_more_and_frees_its_slot() -> None:
    scheduler = Scheduler(9)
    turns = turns_of(scheduler, slots=1)
    turns.active = 1
    turns.take(0)
    task = turns.todo.popleft()
    assert turns.begins(task, 0) and task.due_ms == 50
    scheduler.late = [task]
    heard = turns.hear(60, MANY)
    assert heard.late == [(task, True)] and heard.left == [task]
    assert turns.halts and not turns.active
    turns.take(60)
    assert not turns.todo
    # It ends after all: that says nothing of its message, and its slot is free again.
    assert turns.is_over(task, None) is Told.OVER
    assert turns.hear(90, MANY).too_late == [task]
    assert scheduler.told == [] and not turns.halts
    turns.take(90)
    assert len(turns.todo) == 1


def test_calls_that_never_return_halt_it_when_they_have_all_slots() -> None:
    scheduler = Scheduler(9)
    turns = turns_of(scheduler)
    turns.active = 2
    turns.take(0)
    for count in (1, 2):
        task = turns.todo.popleft()
        assert turns.begins(task, 0)
        scheduler.late = [task]
        turns.hear(60, MANY)
        assert turns.halts == (count == 2)
    turns.take(60)
    assert not turns.todo


def test_what_is_late_before_it_begins_is_not_begun() -> None:
    scheduler = Scheduler(1)
    turns = turns_of(scheduler)
    turns.take(0)
    task = turns.todo.popleft()
    scheduler.late = [task]
    assert turns.hear(60, MANY).late == [(task, False)]
    assert not turns.begins(task, 60)
    assert turns.is_over(task, NOT_BEGUN) is Told.GO_ON
    assert not turns.ended and not turns.left_alone


def test_what_was_never_begun_does_not_count_as_failed() -> None:
    scheduler = Scheduler(1)
    turns = turns_of(scheduler)
    turns.take(0)
    assert turns.is_over(turns.todo.popleft(), NOT_BEGUN) is Told.GO_ON
    assert turns.hear(0, MANY).failed == [] and scheduler.told == []


def test_so_much_done_is_committed_once() -> None:
    turns = turns_of(Scheduler(9), slots=5, timeout_ms=None)
    turns.take(0)
    while turns.todo:
        turns.is_over(turns.todo.popleft(), None)
    assert turns.hear(0, 4).commits and not turns.hear(0, 4).commits


def test_where_no_caller_can_be_had_all_that_was_to_be_done_fails() -> None:
    turns = turns_of(Scheduler(2))
    turns.take(0)
    turns.active = 1
    turns.no_caller("no thread")
    assert [error for _, error in turns.ended] == ["no thread"] * 2 and not turns.todo


class Caller:
    """Makes each step; what is to be answered to a kind comes from `answers`, else True."""

    def __init__(self, **answers: list[Any]) -> None:
        self.answers, self.steps = answers, []  # type: tuple[dict[str, list[Any]], list[str]]

    def make(self, step: Do[Any]) -> Any:
        name = type(step).__name__
        self.steps.append(name)
        left = self.answers.get(name)
        return left.pop(0) if left else (Went() if isinstance(step, CallIt) else True)


def names(*steps: type) -> list[str]:
    return [step.__name__ for step in steps]


def test_a_call_that_waited_for_its_place_asks_for_the_lease_again() -> None:
    caller = Caller(AwaitLease=[True, False])
    assert carry_now(call_apart(Task(Work.HANDLE, (Item(1),))), caller.make) is NOT_BEGUN
    assert caller.steps[1:] == names(AwaitLease, TakePlace, AwaitLease, LeavePlace)


def test_a_call_that_ended_with_our_time_is_made_again() -> None:
    caller = Caller(CallIt=[Went("not held", void=True), Went("it raised")])
    assert carry_now(call_apart(Task(Work.HANDLE, (Item(1),))), caller.make) == "it raised"
    assert caller.steps.count("CallIt") == 2 and caller.steps.count("NoteBegin") == 2


def test_a_suspect_waits_before_it_asks_for_anything() -> None:
    caller = Caller()
    suspect = Suspect(1, 2, trouble=2)
    task = Task(Work.HANDLE, (Item(1, suspect=suspect),))
    assert carry_now(call_apart(task), caller.make) is None
    order = names(AwaitPause, AwaitLease, TakePlace, AwaitLease, NoteBegin, CallIt)
    assert caller.steps[1:] == order
