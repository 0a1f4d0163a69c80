"""The gate of a lease: nothing begins when it is over, until the coordinator was heard."""

from __future__ import annotations

import pickle
import sqlite3
import threading
import time
from typing import Any

import pytest

from pxrs_ray.actors.consumer import lease_view as module
from pxrs_ray.actors.consumer.lease_view import MemberLeaseView
from pxrs_ray.consumer.delivery import Delivery, DeliveryContext
from pxrs_ray.errors import NotHeld
from pxrs_ray.group.member_lease import MARGIN_PART, MemberLease, Title
from pxrs_ray.model import Message
from tests.actors.lease_gate import LeaseGate

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


def may(gate: MemberLeaseView) -> bool:
    """Whether work may begin at once; the one that waits is told to stop instead."""
    stopping = threading.Event()

    class AtOnce(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            stopping.set()
            return True

    return gate.may_begin(AtOnce()) and not stopping.is_set()


def test_it_is_counted_from_the_sending_and_only_ever_grows() -> None:
    lease = MemberLease(LEASE_S)
    assert lease.is_over(0.0)
    lease.answered(100.0, LEASE_S)
    end_s = 100.0 + LEASE_S * (1 - MARGIN_PART)
    assert not lease.is_over(end_s) and lease.is_over(end_s + 0.001)
    lease.answered(95.0, LEASE_S)  # an older question, answered late
    assert not lease.is_over(end_s)


def test_nothing_begins_before_the_first_answer_nor_after_the_last_ones_lease(clock: Time) -> None:
    gate = LeaseGate(LEASE_S)
    assert not may(gate) and gate.is_over()
    for _ in range(5):
        gate.answered(clock.now_s, LEASE_S)
        clock.now_s += LEASE_S / 3
        assert may(gate) and not gate.is_over()
    clock.now_s += LEASE_S * (1 - MARGIN_PART)
    assert not may(gate) and gate.is_over()
    gate.answered(clock.now_s, LEASE_S)
    assert may(gate)


def test_an_answer_from_before_a_freeze_proves_nothing(clock: Time) -> None:
    gate = LeaseGate(LEASE_S)
    gate.answered(clock.now_s, LEASE_S)
    sent_s = clock.now_s
    clock.now_s += LEASE_S
    assert not may(gate), "a worker that wakes before the loop does"
    gate.answered(sent_s, LEASE_S)
    assert not may(gate)


def test_a_worker_waits_and_goes_on_by_itself() -> None:
    gate = LeaseGate(LEASE_S)
    answers: list[Any] = []
    worker = threading.Thread(target=lambda: answers.append(gate.may_begin(threading.Event())))
    worker.start()
    worker.join(0.05)
    assert answers == []
    gate.answered(time.monotonic(), LEASE_S)
    worker.join(10)
    assert answers == [True]
    stopped = threading.Event()
    stopped.set()
    assert not gate.may_begin(stopped)


def test_the_tokens_of_a_delivery_are_void_when_its_title_is_over() -> None:
    held = True
    shared = DeliveryContext("q", "g", "m", 1, 0, 7, topology_id="t1", title=Title(lambda: held))
    context = Delivery(Message(0, 3, None, b"", 0), shared).context
    assert context.holds()
    copied = pickle.loads(pickle.dumps(context))
    assert copied == context and not copied.holds(), "nobody keeps a copy up"
    held = False
    assert not context.holds()


def test_a_block_whose_lease_ends_in_it_is_not_committed() -> None:
    held = True
    shared = DeliveryContext("q", "g", "m", 1, 0, 7, topology_id="t1", title=Title(lambda: held))
    message = Delivery(Message(0, 0, None, b"", 0), shared)
    database = sqlite3.connect(":memory:", isolation_level=None)
    database.execute("CREATE TABLE paid (amount INTEGER)")
    with pytest.raises(NotHeld), message.transaction(database) as cursor:
        cursor.execute("INSERT INTO paid VALUES (1)")
        held = False
    with pytest.raises(NotHeld), message.transaction(database):
        raise AssertionError("the block never begins")
    assert database.execute("SELECT count(*) FROM paid").fetchone() == (0,)
    held = True
    with message.transaction(database) as cursor:
        cursor.execute("INSERT INTO paid VALUES (1)")
    assert database.execute("SELECT count(*) FROM paid").fetchone() == (1,)
