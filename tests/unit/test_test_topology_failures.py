"""`TestTopology`: handlers that fail, under every policy and way of processing."""

from __future__ import annotations

from typing import Any

import pytest

from pxrs_ray.config import ByKey, Packs
from tests.unit.topologies import Failing, running, send, told


def test_a_failed_message_comes_again_before_the_next_when_its_pause_is_over() -> None:
    failing = Failing(a=2)
    with running(failing, backoff_ms=100, backoff_ms_max=10_000) as t:
        send(t, "a", "b")
        t.run_until_idle()
        assert failing.seen == ["a"]
        t.advance(0.099)
        assert failing.seen == ["a"]
        t.advance(0.001)
        assert failing.seen == ["a", "a"]
        t.advance(0.2)
        assert failing.seen == ["a", "a", "a", "b"]
        assert told(t) == [(0, 1, "failed"), (0, 2, "failed"), (0, 3, "done"), (1, 1, "done")]


def test_attempts_are_counted_across_a_crash() -> None:
    with running(Failing(a=9), attempts_max=3, failure_policy="skip") as t:
        send(t, "a", "b")
        t.run_until_idle()
        t.advance(0.25)  # the second attempt, and its commit
        t.crash("g")
        t.advance(10)
        assert told(t)[:3] == [(0, 1, "failed"), (0, 2, "failed"), (0, 3, "failed")]
        assert told(t)[3:] == [(1, 1, "done")]
        (given_up,) = t.given_up("g")
        assert (given_up.policy, given_up.offset, given_up.attempts) == ("skip", 0, 3)
        assert given_up.error == "RuntimeError('no a')"


def test_stop_keeps_the_message_and_stands_still() -> None:
    failing = Failing(a=99)
    with running(failing, attempts_max=2, partitions=1) as t:
        send(t, "a", "b")
        t.advance(3_600)
        assert failing.seen == ["a", "a"] and t.committed("g") == {} and t.lag("g") == 2
        assert [each.policy for each in t.given_up("g")] == ["stop"]


def test_dead_letters_go_once_also_when_the_owner_dies_before_its_commit() -> None:
    with running(Failing(a=99), attempts_max=1, failure_policy="dead_letter") as t:
        send(t, "a", "b")
        t.run_until_idle()
        t.crash("g")
        t.run_until_idle()
        assert [each.offset for each in t.delivered("g")] == [0, 1, 0, 1]
        assert [letter.payload for letter in t.dead_letters("g")] == [b"a"]


def test_quarantine_keeps_the_order_of_a_key_and_others_pass() -> None:
    failing = Failing(bad=2)
    with running(failing, attempts_max=1, failure_policy="quarantine", processing="by_key") as t:
        send(t, "bad", "later", key="k")
        send(t, "other", key="o")
        t.run_until_idle()
        assert failing.seen == ["bad", "other"]
        assert [message.payload for message in t.quarantined("g")] == [b"bad", b"later"]
        t.crash("g")  # what is in quarantine outlives its owner
        t.run_until_idle()
        send(t, "last", key="k")
        t.run_until_idle()
        assert t.retry("g", "k") == 0  # it fails once more
        assert t.retry("g") == 3
        assert failing.seen[-4:] == ["bad", "bad", "later", "last"]
        send(t, "flows", key="k")
        t.run_until_idle()
        assert failing.seen[-1] == "flows" and t.quarantined("g") == []


def test_many_keys_at_once_and_one_that_fails_holds_up_only_itself() -> None:
    failing = Failing(a1=1)
    with running(failing, processing=ByKey(parallelism=4)) as t:
        for number in (1, 2):
            for key in "ab":
                t.send("q", key, f"{key}{number}")
        t.run_until_idle()
        assert failing.seen == ["a1", "b1", "b2"]
        t.advance(0.5)
        assert failing.seen[3:] == ["a1", "a2"] and t.lag("g") == 0


def test_what_was_done_out_of_order_is_not_done_again_by_the_next_owner() -> None:
    failing = Failing(a1=1)
    with running(
        failing, processing=ByKey(parallelism=4), backoff_ms=60_000, backoff_ms_max=60_000
    ) as t:
        t.send("q", "a", "a1")
        t.send("q", "b", "b1")
        t.run_until_idle()
        t.advance(1)  # committed: b1 is done above the checkpoint
        t.crash("g")
        t.run_until_idle()
        assert failing.seen == ["a1", "b1", "a1"] and t.lag("g") == 2
        t.advance(1)
        assert t.lag("g") == 0


def test_an_attempt_that_takes_too_long_has_failed() -> None:
    slow = [True]

    def handle(message: Any) -> None:
        if slow:
            slow.pop()
            t.advance(2)

    with running(handle, processing=ByKey(parallelism=1, handler_timeout_ms=1_000)) as t:
        send(t, "1")
        t.run_until_idle()
        t.advance(1)
        assert told(t) == [(0, 1, "timed out"), (0, 2, "done")]


def test_packs_are_judged_when_they_are_over() -> None:
    failing = Failing(b=1)
    with running(
        failing,
        processing=Packs(
            submit_strategy="sequential", processing_strategy="retry_failed", pause_ms=500
        ),
    ) as t:
        send(t, "a", "b", "c")
        t.run_until_idle()
        assert failing.seen == ["a", "b", "c"]
        t.advance(1)
        assert failing.seen == ["a", "b", "c", "b"] and t.lag("g") == 0


def test_fail_fast_raises_what_the_handler_raised() -> None:
    with running(Failing(a=1)) as t:
        send(t, "a")
        with pytest.raises(RuntimeError, match="no a"):
            t.run_until_idle(fail_fast=True)
        t.advance(1)
        assert t.run_until_idle(fail_fast=True) == 0
