"""Each checker on histories written by hand: the smallest that breaks its promise; a good one."""

from __future__ import annotations

import pytest

from pxrs_ray.model import PartitionRow, WriteKind
from tests.simulation.checkers import CHECKERS, check
from tests.simulation.feed_histories import FEED_HISTORIES, GOOD_FEED
from tests.simulation.histories import (
    GOOD,
    HISTORIES,
    appended,
    led,
    processed,
    stored,
    write,
)
from tests.simulation.history import (
    Appended,
    Ended,
    Failed,
    Fetched,
    HistoryEvent,
    Processed,
    Stored,
)
from tests.simulation.member_histories import MEMBER_HISTORIES

EVERY = (*HISTORIES, *MEMBER_HISTORIES, *FEED_HISTORIES)


@pytest.mark.parametrize(("checker", "what", "history"), EVERY, ids=lambda one: str(one)[:40])
def test_a_broken_promise_is_found(checker: str, what: str, history: list[HistoryEvent]) -> None:
    assert checker in {violation.checker for violation in check(history)}, what


def test_every_checker_is_tried() -> None:
    assert {checker for checker, _, _ in EVERY} == {one.__name__ for one in CHECKERS}


def test_a_good_history_passes() -> None:
    assert check(GOOD) == ()
    assert check(GOOD_FEED) == ()


def test_a_history_that_saw_little_is_not_judged_by_what_it_missed() -> None:
    seen = [event for event in GOOD if isinstance(event, Appended | Fetched | Processed | Stored)]
    assert check(seen) == ()


def test_a_seek_allows_what_nothing_else_does() -> None:
    def reset(before: PartitionRow, checkpoint: int) -> Stored:
        after = PartitionRow(0, epoch=before.epoch + 1, checkpoint=checkpoint)
        record = write(WriteKind.RESET, None, before.epoch, checkpoint)
        return stored(record, before, after)

    forward = reset(PartitionRow(0, epoch=2, checkpoint=1), 2)
    back = reset(PartitionRow(0, epoch=3, checkpoint=2), 0)
    history = [
        led(),
        *(appended(offset) for offset in range(3)),
        processed("A", 1, 0),
        forward,
        back,
        processed("B", 5, 0),
        processed("B", 5, 1),
        processed("B", 5, 2),
    ]
    assert check(history) == ()
    assert check([*history[:5], forward, Ended(1, (), {0: 2}, ())]) == ()


def test_a_checker_falls_silent_after_a_few_findings() -> None:
    history = [Failed(ms, "here", "again") for ms in range(100)]
    assert 1 <= len(check(history)) < 100
