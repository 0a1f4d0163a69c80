"""`TestTopology`: commits, crashes, takeovers, and results exactly once."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pxrs_ray.config import ByKey, Ordered, PxrsConfig, QueueConfig
from pxrs_ray.errors import (
    DeadlineExceeded,
    Fenced,
    HandlerError,
    NotFound,
    NotHeld,
    UsageError,
)
from pxrs_ray.sink import create_table
from pxrs_ray.testing import TestTopology
from tests.unit.topologies import config, once, running, send, told

# --- commits and crashes --------------------------------------------------------------------------


def test_an_interval_commits_by_time_and_by_count() -> None:
    with running(print, commit_interval_ms=200, commit_records=3) as t:
        send(t, "1", "2")
        t.run_until_idle()
        assert t.committed("g") == {}
        t.advance(0.199)
        assert t.committed("g") == {}
        t.advance(0.001)
        assert t.committed("g") == {0: 2}
        send(t, "3", "4", "5")
        t.run_until_idle()
        assert t.committed("g") == {0: 5}


def test_the_other_modes_commit_at_once() -> None:
    checkpoints: list[dict[int, int]] = []
    for mode, expected in (("message", [{}, {0: 1}, {0: 2}]), ("batch", [{}, {}, {0: 2}])):
        checkpoints.clear()
        with running(
            lambda m: checkpoints.append(t.committed("g")), processing=Ordered(commit_mode=mode)
        ) as t:
            send(t, "1", "2")
            t.run_until_idle()
            assert [*checkpoints, t.committed("g")] == expected


def test_what_was_not_committed_comes_again_after_a_crash() -> None:
    with running(print) as t:
        send(t, "1", "2")
        t.run_until_idle()
        t.advance(1)
        send(t, "3")
        t.run_until_idle()
        t.crash("g")
        t.run_until_idle()
        assert [each.offset for each in t.delivered("g")] == [0, 1, 2, 2]
        epochs = [each.epoch for each in t.delivered("g")]
        assert epochs[2] < epochs[3]


def test_a_crash_at_the_commit_loses_the_commit() -> None:
    with running(print, processing=Ordered(commit_mode="message")) as t:
        t.crash("g", at_commit=True)
        send(t, "1", "2")
        t.run_until_idle()
        assert [each.offset for each in t.delivered("g")] == [0, 0, 1]
        assert t.committed("g") == {0: 2}


def test_a_crash_ends_the_handler_in_the_middle() -> None:
    steps: list[str] = []

    def handle(message: Any) -> None:
        steps.append("begun")
        if len(steps) == 1:
            try:
                t.crash("g")
            except Exception:
                steps.append("survived")
        steps.append("done")

    with running(handle) as t:
        send(t, "1")
        t.run_until_idle()
        assert steps == ["begun", "begun", "done"]
        assert told(t) == [(0, 1, "crashed"), (0, 2, "done")]


def test_an_async_handler_ends_there_too_and_no_thread_is_left() -> None:
    steps: list[str] = []

    async def handle(message: Any) -> None:
        steps.append("begun")
        if len(steps) == 1:
            t.crash("g")
        steps.append("done")

    with running(handle) as t:
        send(t, "1")
        t.run_until_idle()
        assert steps == ["begun", "begun", "done"]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("pxrs-test")]


@pytest.mark.parametrize(
    "options", [{}, {"processing": ByKey(parallelism=2)}], ids=["in order", "lanes"]
)
def test_a_handler_may_crash_a_consumer_of_another_group(options: dict[str, Any]) -> None:
    left = [1]

    def first(message: Any) -> None:
        t.run_until_idle()  # in the middle of it, the other group's handler ends our consumer

    def other(message: Any) -> None:
        if left:
            left.pop()
            t.crash("first")

    with TestTopology(config(1)) as t:
        t.group("first", first, queue="q", **options)
        t.group("other", other, queue="q", **options)
        send(t, "1")
        t.run_until_idle()
        # The next owner had done it before the handler of the dead one could return.
        assert [each.outcome for each in t.delivered("first")] == ["done", "crashed"]
        assert [each.outcome for each in t.delivered("other")] == ["done"]
        t.advance(1)
        assert t.lag("first") == t.lag("other") == 0


def test_a_message_that_kills_its_process_meets_the_failure_policy() -> None:
    def handle(message: Any) -> None:
        if message.payload == b"poison":
            t.crash("g")

    with running(handle, attempts_max=3, failure_policy="dead_letter") as t:
        send(t, "fine", "poison", "behind")
        t.advance(600)
        poisoned = [each.attempt for each in t.delivered("g") if each.payload == b"poison"]
        assert poisoned == [1, 2, 3]
        (letter,) = t.dead_letters("g")
        assert (
            letter.payload == b"poison" and b"HandlerKilled" in dict(letter.headers)["pxrs-error"]
        )
        assert t.delivered("g")[-1].payload == b"behind" and t.lag("g") == 0


def test_nobody_comes_in_its_place_without_respawn() -> None:
    with running(print, respawn=False) as t:
        t.crash("g")
        send(t, "1")
        assert t.run_until_idle() == 0 and t.lag("g") == 1
        with pytest.raises(NotFound, match="no consumer"):
            t.crash("g")
        t.scale("g", 1)
        assert t.run_until_idle() == 1


# --- takeovers ------------------------------------------------------------------------------------


def test_a_takeover_in_the_middle_of_a_message_voids_what_the_first_owner_does() -> None:
    holds: list[bool] = []

    def lose_it(message: Any) -> None:
        holds.append(message.context.holds())
        t.take_over("g")
        holds.append(message.context.holds())
        t.run_until_idle()  # the new owner works while we are still in the middle

    with running(once(lose_it)) as t:
        send(t, "1", "2")
        t.run_until_idle()
        t.advance(1)
        assert holds == [True, False]
        assert [(e.offset, e.member, e.outcome) for e in t.delivered("g")] == [
            (0, "g-1", "done"),
            (1, "g-1", "done"),
            (0, "g-0", "void"),
        ]
        assert t.committed("g") == {0: 2} and t.lag("g") == 0


def test_who_was_taken_for_dead_by_mistake_is_refused_at_its_commit() -> None:
    def lose_it(message: Any) -> None:
        t.take_over("g", noticed=False)
        assert message.context.holds()  # it has no way to know

    with running(once(lose_it)) as t:
        send(t, "1")
        t.run_until_idle()
        t.advance(1)
        (refused,) = t.refused("g")
        assert refused == (0, t.delivered("g")[0].epoch, 1)
        assert [each.outcome for each in t.delivered("g")] == ["done", "done"]
        assert t.committed("g") == {0: 1}


@pytest.mark.parametrize(
    "options", [{}, {"processing": ByKey(parallelism=2)}], ids=["in order", "lanes"]
)
@pytest.mark.parametrize("policy", ["dead_letter", "stop"])
def test_what_fails_because_the_partition_is_lost_is_no_failed_message(
    policy: str, options: dict[str, Any]
) -> None:
    def lose_it(message: Any) -> None:
        t.take_over("g")
        raise RuntimeError("whatever it was, it is no word on the message")

    with running(once(lose_it), failure_policy=policy, attempts_max=1, **options) as t:
        send(t, "1")
        t.run_until_idle(fail_fast=True)
        assert told(t) == [(0, 1, "void"), (0, 1, "done")]
        assert t.dead_letters("g") == [] and t.given_up("g") == []


def test_the_log_refuses_a_reader_whose_epoch_is_over() -> None:
    with running(print) as t:
        send(t, "1")
        t.run_until_idle()
        (first,) = t.delivered("g")
        t.take_over("g")
        with pytest.raises(Fenced):
            t._queue("q").read("g", 0, first.epoch, 0, 1 << 20)


def test_a_second_takeover_takes_over_from_the_next_owner() -> None:
    def lose_it_twice(message: Any) -> None:
        t.take_over("g")
        t.run_until_idle()
        t.take_over("g")

    with running(once(lose_it_twice)) as t:
        send(t, "1")
        t.run_until_idle()
        told_of = [(each.member, each.outcome) for each in t.delivered("g")]
        assert told_of == [("g-1", "done"), ("g-0", "void"), ("g-2", "done")]
        epochs = [each.epoch for each in t.delivered("g")]
        assert [epoch for _, epoch, _ in t.refused("g")] == epochs[:2] and epochs[2] > epochs[0]
        assert set(t.owners("g").values()) == {"g-2"}


def test_a_takeover_between_messages_loses_what_was_not_committed() -> None:
    with running(print) as t:
        send(t, "1")
        t.run_until_idle()
        t.take_over("g")
        t.run_until_idle()
        assert [(e.offset, e.member) for e in t.delivered("g")] == [(0, "g-0"), (0, "g-1")]
        assert len(t.refused("g")) == 1


def test_a_handler_that_takes_longer_than_a_lease_keeps_it() -> None:
    """Heartbeats go on while handlers run: slow is not dead."""
    with running(once(lambda m: t.advance(60)), lease_ttl_seconds=2) as t:
        send(t, "1")
        t.run_until_idle()
        assert [each.outcome for each in t.delivered("g")] == ["done"]


def test_an_async_handler_can_be_taken_over_from() -> None:
    left = [1]

    async def handle(message: Any) -> None:
        if left:
            left.pop()
            t.take_over("g")
            t.run_until_idle()

    with running(handle) as t:
        send(t, "1")
        t.run_until_idle()
        assert [each.outcome for each in t.delivered("g")] == ["done", "void"]


# --- results exactly once -------------------------------------------------------------------------


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(tmp_path / "results.db", check_same_thread=False)
    create_table(connection)
    connection.execute("CREATE TABLE result (payload TEXT)")
    connection.commit()
    yield connection
    connection.close()


def results(database: sqlite3.Connection) -> list[str]:
    return [payload for (payload,) in database.execute("SELECT payload FROM result")]


def test_a_transaction_is_there_once_after_a_crash_before_the_commit(
    database: sqlite3.Connection,
) -> None:
    def handle(message: Any) -> None:
        with message.transaction(database) as cursor:
            cursor.execute("INSERT INTO result VALUES (:p)", {"p": message.payload.decode()})

    with running(handle) as t:
        send(t, "1", "2")
        t.run_until_idle()
        t.crash("g")
        t.run_until_idle()
        assert len(t.delivered("g")) == 4 and results(database) == ["1", "2"]


def test_a_crash_inside_a_transaction_undoes_it(database: sqlite3.Connection) -> None:
    left = [1]

    def handle(message: Any) -> None:
        with message.transaction(database) as cursor:
            cursor.execute("INSERT INTO result VALUES (:p)", {"p": message.payload.decode()})
            if left:
                left.pop()
                t.crash("g")

    with running(handle) as t:
        send(t, "1")
        t.run_until_idle()
        assert results(database) == ["1"]


@pytest.mark.parametrize(("noticed", "refusal"), [(True, NotHeld), (False, Fenced)])
def test_a_stale_owner_writes_nothing(
    database: sqlite3.Connection, noticed: bool, refusal: type[Exception]
) -> None:
    left, raised = [1], []

    def handle(message: Any) -> None:
        if left:
            left.pop()
            t.take_over("g", noticed=noticed)
            t.run_until_idle()  # the new owner's rows are there
        try:
            with message.transaction(database) as cursor:
                cursor.execute("INSERT INTO result VALUES (:p)", {"p": message.payload.decode()})
        except Exception as error:
            raised.append(type(error))
            raise

    with running(handle) as t:
        send(t, "1")
        t.run_until_idle()
        assert results(database) == ["1"] and raised == [refusal]


def test_what_makes_no_sense_is_refused_in_words() -> None:
    config: Any = {"queues": {"q": {}}}
    with pytest.raises(UsageError, match=r"made of a PxrsConfig, .* not of dict"):
        TestTopology(config)
    with TestTopology(PxrsConfig(queues={"q": QueueConfig()})) as t:
        with pytest.raises(HandlerError, match="must take one argument"):
            t.group("g", lambda message, other: None, queue="q")
        with pytest.raises(UsageError, match="0 to 10000 consumers, not -1"):
            t.group("g", print, queue="q", consumers=-1)
        t.group("g", print, queue="q")
        with pytest.raises(UsageError, match="0 to 10000 consumers, not -2"):
            t.scale("g", -2)
        assert repr(t) == "<TestTopology 'pxrs', groups (consumers): g (1)>"


def test_a_handler_that_feeds_itself_is_told_to_a_user_who_waits_for_its_end() -> None:
    with TestTopology(PxrsConfig(queues={"q": QueueConfig(partitions=1)})) as t:
        t.group("g", lambda message: t.send("q", "k", "again"), queue="q")
        receipt = t.send("q", "k", "first")
        assert repr(receipt) == "<Receipt: on its way>"
        with pytest.raises(DeadlineExceeded, match="after 20 calls: does a handler send messages"):
            t.run_until_idle(calls_max=20)
        assert repr(receipt) == "<Receipt: MessagePlace(partition=0, offset=0)>"
