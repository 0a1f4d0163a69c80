"""Rate limits: what is granted in any minute, whatever is asked for and when."""

from __future__ import annotations

import random

import pytest

from pxrs_ray.group.call_budget import CallBudget


def granted(
    calls: int | None,
    cost: float | None,
    each: float,
    asked: int,
    *,
    late: int = 1,
) -> list[tuple[float, float]]:
    """When calls were granted in three minutes, with their costs, to somebody who asks when told
    to, or now and then `late` times as late."""
    draw, now_ms, found = random.Random(asked), 0.0, []
    budget = CallBudget(now_ms)
    while now_ms < 180_000:
        costs = [each * draw.uniform(0.5, 1.5) for _ in range(asked)]
        count, wait_ms = budget.take(costs, now_ms, calls_per_minute=calls, cost_per_minute=cost)
        found += [(now_ms, one) for one in costs[:count]]
        assert count == asked or wait_ms > 0
        now_ms += max(1.0, wait_ms * draw.choice([1, 1, 1, late]))
    return found


def most_in_a_minute(found: list[tuple[float, float]]) -> tuple[int, float]:
    calls, cost, first = 0, 0.0, 0
    spent = 0.0
    for at, (now_ms, one) in enumerate(found):
        spent += one
        while found[first][0] <= now_ms - 60_000:
            spent -= found[first][1]
            first += 1
        calls, cost = max(calls, at - first + 1), max(cost, spent)
    return calls, cost


@pytest.mark.parametrize("limit", [1, 2, 7, 60, 61, 600, 10_000])
@pytest.mark.parametrize("asked", [1, 40])
def test_no_minute_has_more_calls_and_nearly_as_many_are_made(limit: int, asked: int) -> None:
    found = granted(limit, None, 1.0, asked)
    assert most_in_a_minute(found)[0] <= limit and len(found) >= 0.9 * 3 * limit - 2
    assert most_in_a_minute(granted(limit, None, 1.0, asked, late=20))[0] <= limit


@pytest.mark.parametrize(("limit", "each"), [(600.0, 1.0), (600.0, 90.0), (90_000.0, 1_200.0)])
def test_what_a_minute_costs_is_bounded(limit: float, each: float) -> None:
    for late in (1, 20):
        found = granted(None, limit, each, 10, late=late)
        assert most_in_a_minute(found)[1] <= limit + 1.5 * each
        assert late > 1 or sum(one for _, one in found) >= 0.9 * 3 * limit - each


def test_both_limits_hold_and_no_limit_grants_all() -> None:
    found = granted(30, 60.0, 3.0, 5)
    calls, cost = most_in_a_minute(found)
    assert calls <= 30 and cost <= 60 + 4.5
    assert CallBudget(0).take([1.0] * 9, 5, calls_per_minute=None, cost_per_minute=None) == (9, 0)


def test_who_begins_grants_nothing_at_once_and_a_clock_that_stands_grants_nothing() -> None:
    budget = CallBudget(1_000)
    assert budget.take([0.0], 1_000, calls_per_minute=60, cost_per_minute=None) == (0, 1_000)
    assert budget.take([0.0], 900, calls_per_minute=60, cost_per_minute=None) == (0, 1_000)
    assert budget.take([0.0, 0.0], 9_000, calls_per_minute=60, cost_per_minute=None) == (1, 1_000)


def test_a_call_that_costs_more_than_a_second_holds_goes_and_is_paid_afterwards() -> None:
    budget = CallBudget(0)
    count, _ = budget.take([50.0, 1.0], 5_000, calls_per_minute=None, cost_per_minute=60.0)
    assert count == 1
    count, wait_ms = budget.take([1.0], 5_001, calls_per_minute=None, cost_per_minute=60.0)
    assert count == 0 and 49_000 < wait_ms < 52_000
