"""Retention: which parts go, by time, bytes, what groups passed, and for want of room."""

from __future__ import annotations

from pathlib import Path

import pytest

from pxrs_ray.data.log_limits import Durability, LogLimits
from pxrs_ray.log.retention import Part, droppable
from tests.logs import NOW_MS, contents, open_log, put
from tests.settings import log_limits

PARTS = [Part(10, 100, 1_000), Part(20, 100, 2_000), Part(30, 100, 3_000)]


@pytest.mark.parametrize(
    ("limits", "passed", "now_ms", "room", "gone"),
    [
        (log_limits(), 30, 99_999, 0, 0),
        (log_limits(retention_ms=500), 30, 1_500, 0, 0),
        (log_limits(retention_ms=500), 30, 1_501, 0, 1),
        (log_limits(retention_ms=500), 30, 99_999, 0, 3),
        (log_limits(retention_ms=500), 19, 99_999, 0, 1),
        (log_limits(retention_ms=500), None, 99_999, 0, 3),
        (log_limits(retention_ms=500, drop_unread=True), 0, 99_999, 0, 3),
        (log_limits(retention_bytes=250), 30, 0, 0, 2),
        (log_limits(retention_bytes=250), 9, 0, 0, 0),
        (log_limits(retention_bytes=1), 30, 0, 0, 3),
        (log_limits(retention_passed=True), 25, 0, 0, 2),
        (log_limits(retention_passed=True), None, 0, 0, 0),
        (log_limits(partition_bytes_max=400), 30, 0, 50, 1),
        (log_limits(partition_bytes_max=400), 30, 0, 150, 2),
        (log_limits(partition_bytes_max=400), 9, 0, 150, 0),
        (log_limits(partition_bytes_max=400), None, 0, 150, 0),
        (log_limits(durability=Durability.MEMORY, tail_bytes_max=250), 30, 0, 0, 2),
        (log_limits(durability=Durability.MEMORY, partition_bytes_max=300), 30, 0, 0, 1),
    ],
)
def test_the_rules(
    limits: LogLimits, passed: int | None, now_ms: int, room: int, gone: int
) -> None:
    assert droppable(PARTS, 400, room, limits, passed, now_ms) == gone


def test_an_old_active_segment_is_sealed_so_that_it_can_go(tmp_path: Path) -> None:
    log = open_log(tmp_path, log_limits(retention_ms=100))
    put(log, 0)
    log.retain(NOW_MS + 100)
    assert list(contents(log)) == [0]
    log.retain(NOW_MS + 101)
    assert (log.start_offset, contents(log)) == (1, {})
    log.close()
    log = open_log(tmp_path)
    assert (log.start_offset, log.end_offset) == (1, 1)
    assert not log.gaps
    log.close()


def test_what_all_groups_passed_goes_at_once_when_asked(tmp_path: Path) -> None:
    log = open_log(tmp_path, log_limits(retention_passed=True))
    put(log, 0)
    log.passed("g", 0)
    log.retain(NOW_MS)
    assert list(contents(log)) == [0]
    log.passed("g", 1)
    log.passed("h", 0)
    log.retain(NOW_MS)
    assert list(contents(log)) == [0]
    log.drop_group("h")
    log.retain(NOW_MS)
    assert contents(log) == {}
    log.close()
