"""The gap map beyond its row: what a record is worth, and that no number of gaps stops a
partition."""

from __future__ import annotations

from collections import deque

from pxrs_ray.model import Progress
from pxrs_ray.processing.done_ranges import DoneRanges, done_to, named_in
from pxrs_ray.processing.gap_map import GapMap, GapRecord
from pxrs_ray.processing.key_ordered import KeyLanes
from pxrs_ray.processing.retry_rules import FailurePolicy, RetryRules
from pxrs_ray.processing.scheduler import Item
from pxrs_ray.processing.suspects import (
    NOBODY,
    Death,
    HandlerCall,
    Suspect,
    Suspicion,
    blame,
    decode_detail,
    encode_detail,
)
from tests.settings import lane_rules

EPOCH = 7
DIGITS = 4


def scattered(count: int, low: int = 0) -> list[int]:
    """Every second offset above `low`."""
    return list(range(low + 1, low + 1 + 2 * count, 2))


def in_log(count: int = 2_000, epoch: int = EPOCH) -> tuple[GapMap, GapRecord]:
    """A map of so many gaps, all of them in the log."""
    found = GapMap(Progress(0), 2_000, has_log=True)
    found.add_each(scattered(count))
    record = found.record(epoch, DIGITS, 0)
    assert record is not None and record.is_full
    found.kept(record, 100)
    return found, record


def test_what_was_written_down_is_read_back_by_the_next_owner() -> None:
    found, record = in_log()
    found.has_failed(0, 2)
    found.add_each([4_001, 4_003])
    row = Progress(0, 2, found.detail(NOBODY))
    assert len(row.detail) < 60
    assert done_to(0, row.detail) == 4_004
    again = GapMap(row, 2_000, has_log=True)
    assert again.is_unread
    assert again.detail(NOBODY) == row.detail, "until it is read the row stays as it is"
    assert again.restore(record.texts) == len(record.texts)
    assert list(again.done.runs()) == list(found.done.runs())
    assert again.failing == {0: 2}


def test_a_record_of_another_epoch_or_a_damaged_one_is_left_out() -> None:
    found, record = in_log()
    row = Progress(0, 0, found.detail(NOBODY))
    _, stale = in_log(epoch=EPOCH - 1)
    _, newer = in_log(epoch=EPOCH + 1)
    for texts in (stale.texts, newer.texts, (b"", b"\xff", b"7:", record.texts[0][:-1]), ()):
        again = GapMap(row, 2_000, has_log=True)
        assert again.restore(texts) == 0
        assert not len(again.done)
        assert again.done.low == 0


def test_no_record_tells_of_more_than_its_row_and_none_moves_the_checkpoint() -> None:
    found, record = in_log(400)
    row = Progress(0, 0, found.detail(NOBODY))
    named = named_in(0, row.detail)
    assert named is not None
    wrong = GapMap(Progress(0), 2_000, has_log=True)
    wrong.add_each([*range(3, 5_000, 3)])
    more = wrong.record(EPOCH, DIGITS, 0)
    assert more is not None
    again = GapMap(row, 2_000, has_log=True)
    again.restore([*record.texts, *more.texts])
    assert again.done.low == 0
    assert again.done.high <= named.high


def test_a_map_that_has_become_small_is_in_the_row_alone() -> None:
    found, _ = in_log()
    found.add_each([*range(0, 3_990, 2)])
    detail = found.detail(NOBODY)
    assert named_in(found.done.low, detail) is None
    assert list(DoneRanges.decode(found.done.low, detail)[0].runs()) == list(found.done.runs())
    assert found.record(EPOCH, DIGITS, 0) is None


def test_a_death_leaves_the_name_of_the_records_in_the_row() -> None:
    found, _ = in_log()
    detail = found.detail(NOBODY)
    blamed = blame(
        0, 0, detail, Death((HandlerCall(0, EPOCH, 0, 1),)), [HandlerCall(0, EPOCH, 0, 1)]
    )
    assert blamed != detail
    assert named_in(0, blamed) == named_in(0, detail)
    assert decode_detail(0, blamed)[1] == {0: 1}


def test_suspects_failures_and_the_name_stand_side_by_side() -> None:
    found, _ = in_log()
    suspicion = Suspicion((Suspect(2, 3, 2, 1, 300, 9),), (5,))
    text = encode_detail(DoneRanges(0), {4: 3}, suspicion, found.named)
    assert decode_detail(0, text)[1:] == ({4: 3}, suspicion)
    assert named_in(0, text) == found.named


def test_tens_of_thousands_of_gaps_leave_a_partition_as_parallel_as_none() -> None:
    # Half of the keys wait for something; the other half goes on, 64 messages at a time.
    total, at_once = 60_000, 64
    retry = RetryRules(0, 60_000, 60_000, FailurePolicy.SKIP)
    rules = lane_rules(retry, lookahead_records=total, gap_log=True)
    lanes, log = KeyLanes(Progress(0), rules), deque[bytes]()
    for first in range(0, total, 1_000):
        lanes.offer([Item(offset) for offset in range(first, first + 1_000)])
    waiting, done, alone = 0, 0, 0
    while waiting + done < total:
        tasks = lanes.take(0, at_once)
        alone += len(tasks) == 1
        for task in tasks:
            waits = task.item.offset % 2 == 0
            waiting, done = waiting + waits, done + (not waits)
            lanes.ended(task, "not yet" if waits else None, 0)
        record = lanes.gap_record(EPOCH)
        if record is not None:
            lanes.gaps_kept(record, len(log))
            log.extend(record.texts)
    assert alone <= 1, f"{alone} times only one message might begin"
    row = lanes.progress()
    assert len(row.detail) <= 2_000
    again = KeyLanes(row, rules)
    named = again.named_gaps
    assert named is not None
    again.restore_gaps(list(log)[named.base : named.end])
    repeated = 0
    for first in range(0, total, 1_000):
        again.offer([Item(offset) for offset in range(first, first + 1_000)])
    while tasks := again.take(0, at_once):
        for task in tasks:
            repeated += task.item.offset % 2
            again.ended(task, "not yet", 0)
    assert repeated == 0, "a takeover repeats nothing that was done"
