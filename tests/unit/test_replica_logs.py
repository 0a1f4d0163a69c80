"""The logs that one replica holds: what is lost here alone is not made anew, and not gapped."""

from __future__ import annotations

from pathlib import Path

from pxrs_ray.data.batch import Batch
from pxrs_ray.data.frame import producer_id
from pxrs_ray.data.protocol import QueueSpec
from pxrs_ray.log.replica_log import ReplicaLog
from pxrs_ray.log.replica_logs import ReplicaLogs
from tests.logs import NOW_MS
from tests.settings import log_limits

SPEC = QueueSpec("q", 2, log_limits(), queue_id="id-of-q")
QUEUES = {"q": "id-of-q"}


def opened(folder: Path, *, make: bool) -> ReplicaLogs:
    logs = ReplicaLogs(folder, 0, 1, NOW_MS)
    logs.open(SPEC, {}, NOW_MS, make=make)
    logs.open(SPEC, {}, NOW_MS, make=False)
    return logs


def test_what_is_open_is_whole(tmp_path: Path) -> None:
    logs = opened(tmp_path, make=True)
    found = logs.whole()
    assert set(found) == {("id-of-q", 0), ("id-of-q", 1)}
    assert all(isinstance(log, ReplicaLog) for log in found.values())
    assert logs.missing(QUEUES, found) == ()
    assert logs.missing(QUEUES, {("id-of-q", 0): found["id-of-q", 0]}) == ("q",)
    assert logs.missing({"q": "another id"}, found) == ("q",), "another queue of that name"
    assert logs.missing({"p": "x"}, found) == ("p",)
    logs.close()


def test_a_log_that_is_gone_is_missing_until_it_is_to_be_made(tmp_path: Path) -> None:
    opened(tmp_path, make=True).close()
    for path in (tmp_path / "q" / "p00001").iterdir():
        path.unlink()
    logs = opened(tmp_path, make=False)
    assert logs.missing(QUEUES, logs.whole()) == ("q",)
    assert set(logs.whole()) == {("id-of-q", 0)}
    logs.open(SPEC, {}, NOW_MS, make=True)
    assert logs.missing(QUEUES, logs.whole()) == ()
    assert logs.whole()["id-of-q", 1].gaps == ()
    logs.close()


def test_a_log_that_failed_ends_the_replica_and_is_not_opened_anew(tmp_path: Path) -> None:
    logs, told = opened(tmp_path, make=True), []
    logs.ends_with = told.append
    log = logs.log("q", 0)
    log._failed = log._failure("cannot be written", OSError("gone"))
    log._changed()
    [place] = logs.due(1_000)
    logs.mend(place, NOW_MS, 1_000)
    assert told and "it failed" in told[0]
    logs.abandon()


def test_retention_is_the_leaders(tmp_path: Path) -> None:
    logs = opened(tmp_path, make=True)
    batch = Batch.of([b"k"], [b"v"], timestamp_ms=1)
    logs.log("q", 0).append(*batch.to_wire(producer_id("p"), 0, 0), NOW_MS)
    assert logs.to_retain(NOW_MS) == []
    logs.may_retain = lambda: True
    assert logs.to_retain(NOW_MS) != []
    logs.close()
