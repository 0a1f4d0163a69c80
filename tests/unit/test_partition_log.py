"""A partition log against a simple model, and its promises one by one."""

from __future__ import annotations

import pickle
import random
from pathlib import Path
from typing import Any

import pytest

from pxrs_ray.data.link_messages import fetched_answer
from pxrs_ray.data.log_limits import LogLimits
from pxrs_ray.data.protocol import Fetched
from pxrs_ray.errors import (
    AlreadyExists,
    LogCorrupted,
    MessageTooLarge,
    OffsetOutOfRange,
    PartitionFull,
    ProducerFenced,
    RetentionBlocked,
    SequenceConflict,
    SequenceGap,
    UsageError,
)
from tests.logs import ALWAYS, MEMORY, NOW_MS, SMALL, contents, open_log, put, wire
from tests.settings import log_limits

KINDS = pytest.mark.parametrize("limits", [SMALL, ALWAYS, MEMORY], ids=lambda x: x.durability)


@KINDS
def test_offsets_count_messages_and_reads_begin_anywhere(tmp_path: Path, limits: LogLimits) -> None:
    log = open_log(tmp_path, limits)
    for sequence in range(40):
        assert put(log, sequence, [b"%d-%d" % (sequence, i) for i in range(3)]).base_offset == (
            sequence * 3
        )
    log.sync()
    everything = contents(log)
    assert list(everything) == list(range(120))
    for offset in range(120):
        assert contents(log, offset) == {o: v for o, v in everything.items() if o >= offset}
    assert log.read(120).chunks == []
    with pytest.raises(OffsetOutOfRange, match="holds offsets 0 to 120, 121"):
        log.read(121)
    log.close()


def test_reads_obey_their_bounds_but_bring_a_frame_at_least(tmp_path: Path) -> None:
    for name, limits in (("disk", SMALL), ("memory", MEMORY)):
        log = open_log(tmp_path / name, limits)
        for sequence in range(30):
            put(log, sequence, [b"x" * 100] * 2)
        for offset in (0, 31, 59):
            assert log.read(offset, bytes_max=1).next_offset == offset // 2 * 2 + 2
            assert log.read(offset, records_max=3, bytes_max=10_000).next_offset <= offset + 4
            assert sum(map(len, log.read(offset, bytes_max=1_500).chunks)) <= 1_500
        log.close()


@pytest.mark.parametrize("seed", range(20))
def test_random_use_agrees_with_a_list(tmp_path: Path, seed: int) -> None:
    """Appends, repeats, reopenings, truncations and retention, against a dict of what is there."""
    rng = random.Random(seed)
    limits = rng.choice([SMALL, ALWAYS])
    log = open_log(tmp_path, limits)
    model: dict[int, bytes] = {}
    sent: dict[bytes, list[tuple[Any, int]]] = {b"a" * 16: [], b"b" * 16: []}
    for step in range(150):
        action = rng.choices(
            ["append", "repeat", "gap", "reopen", "truncate", "retain"], [60, 10, 5, 4, 3, 3]
        )[0]
        producer = rng.choice(list(sent))
        if action == "append":
            payloads = [rng.randbytes(rng.randrange(80)) for _ in range(rng.randint(1, 6))]
            frame = wire(payloads, len(sent[producer]), producer=producer)
            base = log.append(*frame, NOW_MS).base_offset
            assert base is not None
            sent[producer].append((frame, base))
            model.update(enumerate(payloads, base))
        elif action == "repeat" and sent[producer]:
            again, first_base = rng.choice(sent[producer][-30:])
            answer = log.append(again[0], again[1], NOW_MS)
            assert (answer.base_offset, answer.repeated) == (first_base, True)
        elif action == "gap":
            with pytest.raises(SequenceGap):
                log.append(*wire([b"x"], len(sent[producer]) + 1, producer=producer), NOW_MS)
        elif action == "reopen":
            log.close()
            log = open_log(tmp_path, limits)
        elif action == "truncate":
            offset = rng.randint(log.start_offset, log.end_offset)
            log.truncate_before(offset, NOW_MS)
            model = {o: v for o, v in model.items() if o >= offset}
        else:
            log.set_limits(
                log_limits(
                    durability=limits.durability,
                    segment_bytes_max=4_000,
                    tail_bytes_max=2_000,
                    retention_bytes=12_000,
                )
            )
            log.retain(NOW_MS)
            assert log.size_bytes <= 12_000 + 5_000
            model = {o: v for o, v in model.items() if o >= log.start_offset}
        log.sync()
        if step % 10 == 0:
            offset = rng.randint(log.start_offset, log.end_offset)
            assert contents(log, offset) == {o: v for o, v in model.items() if o >= offset}
    assert contents(log) == model
    log.close()


