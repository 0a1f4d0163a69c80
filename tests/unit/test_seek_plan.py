"""Where a seek leads a partition, and what its plan says of it."""

from __future__ import annotations

import pytest

from pxrs_ray.errors import UsageError
from pxrs_ray.group.seek_plan import LogBounds, PartitionSeek, SeekPlan, Sought, seek_offset

LOG = LogBounds(10, 110)


def led(kind: str, value: int = 0, checkpoint: int = 50) -> int:
    return seek_offset(Sought(kind, value), 3, LOG, checkpoint, {3: 77})


@pytest.mark.parametrize(
    ("kind", "value", "offset"),
    [
        ("start", 0, 10),
        ("end", 0, 110),
        ("time", 1_700_000_000_000, 77),
        ("offset", 10, 10),
        ("offset", 110, 110),
        ("shift", -20, 30),
        ("shift", 20, 70),
        ("shift", -1_000, 10),
        ("shift", 1_000, 110),
    ],
)
def test_it_leads_into_the_log(kind: str, value: int, offset: int) -> None:
    assert led(kind, value) == offset


def test_a_shift_of_a_checkpoint_below_the_log_stops_at_its_start() -> None:
    assert led("shift", -5, checkpoint=4) == 10 and led("shift", 2, checkpoint=4) == 10


@pytest.mark.parametrize("offset", [9, 111, -1])
def test_an_offset_outside_of_the_log_is_refused_by_name(offset: int) -> None:
    with pytest.raises(UsageError, match=f"partition 3 to offset {offset}: its log holds 10 to"):
        led("offset", offset)


def test_a_kind_that_there_is_not_is_refused() -> None:
    with pytest.raises(UsageError, match=r"'shift'.*not 'yesterday'"):
        led("yesterday")


def test_a_plan_counts_what_comes_again_and_what_is_skipped() -> None:
    back, on, still = PartitionSeek(0, 50, 10), PartitionSeek(1, 50, 60), PartitionSeek(2, 5, 5)
    plan = SeekPlan("g", (back, on, still))
    assert (back.repeats, back.skips) == (40, 0) and (on.repeats, on.skips) == (0, 10)
    assert (still.repeats, still.skips) == (0, 0)
    assert (plan.repeats, plan.skips) == (40, 10)


def test_partitions_are_moved_once_and_in_order() -> None:
    assert Sought("start").wanted(3) == [0, 1, 2]
    assert Sought("start", partitions=[2, 0, 2]).wanted(3) == [0, 2]


def test_the_history_is_told_what_was_sought() -> None:
    assert Sought("start").told() == "seek to start"
    assert Sought("offset", 17).told() == "seek to offset 17"
    assert Sought("shift", -5).told() == "seek by -5 messages"
