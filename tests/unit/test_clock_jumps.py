"""The wall clock jumps by an hour, either way: producers, logs, dedupe and leases do not notice."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from pxrs_ray.clock import wall_ms
from pxrs_ray.data.batch import Batch
from pxrs_ray.log.partition_log import PartitionLog
from pxrs_ray.model import Member, MemberWrite, Write, WriteKind
from pxrs_ray.store.memory import MemoryStore
from pxrs_ray.testing.wrong_clock import HOUR_S, wrong_wall_clock
from tests.in_process import in_process, until
from tests.logs import wire
from tests.settings import log_limits

YEARS_S = 5 * 365 * 24 * HOUR_S
JUMPS = pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S], ids=["forward", "back"])


@JUMPS
def test_an_open_batch_leaves_when_it_has_lingered(tmp_path: Path, jump_s: float) -> None:
    with (
        in_process(tmp_path) as buffers,
        wrong_wall_clock() as clock,
        buffers.producer(linger_ms=100) as producer,
    ):
        producer.send(b"k", b"0").result(10)
        receipts = [producer.send(b"k", b"1")]
        clock.wrong_s = jump_s
        receipts.append(producer.send(b"k", b"2"))
        began_s = time.monotonic()
        for receipt in receipts:
            receipt.result(10)
        assert time.monotonic() - began_s < 5


@JUMPS
def test_an_append_under_way_is_neither_given_up_nor_held(tmp_path: Path, jump_s: float) -> None:
    with in_process(tmp_path) as buffers, wrong_wall_clock() as clock:
        with buffers.producer(linger_ms=0) as producer:
            for index in range(buffers.count):
                buffers.kill(index)
            receipts = [producer.send(b"%d" % i, b"%d" % i) for i in range(10)]
            time.sleep(0.3)
            clock.wrong_s = jump_s
            for index in range(buffers.count):
                buffers.start(index)
            for receipt in receipts:
                receipt.result(10)
        assert sum(len(buffers.messages(p)) for p in range(4)) == 10


@JUMPS
def test_a_deadline_comes_when_it_is_due(tmp_path: Path, jump_s: float) -> None:
    with (
        in_process(tmp_path) as buffers,
        wrong_wall_clock() as clock,
        buffers.producer(linger_ms=0, append_timeout_ms=500) as producer,
    ):
        for index in range(buffers.count):
            buffers.kill(index)
        receipt = producer.send(b"k", b"x")
        began_s = time.monotonic()
        clock.wrong_s = jump_s
        until(receipt.done, 10)
        assert 0.3 < time.monotonic() - began_s < 5


@pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S, YEARS_S, -YEARS_S])
def test_a_log_knows_a_repeat_whatever_the_clock_did(tmp_path: Path, jump_s: float) -> None:
    folder = tmp_path / "log"
    with wrong_wall_clock() as clock:
        log = PartitionLog.open(folder, "q", 0, log_limits(), now_ms=wall_ms())
        log.confirm(0, wall_ms())
        first = log.append(*wire([b"a"], 0, producer=b"1" * 16), wall_ms())
        clock.wrong_s = jump_s
        log.append(*wire([b"b"], 0, producer=b"2" * 16), wall_ms())
        again = log.append(*wire([b"a"], 0, producer=b"1" * 16), wall_ms())
        assert (again.base_offset, again.repeated) == (first.base_offset, True)
        log.retain(wall_ms())
        log.close()
        log = PartitionLog.open(folder, "q", 0, log_limits(), now_ms=wall_ms())
        clock.wrong_s = 0.0
        log.append(*wire([b"c"], 0, producer=b"3" * 16), wall_ms())
        assert log.append(*wire([b"a"], 0, producer=b"1" * 16), wall_ms()).repeated
        assert log.append(*wire([b"b"], 0, producer=b"2" * 16), wall_ms()).repeated
        assert log.end_offset == 3
        log.close()


@JUMPS
def test_retention_by_age_keeps_what_is_young(tmp_path: Path, jump_s: float) -> None:
    limits = log_limits(retention_ms=24 * 3_600_000, segment_bytes_max=400)
    with wrong_wall_clock() as clock:
        log = PartitionLog.open(tmp_path / "log", "q", 0, limits, now_ms=wall_ms())
        log.confirm(0, wall_ms())
        for sequence in range(20):
            clock.wrong_s = jump_s if sequence % 2 else 0.0
            batch = Batch.of([b"k"], [b"x" * 50], timestamp_ms=wall_ms())
            log.append(*batch.to_wire(b"p" * 16, 0, sequence), wall_ms())
            log.retain(wall_ms())
        assert log.start_offset == 0 and log.end_offset == 20
        log.close()


@JUMPS
def test_a_lease_in_memory_lasts_as_long_as_it_says(jump_s: float) -> None:
    with wrong_wall_clock() as clock:
        store = MemoryStore()
        store.create()
        led = store.lead("g", 1, "test")
        writes = [
            MemberWrite("joined", Member("A", 1), 60_000, led.last_version + 1, "", wall_ms()),
            Write(WriteKind.CLAIM, 0, "A", 1, 0, version=led.last_version + 2),
        ]
        store.write("g", led.generation, writes)
        clock.wrong_s = jump_s
        assert list(store.expired("g")) == []
        store.renew("g", led.generation, [("A", 1)], 60_000)
        clock.wrong_s = 0.0
        assert list(store.expired("g")) == []
        store.close()
