"""A handler that says when to try again: no failed attempt, and nobody else waits."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from pxrs_ray import RetryAfter, UsageError
from pxrs_ray.config import ByKey, Packs
from pxrs_ray.model import Progress
from pxrs_ray.processing.in_order import InOrder, PauseUntil, RunOn
from pxrs_ray.processing.quarantine_state import Parked, Quarantine
from pxrs_ray.processing.redrive import GiveAgain, Redrive
from pxrs_ray.processing.retry_rules import Deferred, FailurePolicy, RetryRules, outcome
from tests.unit.topologies import running, send, told


class Limited:
    """Asks for more time as often as it is told to, each time for 30 seconds."""

    def __init__(self, **times: int) -> None:
        self.times, self.seen = times, list[str]()

    def __call__(self, message: Any) -> None:
        name = message.payload.decode()
        self.seen.append(name)
        if self.times.get(name, 0):
            self.times[name] -= 1
            raise RetryAfter(30, "too many requests")


def test_other_keys_go_on_and_the_key_keeps_its_order() -> None:
    limited = Limited(a1=3)
    with running(limited, processing=ByKey(parallelism=2), attempts_max=2) as t:
        for number in (1, 2):
            for key in "abc":
                t.send("q", key, f"{key}{number}")
        t.run_until_idle()
        assert limited.seen == ["a1", "b1", "c1", "b2", "c2"]
        t.advance(29.9)
        assert len(limited.seen) == 5
        t.advance(60.5)
        assert limited.seen[5:] == ["a1", "a1", "a1", "a2"] and t.lag("g") == 0
        assert {attempt for _, attempt, _ in told(t)} == {1}, "it never failed"
        assert t.given_up("g") == []


def test_in_order_the_partition_waits_and_nothing_is_given_up() -> None:
    limited = Limited(a=2)
    with running(limited, attempts_max=1, failure_policy="skip", partitions=1) as t:
        send(t, "a", "b")
        t.advance(59.9)
        assert limited.seen == ["a", "a"] and t.lag("g") == 2
        t.advance(0.2)
        assert limited.seen == ["a", "a", "a", "b"] and t.given_up("g") == []


def test_in_a_pack_it_is_a_failure_as_any_other() -> None:
    limited = Limited(a=1)
    with running(limited, processing=Packs(processing_strategy="retry_failed")) as t:
        send(t, "a", "b")
        t.advance(20)
        assert sorted(limited.seen) == ["a", "a", "b"] and t.lag("g") == 0


def test_a_run_begins_again_at_the_message_that_waits() -> None:
    rules = RetryRules(1, 10, 100, FailurePolicy.SKIP)
    order = InOrder(
        Progress(0), rules, "interval", 100, lambda: None, wants_batch=False, began_s=0.0
    )
    order.took(0, 4)
    order.ran(2, outcome(RetryAfter(5)), 1.0)
    assert order.next(5.9) == PauseUntil(6.0) and order.next(6.0) == RunOn(2, 4)
    assert order.progress(lambda: -1) == Progress(2, 0)


def test_what_is_re_driven_waits_too_and_stays_first() -> None:
    state = Quarantine()
    steps = Redrive(state, RetryRules(1, 10, 100, FailurePolicy.QUARANTINE))
    entry = Parked(0, 7, 1, "broken", 0)
    assert steps.failed(GiveAgain(b"k", entry, 2), outcome(RetryAfter(5)), 1.0) is None
    assert steps._failed == 0 and steps._until_s == 6.0, "it has not failed"


def test_what_it_says_is_checked_and_travels() -> None:
    said = outcome(RetryAfter(0.25, "busy"))
    assert isinstance(said, Deferred) and said.delay_ms == 250 and "busy" in said
    copy = pickle.loads(pickle.dumps(RetryAfter(30, "busy")))
    assert (copy.seconds, copy.why, str(copy)) == (30, "busy", "again in 30 s: busy")
    for wrong in (-1, 604_801, float("nan")):
        with pytest.raises(UsageError, match="RetryAfter takes 0 to 604800 seconds"):
            RetryAfter(wrong)
