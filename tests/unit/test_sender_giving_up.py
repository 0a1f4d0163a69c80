"""Frames that are given up, or come late: nothing is doubled, nothing overtakes."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from pxrs_ray.data.protocol import OutFrame, Refused
from pxrs_ray.errors import (
    DeadlineExceeded,
    LeaseOver,
    PartitionFull,
    ProducerFenced,
    PxrsError,
    UsageError,
)
from pxrs_ray.producer.sender import Call
from tests.logs import NOW_MS, contents
from tests.senders import Harness
from tests.settings import sender_limits


def test_what_came_in_before_an_earlier_frame_was_given_up_is_not_appended_again(
    tmp_path: Path,
) -> None:
    harness = Harness(tmp_path, sender_limits(append_timeout_ms=100))
    harness.add(0)
    (first,) = harness.sender.calls(harness.now_ms)
    harness.deliver(first.arguments())
    harness.now_ms = NOW_MS + 90
    harness.sender.failed(first, UsageError("the reply is lost"), harness.now_ms)
    harness.add(0)
    harness.now_ms = NOW_MS + 100
    (both,) = harness.sender.calls(harness.now_ms)
    assert len(both.frames) == 2
    harness.deliver(both.arguments())
    harness.sender.expire(harness.now_ms)
    harness.now_ms += 5
    harness.sender.failed(both, UsageError("killed before it answered"), harness.now_ms)
    harness.now_ms += 50
    harness.pump()
    assert isinstance(harness.notes.settled[0], DeadlineExceeded)
    assert harness.notes.settled[1] == 1
    assert harness.payloads(0) == [b"0", b"1"]
    assert harness.sender.epochs_raised == 0, "there was no hole"
    harness.close()


def test_a_late_call_that_comes_before_the_new_epoch_is_not_doubled_by_it(tmp_path: Path) -> None:
    harness = Harness(tmp_path, sender_limits(append_timeout_ms=100))
    harness.add(0)
    harness.now_ms = NOW_MS + 50
    for _ in range(2):
        harness.add(0)
    (late,) = harness.sender.calls(harness.now_ms)
    doubled = late.arguments()  # on its way once more, by Ray's doing
    harness.sender.failed(late, UsageError("the network"), harness.now_ms)
    harness.now_ms = NOW_MS + 100
    harness.sender.expire(harness.now_ms)
    harness.add(0)
    (asked,) = harness.sender.calls(harness.now_ms)
    harness.sender.answered(asked, harness.deliver(asked.arguments()), harness.now_ms)
    assert harness.sender.epochs_raised == 1
    harness.deliver(doubled)
    harness.pump()
    assert harness.payloads(0) == [b"0", b"1", b"2", b"3"]
    assert [harness.notes.settled[i] for i in (1, 2, 3)] == [1, 2, 3]
    harness.deliver(doubled)
    harness.deliver(asked.arguments())
    assert harness.payloads(0) == [b"0", b"1", b"2", b"3"]
    harness.close()


@pytest.mark.parametrize(
    ("trouble", "told"), [(LeaseOver, DeadlineExceeded), (PartitionFull, PartitionFull)]
)
def test_a_refusal_that_may_pass_is_tried_until_the_deadline_and_told_as_that(
    tmp_path: Path, trouble: type[PxrsError], told: type[PxrsError]
) -> None:
    harness = Harness(tmp_path, sender_limits(append_timeout_ms=100))
    harness.add(0)
    tries = 0
    while not harness.notes.settled:
        for call in list(harness.sender.calls(harness.now_ms)):
            tries += 1
            # The answer to the last try comes after the deadline, before anybody looks at the time.
            harness.now_ms += 40
            refused = [Refused(0, trouble("its coordinator has not confirmed it"))]
            harness.sender.answered(call, refused, harness.now_ms)
        harness.now_ms += 1
    assert tries == 3 and harness.now_ms > NOW_MS + 100
    error = harness.notes.settled[0]
    assert type(error) is told and "its coordinator has not confirmed it" in str(error)
    harness.close()


@pytest.mark.parametrize("seed", range(60))
def test_giving_up_in_a_bad_network_doubles_and_reorders_nothing(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    limits = sender_limits(
        inflight_appends_max=3, call_frames_max=4, call_bytes_min=1, append_timeout_ms=120
    )
    harness = Harness(tmp_path, limits)
    late: list[list[OutFrame]] = []
    flying: list[Call] = []
    while len(harness.sent) < 60 or harness.sender.pending_frames:
        harness.now_ms += rng.randint(0, 20)
        if len(harness.sent) < 60 and rng.random() < 0.5:
            harness.add(rng.randrange(2))
        harness.sender.expire(harness.now_ms)
        flying.extend(harness.sender.calls(harness.now_ms))
        if not flying:
            continue
        call = flying.pop(rng.randrange(len(flying)))
        if harness.now_ms % 400 < 200:  # nothing gets through: it comes later, if ever
            late += [call.arguments()] * (rng.random() < 0.5)
            if rng.random() < 0.7:
                harness.sender.failed(call, UsageError("the network"), harness.now_ms)
            continue
        fate = rng.random()
        if fate < 0.05:
            continue  # never answered
        if fate < 0.2:
            late.append(call.arguments())
        if fate < 0.3:
            harness.sender.failed(call, UsageError("the network"), harness.now_ms)
        elif fate < 0.35:
            refused = [Refused(f.partition, UsageError("final")) for f in call.frames[:1]]
            answers = refused + harness.deliver(call.arguments()[1:])
            harness.sender.answered(call, answers, harness.now_ms)
        else:
            harness.sender.answered(call, harness.deliver(call.arguments()), harness.now_ms)
        if late and rng.random() < 0.4:
            harness.deliver(late.pop(rng.randrange(len(late))))
    for frames in late:
        harness.deliver(frames)
    judge(harness)
    harness.close()


def judge(harness: Harness) -> None:
    """Nothing twice, nothing out of order, nothing acknowledged that is not there."""
    for partition in range(2):
        kept = [int(payload) for payload in harness.payloads(partition)]
        assert kept == sorted(set(kept)), "doubled, or out of order"
    for index, (partition, payload) in harness.sent.items():
        told = harness.notes.settled[index]
        if told is None:
            assert payload in harness.payloads(partition)
        if isinstance(told, int):
            assert contents(harness.logs[partition])[told] == payload
    assert harness.sender.pending_bytes == 0


def test_a_producer_whose_identity_was_taken_over_ends_whole(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    for partition in (0, 1, 2):
        harness.add(partition)
    calls = list(harness.sender.calls(NOW_MS))
    refused = [Refused(frame.partition, ProducerFenced("newer")) for frame in calls[0].frames]
    harness.sender.answered(calls[0], refused, NOW_MS)
    assert {type(told) for told in harness.notes.settled.values()} == {ProducerFenced}
    assert len(harness.notes.settled) == 3 and harness.sender.pending_bytes == 0
    harness.add(0)
    assert isinstance(harness.notes.settled[3], ProducerFenced)
    assert list(harness.sender.calls(NOW_MS)) == []
    harness.sender.answered(calls[1], harness.deliver(calls[1].arguments()), NOW_MS)
    harness.close()
