"""What nobody noticed when it was taken away, until these looked: see the mutations."""

from __future__ import annotations

from pathlib import Path

import pytest

from pxrs_ray.data.frame import unpack_header
from pxrs_ray.errors import LogCorrupted
from pxrs_ray.log.producer_state import ProducerStates
from pxrs_ray.log.segment import segment_paths
from pxrs_ray.model import Progress
from pxrs_ray.processing.key_ordered import KeyLanes
from pxrs_ray.processing.retry_rules import FailurePolicy, RetryRules
from pxrs_ray.processing.scheduler import Item
from tests.logs import NOW_MS, contents, open_log, put, wire
from tests.settings import lane_rules, log_limits

ONE_SEGMENT = log_limits(tail_bytes_max=1)


def test_what_comes_while_its_key_is_in_hand_waits() -> None:
    lanes = KeyLanes(Progress(0, 0), lane_rules(RetryRules(3, 10, 40, FailurePolicy.SKIP)))
    lanes.offer([Item(0, b"k", "t")])
    (first,) = lanes.take(0, 10)
    lanes.offer([Item(1, b"k", "t"), Item(2, b"other", "t")])
    assert [task.item.offset for task in lanes.take(0, 10)] == [2]
    lanes.ended(first, None, 1)
    assert [task.item.offset for task in lanes.take(1, 10)] == [1]


def test_a_snapshot_of_a_log_that_had_reached_further_is_refused() -> None:
    states = ProducerStates(10, 1_000)
    header, _ = wire([b"m"], 0)
    states.record(unpack_header(header)._replace(base_offset=4), NOW_MS)
    snapshot = states.snapshot(5)
    fresh = ProducerStates(10, 1_000)
    assert fresh.restore(snapshot, 5) == 5
    with pytest.raises(LogCorrupted, match="offset 5"):
        ProducerStates(10, 1_000).restore(snapshot, 4)


def test_a_frame_that_lies_in_the_file_twice_is_read_once(tmp_path: Path) -> None:
    log = open_log(tmp_path, ONE_SEGMENT)
    put(log, 0, [b"first"])
    before = log.size_bytes
    put(log, 1, [b"second"])
    size = log.size_bytes - before
    whole = contents(log)
    log.abandon()
    (path,) = segment_paths(tmp_path)
    data = path.read_bytes()
    path.write_bytes(data + data[-size:])
    log = open_log(tmp_path, ONE_SEGMENT)
    assert log.end_offset == 2
    assert contents(log) == whole
    log.close()
