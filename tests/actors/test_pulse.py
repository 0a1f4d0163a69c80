"""The pulse: nothing is begun after this process stood still, until the coordinator was heard."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from pxrs_ray.actors import pulse as module
from pxrs_ray.actors.pulse import Pulse

LEASE_S = 10.0


class Time:
    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Time:
    fake = Time()
    monkeypatch.setattr(module, "time", fake)
    return fake


def may(pulse: Pulse) -> bool:
    """Whether work may begin at once; the one that waits is told to stop instead."""
    stopping = threading.Event()

    class AtOnce(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            stopping.set()
            return True

    return pulse.may_begin(AtOnce()) and not stopping.is_set()


def test_as_long_as_it_beats_work_begins(clock: Time) -> None:
    pulse = Pulse()
    assert may(pulse)
    for _ in range(20):
        clock.now_s += LEASE_S / 10
        assert pulse.beat(LEASE_S) and may(pulse)


def test_after_a_freeze_nothing_begins_until_it_is_heard(clock: Time) -> None:
    pulse = Pulse()
    assert pulse.beat(LEASE_S)
    asked_before = pulse.doubts
    clock.now_s += LEASE_S
    assert not may(pulse), "a worker that wakes before the loop does"
    assert not pulse.beat(LEASE_S) and not may(pulse)
    pulse.confirm(asked_before)
    assert not may(pulse), "an answer from before the freeze proves nothing"
    assert pulse.beat(LEASE_S) and not may(pulse)
    pulse.confirm(pulse.doubts)
    assert may(pulse)


def test_a_second_freeze_while_asking_is_another_doubt(clock: Time) -> None:
    pulse = Pulse()
    pulse.beat(LEASE_S)
    clock.now_s += LEASE_S
    pulse.beat(LEASE_S)
    asked = pulse.doubts
    clock.now_s += LEASE_S
    assert not pulse.beat(LEASE_S)
    pulse.confirm(asked)
    assert not may(pulse)
    pulse.confirm(pulse.doubts)
    assert may(pulse)


def test_a_worker_waits_and_goes_on_by_itself() -> None:
    pulse = Pulse()
    pulse.beat(0.02)
    time.sleep(0.05)
    pulse.beat(0.02)
    answers: list[Any] = []
    worker = threading.Thread(target=lambda: answers.append(pulse.may_begin(threading.Event())))
    worker.start()
    worker.join(0.05)
    assert answers == []
    pulse.beat(10.0)
    pulse.confirm(pulse.doubts)
    worker.join(10)
    assert answers == [True]
    stopped = threading.Event()
    stopped.set()
    assert not pulse.may_begin(stopped)
