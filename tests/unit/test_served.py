"""Whoever calls a buffer that may not serve waits it out, and not for ever."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from ray.exceptions import RayTaskError

from pxrs_ray.actors.buffer.retry_until_served import lease_over, served
from pxrs_ray.data.protocol import Refused
from pxrs_ray.errors import DiskFull, LeaseOver, LogAway

OVER = Refused(0, LeaseOver("no lease"))


def raised_there(error: Exception) -> Exception:
    """An error of a method, as Ray raises it where it was called."""
    made: Exception = RayTaskError("fetch", "trace", error)
    return made


def answers(*each: object) -> Callable[[], object]:
    left = list(each)

    def ask() -> object:
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    return ask


def test_it_is_asked_again_until_it_serves() -> None:
    there = raised_there(LeaseOver("another disk"))
    assert served(answers([OVER], {1: OVER}, there, [7]), 20) == [7]


def test_at_the_deadline_it_is_told_why() -> None:
    with pytest.raises(LeaseOver, match="no lease"):
        served(answers([OVER]), 0.05)


@pytest.mark.parametrize("error", [raised_there(DiskFull("full")), ValueError("wrong")])
def test_any_other_trouble_is_told_at_once(error: Exception) -> None:
    with pytest.raises(type(error)):
        served(answers(error), 20)


@pytest.mark.parametrize("answer", [None, [], {}, 7, [Refused(0, LogAway("away"))], ["x"]])
def test_what_is_an_answer(answer: object) -> None:
    assert lease_over(answer) is None
