"""What a worker in order does next: runs, calls by themselves, pauses, and what is given up."""

from __future__ import annotations

import pytest

from pxrs_ray.model import Progress
from pxrs_ray.processing.in_order import (
    CallOne,
    CommitNow,
    GiveUp,
    Halt,
    InOrder,
    PauseUntil,
    RunOn,
    TakeBatch,
)
from pxrs_ray.processing.retry_rules import FailurePolicy, RetryRules
from pxrs_ray.processing.suspects import Death, HandlerCall, blame

RULES = RetryRules(2, 10, 100, FailurePolicy.SKIP)


def worker(progress: Progress | None = None, mode: str = "interval", **options: object) -> InOrder:
    rules = options.pop("rules", RULES)
    commits = options.pop("commits", [])
    assert isinstance(rules, RetryRules) and isinstance(commits, list)
    return InOrder(
        progress or Progress(0),
        rules,
        mode,
        100,
        lambda: commits.append(1),
        wants_batch=bool(options.get("batches", False)),
        began_s=0.0,
    )


def at(order: InOrder, in_hand: int = -1) -> Progress:
    return order.progress(lambda: in_hand)


def test_a_failed_message_is_called_by_itself_and_the_run_goes_on_behind_it() -> None:
    order = worker()
    assert order.next(0.0) == TakeBatch()
    order.took(0, 10)
    assert order.next(0.0) == RunOn(0, 10)
    assert at(order, 3) == Progress(3), "what is in hand comes after all that is done"
    order.ran(4, "failed", 1.0)
    assert order.next(1.0) == PauseUntil(1.01)
    again = order.next(1.02)
    assert again == CallOne(4, 5, 2) and at(order) == Progress(4, 1)
    order.called(again, None, 1.1)
    assert order.next(1.1) == RunOn(5, 10)
    order.ran(10, None, 1.2)
    assert order.next(1.2) == TakeBatch() and at(order) == Progress(10)


def test_what_may_not_begin_in_a_run_is_called_by_itself_and_has_not_failed() -> None:
    order = worker()
    order.took(0, 3)
    order.ran(1, None, 0.0)
    assert order.next(0.0) == CallOne(1, 2, 1) and at(order) == Progress(1)


def test_a_gap_takes_the_attempts_of_what_has_gone() -> None:
    order = worker(Progress(5, 1))
    order.skipped(10)
    assert at(order) == Progress(10), "another message has not failed"
    order.took(10, 12)
    assert order.next(0.0) == RunOn(10, 12)


def test_what_is_given_up_is_kept_before_anything_goes_on() -> None:
    order = worker(rules=RetryRules(1, 10, 100, FailurePolicy.DEAD_LETTER))
    order.took(0, 3)
    order.ran(0, "bad", 0.0)
    step = GiveUp(0, 1, 1, "bad", FailurePolicy.DEAD_LETTER)
    assert order.next(0.0) == step
    order.not_kept(0.0)
    assert order.next(0.0) == PauseUntil(0.01) and order.next(0.02) == step
    assert at(order) == Progress(0, 1)
    order.kept()
    assert order.next(0.03) == RunOn(1, 3) and at(order) == Progress(1)


def test_the_policy_to_stop_begins_nothing_more() -> None:
    order = worker(rules=RetryRules(1, 10, 100, FailurePolicy.STOP))
    order.took(0, 3)
    order.ran(1, "bad", 0.0)
    halted = order.next(0.0)
    assert isinstance(halted, Halt) and halted.given_up.first == 1
    assert order.next(9.0) == halted and at(order) == Progress(1, 1)


@pytest.mark.parametrize("mode", ["batch", "message"])
def test_each_mode_commits_where_it_says(mode: str) -> None:
    order = worker(mode=mode)
    order.took(0, 2)
    if mode == "batch":
        order.ran(2, None, 0.0)
    else:
        step = order.next(0.0)
        assert step == CallOne(0, 1, 1)
        order.called(step, None, 0.0)
    assert order.next(0.0) == CommitNow()
    assert order.next(0.0) == (TakeBatch() if mode == "batch" else CallOne(1, 2, 1))


def test_so_much_done_asks_for_a_commit() -> None:
    commits: list[int] = []
    order = worker(commits=commits)
    order.took(0, 500)
    assert order.kick_from == 99
    order.passed(100)
    assert commits == [1] and order.kick_from == 199
    order.configure(10, in_hand=150)
    assert order.kick_from == 159


def test_another_batch_than_the_next_one_is_a_fault() -> None:
    with pytest.raises(RuntimeError, match="offset 7 came, 0 is next"):
        worker().took(7, 9)


def test_a_suspect_rests_comes_alone_and_when_it_killed_too_often_not_at_all() -> None:
    call = HandlerCall(0, 1, 4, 5)
    detail, row = "", Progress(3)
    for deaths in (1, 2):
        detail = blame(3, 0, detail, Death((call,), 0), [call])
        row = Progress(3, 0, detail)
        order = worker(row)
        order.took(3, 6)
        first = order.next(0.0)
        assert first == CallOne(3, 4, 1)
        order.called(first, None, 0.0)
        found = order.next(100.0)
        if deaths == 1:
            assert isinstance(found, CallOne) and found.first == 4 and found.attempt == 2
            assert found.suspect is not None
            order.called(found, None, 100.0)
            assert order.next(100.0) == RunOn(5, 6)
        else:
            assert isinstance(found, GiveUp) and "its process died 2 times" in found.error


def test_a_handler_of_batches_gets_what_has_failed_alone() -> None:
    call = HandlerCall(0, 1, 4, 5)
    detail = blame(0, 0, "", Death((call,), 0), [call])
    order = worker(Progress(0, 0, detail), batches=True)
    order.took(0, 10)
    found = []
    while not isinstance(step := order.next(100.0), TakeBatch):
        assert isinstance(step, CallOne)
        found.append((step.first, step.end))
        order.called(step, None, 100.0)
    assert found == [(0, 4), (4, 5), (5, 10)] and at(order) == Progress(10)
