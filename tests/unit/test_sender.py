"""The sender against real logs over a network that loses, doubles, delays and reorders calls."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from pxrs_ray.data.protocol import OutFrame, Refused
from pxrs_ray.errors import (
    DeadlineExceeded,
    PartitionFull,
    ProducerFenced,
    UsageError,
)
from pxrs_ray.log.producer_state import ANSWERS_MAX
from pxrs_ray.producer.sender import Call
from tests.logs import MEMORY, NOW_MS, contents, open_log
from tests.senders import PARTITIONS, Harness
from tests.settings import sender_limits


@pytest.mark.parametrize("seed", range(40))
def test_a_bad_network_neither_loses_nor_doubles_nor_reorders(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    harness = Harness(tmp_path)
    on_the_way: list[tuple[Call, list[OutFrame], bool]] = []
    steps = 0
    while len(harness.sent) < 120 or harness.sender.pending_frames:
        steps += 1
        assert steps < 20_000, "the sender never gets done"
        harness.now_ms += rng.randint(0, 5)
        if len(harness.sent) < 120 and rng.random() < 0.5:
            harness.add(rng.randrange(PARTITIONS))
        for call in list(harness.sender.calls(harness.now_ms)):
            on_the_way.append((call, call.arguments(), True))
            if rng.random() < 0.1:
                on_the_way.append((call, call.arguments(), False))  # Ray does it once more
        if not on_the_way:
            continue
        call, frames, first = on_the_way.pop(rng.randrange(len(on_the_way)))
        if rng.random() < 0.15 and first:  # lost before or after it was done
            if rng.random() < 0.5:
                harness.deliver(frames)
            harness.sender.failed(call, UsageError("the network"), harness.now_ms)
            continue
        answers = harness.deliver(frames)
        if first:
            harness.sender.answered(call, answers, harness.now_ms)
    assert harness.notes.settled.keys() == harness.sent.keys()
    for partition in range(PARTITIONS):
        sent = [payload for p, payload in harness.sent.values() if p == partition]
        assert harness.payloads(partition) == sent
    for index, (partition, payload) in harness.sent.items():
        offset = harness.notes.settled[index]
        assert isinstance(offset, int)
        assert contents(harness.logs[partition])[offset] == payload
    assert harness.sender.pending_bytes == 0
    harness.close()


def test_no_more_is_under_way_than_allowed(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    for _ in range(40):
        harness.add(0)
    calls = list(harness.sender.calls(NOW_MS))
    assert [len(call.frames) for call in calls] == [3, 3, 3]
    assert list(harness.sender.calls(NOW_MS)) == []
    harness.sender.answered(calls[0], harness.deliver(calls[0].arguments()), NOW_MS)
    assert len(list(harness.sender.calls(NOW_MS))) == 1
    harness.close()


def test_small_appends_gather_while_an_answer_is_awaited(tmp_path: Path) -> None:
    harness = Harness(tmp_path, sender_limits(call_bytes_min=100_000))
    harness.add(0)
    (first,) = harness.sender.calls(NOW_MS)
    for _ in range(5):
        harness.add(0)
        harness.add(2)
    harness.add(1)
    (other,) = harness.sender.calls(NOW_MS)
    assert other.buffer == 1, "each buffer by itself"
    assert list(harness.sender.calls(NOW_MS)) == []
    harness.sender.answered(first, harness.deliver(first.arguments()), NOW_MS)
    (gathered,) = harness.sender.calls(NOW_MS)
    assert len(gathered.frames) == 10
    harness.close()


def test_a_waiting_call_holds_up_no_other_partition(tmp_path: Path) -> None:
    harness = Harness(tmp_path, sender_limits(call_bytes_min=100_000))
    harness.add(0)
    (call,) = harness.sender.calls(NOW_MS)
    assert call.wait_ms(NOW_MS) == 100
    harness.sender.answered(call, [Refused(0, PartitionFull("full"))], NOW_MS)
    (call,) = harness.sender.calls(NOW_MS + 10)
    assert call.wait_ms(NOW_MS) == 2_000
    assert call.wait_ms(NOW_MS + 29_000) == 800, "the answer must come before the deadline"
    harness.add(2)
    (other,) = harness.sender.calls(NOW_MS + 10)
    assert [frame.partition for frame in other.frames] == [2]
    harness.close()


def test_no_more_of_a_partition_is_under_way_than_its_log_remembers(tmp_path: Path) -> None:
    harness = Harness(tmp_path, sender_limits(call_frames_max=50, call_bytes_min=1))
    for _ in range(200):
        harness.add(0)
    assert [len(call.frames) for call in harness.sender.calls(NOW_MS)] == [50, ANSWERS_MAX - 50]
    harness.close()


def test_a_full_partition_holds_up_only_itself(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    for partition in (0, 2):
        harness.add(partition)
    (call,) = harness.sender.calls(NOW_MS)
    answers = harness.deliver(call.arguments())
    harness.sender.answered(call, [Refused(0, PartitionFull("full")), answers[1]], NOW_MS)
    assert harness.notes.settled == {1: 0}
    assert "partition 0 holds most" in harness.sender.trouble()
    assert "full" in harness.sender.trouble()
    assert list(harness.sender.calls(NOW_MS)) == [], "not again at once"
    soon = harness.sender.next_look_ms()
    assert soon is not None and NOW_MS < soon <= NOW_MS + 50
    (again,) = harness.sender.calls(soon)
    harness.sender.answered(again, harness.deliver(again.arguments()), soon)
    assert harness.notes.settled == {1: 0, 0: 0} or harness.notes.settled[0] is not None
    assert harness.sender.trouble() == ""
    harness.close()


def test_there_is_nothing_to_look_for_while_all_calls_are_under_way(tmp_path: Path) -> None:
    harness = Harness(tmp_path, sender_limits(inflight_appends_max=1, append_timeout_ms=5_000))
    harness.add(0)
    (call,) = harness.sender.calls(NOW_MS)
    harness.sender.answered(call, [Refused(0, PartitionFull("full"))], NOW_MS)
    harness.add(2)
    assert len(list(harness.sender.calls(NOW_MS))) == 1
    assert harness.sender.next_look_ms() == NOW_MS + 10
    assert list(harness.sender.calls(NOW_MS + 10)) == []
    assert harness.sender.next_look_ms() == NOW_MS + 5_000, "an answer or the deadline, no spinning"
    harness.close()


def test_a_frame_that_is_given_up_leaves_no_hole_in_the_numbers(tmp_path: Path) -> None:
    harness = Harness(tmp_path, sender_limits(append_timeout_ms=100))
    for _ in range(3):
        harness.add(0)
    (call,) = harness.sender.calls(NOW_MS)
    harness.sender.answered(call, [Refused(0, PartitionFull("full"))] * 3, NOW_MS)
    harness.now_ms = NOW_MS + 99
    harness.add(0)
    harness.sender.expire(NOW_MS + 100)
    assert [type(harness.notes.settled[i]) for i in range(3)] == [PartitionFull] * 3
    harness.now_ms = NOW_MS + 150
    harness.pump()
    assert harness.notes.settled[3] == 0
    assert harness.sender.epochs_raised == 1
    harness.close()


def test_an_unknown_outcome_is_told_as_such_and_its_late_call_is_fenced(tmp_path: Path) -> None:
    harness = Harness(tmp_path, sender_limits(append_timeout_ms=100))
    harness.add(0)
    (silent,) = harness.sender.calls(NOW_MS)
    harness.sender.expire(NOW_MS + 100)
    told = harness.notes.settled[0]
    assert isinstance(told, DeadlineExceeded)
    assert "may or may not be in the log" in str(told)
    harness.now_ms = NOW_MS + 101
    harness.add(0)
    (call,) = harness.sender.calls(harness.now_ms)
    assert call.wait_ms(harness.now_ms) == 0, "for a number that may never come nobody waits"
    harness.sender.answered(call, harness.deliver(call.arguments()), harness.now_ms)
    harness.pump()
    (late,) = harness.deliver(silent.arguments())
    assert isinstance(late, Refused) and isinstance(late.error, ProducerFenced)
    harness.sender.answered(silent, [late], harness.now_ms)
    assert harness.payloads(0) == [b"1"]
    harness.close()


def test_a_log_that_lost_what_it_acknowledged_does_not_stop_the_producer(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    for _ in range(3):
        harness.add(0)
        (call,) = harness.sender.calls(NOW_MS)
        harness.sender.answered(call, harness.deliver(call.arguments()), NOW_MS)
    harness.logs[0].abandon()
    harness.logs[0] = open_log(tmp_path / "0", MEMORY)
    harness.add(0)
    harness.add(0)
    for _ in range(3):
        for call in list(harness.sender.calls(NOW_MS)):
            harness.sender.answered(call, harness.deliver(call.arguments()), NOW_MS)
    assert harness.sender.pending_frames == 0
    assert harness.payloads(0) == [b"3", b"4"]
    assert harness.sender.epochs_raised == 1
    harness.close()


def test_a_final_refusal_is_told_at_once(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    harness.add(1)
    (call,) = harness.sender.calls(NOW_MS)
    harness.sender.answered(call, [Refused(1, ProducerFenced("newer"))], NOW_MS)
    assert isinstance(harness.notes.settled[0], ProducerFenced)
    harness.close()
