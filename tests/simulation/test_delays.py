"""Delayed messages come once, not before their time and in order, whoever dies between which steps.

What the tiers themselves promise, and what a message carries through them, stands here too.
"""

from __future__ import annotations

import pytest

from pxrs_ray.data.delay import (
    DELAY_MS_MAX,
    TIER_MS_MIN,
    WAITS_MS,
    DelayedMessage,
    due_at,
    tier_for,
)
from pxrs_ray.data.frame import NOBODY, mark
from pxrs_ray.data.protocol import Heard
from pxrs_ray.errors import UsageError
from pxrs_ray.model import Message
from pxrs_ray.processing.delay_moves import AppendMoved, DelayMoves
from tests.simulation.delay_world import run


@pytest.mark.parametrize("seed", range(40))
def test_each_comes_once_and_in_time_whoever_dies(seed: int) -> None:
    assert run(seed) == []


@pytest.mark.parametrize("delay_ms", [1, 31, 32, 33, 1_000, 60_000, 3_600_000, DELAY_MS_MAX])
def test_the_tiers_of_a_delay_hold_it_as_long_as_it_is_and_hardly_longer(delay_ms: int) -> None:
    found = DelayedMessage(Message(-1, -1, b"k", b"p", 7), 5_000 + delay_ms, 5_000, 5_000, 7)
    tiers: list[int] = []
    tier: int | None = tier_for(delay_ms)
    while tier is not None:
        tiers.append(tier)
        headers, until_ms = found.sent_on(tier, (1, 2))
        assert until_ms == found.until_ms + WAITS_MS[tier]
        found = DelayedMessage.of(Message(tier, 0, b"k", b"p", until_ms, headers))
        tier = found.next_tier
    assert 0 <= found.until_ms - found.due_ms < TIER_MS_MIN
    assert tiers == sorted(tiers, reverse=True) and len(tiers) <= 20
    assert (found.due_ms, found.sent_ms, found.timestamp_ms) == (5_000 + delay_ms, 5_000, 7)
    assert found.message.headers == () and found.place == (1, 2)


def test_headers_of_the_users_own_stay_as_they_are_whatever_they_are_called() -> None:
    own = (("pxrs-due-ms", b"mine"), ("trace", b"1"), ("pxrs-due-ms", b"9"))
    waiting = DelayedMessage(Message(-1, -1, None, b"p", 0, own), 100, 0, 0)
    headers, _ = waiting.sent_on(tier_for(100), None)
    found = DelayedMessage.of(Message(0, 0, None, b"p", 0, headers))
    assert (found.message.headers, found.due_ms) == (own, 100)
    assert found.delivered((3, 4))[0][: len(own)] == own
    assert found.delivered((3, 4))[1] == 100, "dated by when it is due"


def test_what_somebody_else_put_into_a_tier_is_due_at_once() -> None:
    found = DelayedMessage.of(Message(0, 0, b"k", b"p", 5, (("pxrs-until-ms", b"soon"),)))
    assert (found.due_ms, found.until_ms, found.next_tier) == (0, 0, None)


@pytest.mark.parametrize(
    ("delay_s", "deliver_at_ms"),
    [
        (None, None),
        (1, 1),
        (-1, None),
        (float("nan"), None),
        (float("inf"), None),
        (True, None),
        ("1", None),
        (40_000_000, None),
        (None, 1.5),
        (None, 10**15),
    ],
)
def test_delays_that_are_none_are_refused(delay_s: object, deliver_at_ms: object) -> None:
    with pytest.raises(UsageError, match=r"delay_s|deliver_at_ms"):
        due_at(delay_s, deliver_at_ms, 0)  # type: ignore[arg-type]
    assert due_at(1.5, None, 100) == 1_600 and due_at(None, 99, 100) == 99


def test_a_log_that_lost_its_newest_frames_is_gone_on_with_where_it_stands() -> None:
    moves = DelayMoves(0, 3, lambda message: 0)
    moves.take([Message(0, at, b"k", b"p", 0) for at in range(2)], 1)
    step = moves.next()
    assert isinstance(step, AppendMoved) and (step.sequence, step.follows) == (0, mark(NOBODY, 0))
    moves.appended(step)
    moves.take([Message(0, 2, b"k", b"p", 0)], 1)
    second = moves.next()
    assert isinstance(second, AppendMoved) and (second.sequence, second.follows) == (1, None)
    moves.refused(second, Heard(3, 0))
    again = moves.next()
    assert isinstance(again, AppendMoved) and (again.sequence, again.messages[0].source) == (0, 2)
    moves.refused(again, None)
    assert moves.next() == again, "a log that has forgotten it takes it as somebody new"
    moves.appended(again)
    assert moves.next() is None


def test_a_clock_that_is_far_ahead_holds_nobody_up() -> None:
    found = DelayedMessage(Message(-1, -1, b"k", b"1", 0), 10_000_040, 10_000_000, 10_000_000)
    headers, until_ms = found.sent_on(0, None)
    moves = DelayMoves(0, 1, lambda message: 0)
    ahead = Message(0, 0, b"k", b"1", until_ms, headers)
    assert moves.take([ahead, Message(0, 1, b"k", b"2", 0)], 1_000) is None
    steps = []
    while (step := moves.next()) is not None:
        assert isinstance(step, AppendMoved)
        steps.append((step.target.is_tier, [each.source for each in step.messages]))
        moves.appended(step)
    assert sorted(steps) == [(False, [1]), (True, [0])]
