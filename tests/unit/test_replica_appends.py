"""When an append to a replica's log is acknowledged, and what becomes of it when that cannot be."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import cast

from pxrs_ray.data.protocol import Appended, Refused
from pxrs_ray.errors import LeaseOver
from pxrs_ray.log.buffer_calls import AppendCall
from pxrs_ray.log.log_manager import LogManager
from pxrs_ray.log.partition_log import PartitionLog
from tests.logs import NOW_MS, open_log, wire
from tests.replica_logs import opened
from tests.simulation.replicas.replica import Door


def call_of(log: PartitionLog, counts: Counter[str], sequence: int = 0) -> AppendCall:
    door = cast(LogManager, Door({("q", 0): log}))
    frames = [(0, *wire([b"a", b"b"], sequence))]
    return AppendCall(door, counts, lambda: LeaseOver("it does not lead"), "q", frames)


def round_of(call: AppendCall, *, term: int = 1) -> list[Appended | Refused] | None:
    assert call.begin(True, 1)
    call.run(NOW_MS)
    call.end({}, True, term)
    return call.answer(final=False)


def test_it_is_acknowledged_once_it_is_on_every_replica_in_sync(tmp_path: Path) -> None:
    log, counts = opened(tmp_path), Counter[str]()
    call = call_of(log, counts)
    assert round_of(call) is None
    log.advance(1)
    assert round_of(call) is None, "half of it is no acknowledgement"
    [refused] = call.answer(final=True) or []
    assert isinstance(refused, Refused) and isinstance(refused.error, LeaseOver)
    assert "not on every replica in sync" in str(refused.error)
    assert not counts, "nobody was told of it yet"
    log.advance(2)
    assert round_of(call) == [Appended(0, 0, 2, repeated=True)]
    assert (counts["frames"], counts["messages"], counts["repeats"]) == (1, 2, 0)
    assert log.end_offset == 2, "it was asked three times, and is there once"


def test_what_was_cut_while_it_waited_is_appended_anew(tmp_path: Path) -> None:
    log, counts = opened(tmp_path), Counter[str]()
    call = call_of(log, counts)
    assert round_of(call) is None
    log.cut(0, NOW_MS)
    log.advance(2)
    assert log.end_offset == 0
    assert round_of(call) == [Appended(0, 0, 2)]
    assert log.end_offset == 2


def test_what_is_on_all_while_the_lead_ended_is_acknowledged_by_nobody(tmp_path: Path) -> None:
    log, counts = opened(tmp_path), Counter[str]()
    call = call_of(log, counts)
    log.advance(2)
    assert round_of(call, term=2) is None
    [refused] = call.answer(final=True) or []
    assert isinstance(refused, Refused) and str(refused.error) == "it does not lead"


def test_a_repeat_waits_as_the_first_one_does(tmp_path: Path) -> None:
    log, counts = opened(tmp_path), Counter[str]()
    assert round_of(call_of(log, counts)) is None
    assert round_of(call_of(log, counts)) is None
    log.advance(2)
    assert round_of(call_of(log, counts)) == [Appended(0, 0, 2, repeated=True)]


def test_a_log_that_has_no_replicas_acknowledges_by_itself(tmp_path: Path) -> None:
    log, counts = open_log(tmp_path), Counter[str]()
    assert round_of(call_of(log, counts)) == [Appended(0, 0, 2)]