def test_a_repeat_gets_the_first_answer_and_a_gap_is_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    first = put(log, 0, [b"a", b"b"])
    second = put(log, 1)
    assert (first.base_offset, second.base_offset) == (0, 2)
    again = put(log, 0, [b"a", b"b"])
    assert (again.base_offset, again.repeated, log.end_offset) == (0, True, 3)
    with pytest.raises(SequenceGap, match="sequence 3 skips ahead: 2 is next"):
        put(log, 3)
    with pytest.raises(SequenceConflict, match="sequence 0 was appended before with other content"):
        put(log, 0, [b"a", b"c"])
    log.close()


def test_an_older_producer_epoch_is_fenced_and_a_newer_one_starts_at_0(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, 0)
    with pytest.raises(SequenceGap, match="0 is next"):
        put(log, 1, epoch=1)
    assert put(log, 0, epoch=1).base_offset == 1
    with pytest.raises(ProducerFenced, match="epoch 0 is older than 1"):
        put(log, 1)
    log.close()
    log = open_log(tmp_path)
    with pytest.raises(ProducerFenced):
        put(log, 1)
    assert put(log, 1, epoch=1).base_offset == 2
    log.close()


def test_a_repeat_older_than_the_memory_of_answers_is_still_a_repeat(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for sequence in range(200):
        put(log, sequence)
    again = put(log, 3)
    assert (again.base_offset, again.repeated, log.end_offset) == (None, True, 200)
    log.close()


def test_idempotence_survives_a_kill_with_and_without_snapshot(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for sequence in range(60):
        put(log, sequence, [b"x" * 100])
    log.abandon()
    for forget in (False, True):
        if forget:
            (tmp_path / "producers.snap").unlink()
        log = open_log(tmp_path)
        assert put(log, 59, [b"x" * 100]).base_offset == 59
        with pytest.raises(SequenceGap, match="60 is next"):
            put(log, 61)
        log.abandon()


def test_producers_that_were_silent_for_long_are_forgotten(tmp_path: Path) -> None:
    limits = log_limits(producers_max=3, producer_idle_ms=1_000)
    log = open_log(tmp_path, limits)
    for name in (b"a", b"b", b"c", b"d"):
        put(log, 0, producer=name * 16)
    assert put(log, 0, producer=b"d" * 16).repeated
    assert not put(log, 0, producer=b"a" * 16).repeated
    log.append(*wire([b"x"], 0, producer=b"e" * 16), NOW_MS + 5_000)
    assert not put(log, 0, producer=b"d" * 16).repeated
    log.close()


def test_a_damaged_frame_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    header, body = wire([b"a"], 0)
    with pytest.raises(LogCorrupted):
        log.append(header, body.to_pybytes()[:-8] + b"\1" * 8, NOW_MS)
    assert log.end_offset == 0
    assert log.append(header, body, NOW_MS).base_offset == 0
    log.close()


@pytest.mark.parametrize(
    "limits", [log_limits(frame_bytes_max=1_000), log_limits(partition_bytes_max=1_000)]
)
def test_a_frame_that_can_never_fit_is_refused(tmp_path: Path, limits: LogLimits) -> None:
    log = open_log(tmp_path, limits)
    with pytest.raises(MessageTooLarge, match="above the 1000 that"):
        put(log, 0, [b"x" * 1_000])
    assert put(log, 0).base_offset == 0
    log.close()


@KINDS
def test_a_full_partition_says_whom_it_waits_for(tmp_path: Path, limits: LogLimits) -> None:
    full = log_limits(
        durability=limits.durability,
        partition_bytes_max=6_000,
        segment_bytes_max=2_000,
        tail_bytes_max=2_000,
    )
    log = open_log(tmp_path, full)
    log.passed("slow", 0)
    log.passed("fast", 0)
    sequence = 0
    with pytest.raises(PartitionFull, match=r"of 6000 bytes, and group 'slow' has passed only 0"):
        while True:
            put(log, sequence, [b"x" * 100])
            sequence += 1
            log.passed("fast", log.end_offset)
    assert 5 <= sequence <= 15
    end = log.end_offset
    log.passed("slow", end)
    assert put(log, sequence, [b"x" * 100]).base_offset == end
    assert log.size_bytes <= 6_000
    log.close()


def test_a_frame_without_messages_is_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    with pytest.raises(UsageError, match="without messages"):
        put(log, 0, [])
    log.close()


def test_truncation_is_refused_while_a_group_needs_the_data(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for sequence in range(30):
        put(log, sequence, [b"x" * 100])
    log.passed("g", 7)
    log.truncate_before(5, NOW_MS)
    assert log.start_offset == 5
    with pytest.raises(RetentionBlocked, match="below 8 by g"):
        log.truncate_before(8, NOW_MS)
    log.truncate_before(8, NOW_MS, force=True)
    with pytest.raises(OffsetOutOfRange):
        log.read(7)
    log.drop_group("g")
    log.truncate_before(30, NOW_MS)
    with pytest.raises(OffsetOutOfRange):
        log.truncate_before(31, NOW_MS)
    assert (log.start_offset, log.end_offset) == (30, 30)
    assert log.size_bytes < 100
    log.close()
    log = open_log(tmp_path)
    assert (log.start_offset, log.end_offset) == (30, 30)
    assert put(log, 30).base_offset == 30
    log.close()


def test_groups_are_remembered(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.passed("g", 3)
    log.abandon()
    log = open_log(tmp_path)
    assert log.groups == {"g": 3}
    log.close()


def test_the_offset_at_a_time(tmp_path: Path) -> None:
    for name, limits in (("disk", SMALL), ("memory", MEMORY)):
        log = open_log(tmp_path / name, limits)
        for sequence in range(40):
            put(log, sequence, [b"x" * 90] * 2, timestamp_ms=100 + sequence * 10)
        for timestamp, offset in ((0, 0), (100, 0), (101, 2), (110, 2), (490, 78), (491, 80)):
            assert log.offset_at(timestamp) == offset, (name, timestamp)
        log.close()


def test_with_always_readers_see_only_what_is_synced(tmp_path: Path) -> None:
    log = open_log(tmp_path, ALWAYS)
    put(log, 0)
    assert (log.end_offset, log.visible_end, log.durable_offset) == (1, 0, 0)
    assert log.read(0).chunks == []
    log.sync()
    assert (log.visible_end, len(contents(log))) == (1, 1)
    put(log, 1)
    assert len(contents(log)) == 1
    log.close()


def test_two_processes_cannot_have_one_log(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    with pytest.raises(AlreadyExists, match="in use by another process"):
        open_log(tmp_path)
    log.close()
    open_log(tmp_path).close()


def test_memory_does_not_grow_with_what_is_unread(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for sequence in range(300):
        put(log, sequence, [b"x" * 200])
        assert log.bytes_hot <= SMALL.tail_bytes_max
    assert len(contents(log)) == 300
    log.close()


def test_ends_tell_where_a_log_stands(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, 0, [b"a", b"b"], timestamp_ms=5)
    put(log, 1, [b"c"], timestamp_ms=9)
    log.passed("g", 1)
    ends = log.ends()
    assert (ends.start_offset, ends.end_offset, ends.start_timestamp_ms) == (0, 3, 5)
    assert (ends.end_timestamp_ms, dict(ends.groups), ends.state) == (9, {"g": 1}, "open")
    log.close()


def test_a_large_message_is_read_from_memory_over_a_line_and_from_disk(tmp_path: Path) -> None:
    limits = log_limits(frame_bytes_max=8 << 20, segment_bytes_max=4 << 20)
    log = open_log(tmp_path, limits)
    payloads = [b"small", b"x" * (3 << 20), b"after"]
    for sequence, payload in enumerate(payloads):
        put(log, sequence, [payload])
    assert contents(log) == dict(enumerate(payloads))
    run = log.read_tail(0, bytes_max=16 << 20)
    assert run is not None
    told = [Fetched(0, tuple(run.chunks), 3, 0, 3)]
    over_a_line = sum(memoryview(part).nbytes for part in fetched_answer(1, told))
    assert sum(map(len, run.chunks)) < over_a_line < 8 << 20
    out_of_band: list[pickle.PickleBuffer] = []
    large = [pickle.PickleBuffer(chunk) for chunk in run.chunks]
    data = pickle.dumps(large, protocol=5, buffer_callback=out_of_band.append)
    assert len(data) < 1_000 and len(out_of_band) == len(run.chunks)
    log.close()
    log = open_log(tmp_path, limits)
    assert contents(log) == dict(enumerate(payloads))
    log.close()
