"""An assignor of the user's own shares out; whatever it does, its group goes on."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from pxrs_ray.config import GroupConfig, PxrsConfig
from pxrs_ray.errors import ConfigError, UsageError
from pxrs_ray.group.assignors import AssignmentProblem, assign
from pxrs_ray.group.custom_assignor import _loaded, check_assignor
from pxrs_ray.model import Member
from pxrs_ray.supervision.supervisor import problems_here
from tests.actors.ends import KINDS

MEMBERS = [Member("a", 1), Member("b", 1)]


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    module: Any = ModuleType("shop_spread")
    monkeypatch.setitem(sys.modules, "shop_spread", module)
    _loaded.cache_clear()
    yield module
    _loaded.cache_clear()


def test_a_group_is_shared_out_as_the_function_says(own: Any) -> None:
    asked: list[AssignmentProblem] = []

    def by_rack(problem: AssignmentProblem) -> dict[int, str]:
        asked.append(problem)
        return dict.fromkeys((0, 2), "b")

    own.by_rack = by_rack
    path = GroupConfig(queue="q", assignor="shop_spread:by_rack").assignor
    check_assignor(path)
    assert assign(path, MEMBERS, 4, {1: "a"}) == {0: "b", 2: "b"}
    assert asked[0].current == {1: "a"} and asked[0].partitions == 4
    assert assign(path, [], 4, {}) == {}


@pytest.mark.parametrize("kind", KINDS)
def test_one_that_fails_is_told_and_its_group_goes_on_as_sticky_does(own: Any, kind: str) -> None:
    working = [False]

    def fails(problem: AssignmentProblem) -> dict[int, str]:
        if not working[0]:
            raise KINDS[kind]()
        return {0: "a"}

    own.fails = fails
    path = "shop_spread:fails"
    assert assign(path, MEMBERS, 4, {}) == assign("sticky", MEMBERS, 4, {})
    assert any(path in line and kind in line for line in problems_here())
    working[0] = True
    assert assign(path, MEMBERS, 4, {}) == {0: "a"}
    assert not any(path in line for line in problems_here())


@pytest.mark.parametrize("answer", [None, 7, {9: "a"}, {-1: "a"}, {0: "nobody"}, {"x": "a"}, [1]])
def test_an_answer_that_cannot_be_is_none(own: Any, answer: Any) -> None:
    own.answers = lambda problem: answer
    found = assign("shop_spread:answers", MEMBERS, 4, {})
    assert found == assign("sticky", MEMBERS, 4, {})
    own.answers = lambda problem: {}
    _loaded.cache_clear()
    assert assign("shop_spread:answers", MEMBERS, 4, {}) == {}


def test_one_that_cannot_be_imported_is_refused_at_the_door(own: Any) -> None:
    own.number = 7
    for path in ("not_there:f", "shop_spread:nope", "shop_spread:number"):
        with pytest.raises(UsageError, match="can be imported"):
            check_assignor(path)
    check_assignor("sticky")
    with pytest.raises(ConfigError, match=r"groups\.g\.assignor = 'fair': must be"):
        PxrsConfig(queues={"q": {}}, groups={"g": {"queue": "q", "assignor": "fair"}})  # type: ignore[dict-item]
