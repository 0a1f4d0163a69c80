"""No incarnation is given twice, however many names come and go; and what is kept is bounded."""

from __future__ import annotations

import json

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from pxrs_ray.group import incarnations
from pxrs_ray.group.incarnations import FLOOR, KEPT_MAX, forget, next_above
from pxrs_ray.store.registry import DOCUMENT_CHARS_MAX


def test_names_that_come_once_take_no_room_for_ever() -> None:
    given: dict[str, int] = {}
    for number in range(50_000):
        next_above(given, f"pull-{number:08x}", 0)
        if number % 100 == 0:
            forget(given, ())
    forget(given, ())
    assert len(given) <= KEPT_MAX + 1
    assert len(json.dumps(given)) < DOCUMENT_CHARS_MAX / 2


def test_who_lives_is_never_forgotten_and_who_came_last_is_forgotten_last() -> None:
    given = {f"old-{n}": 5 for n in range(KEPT_MAX + 10)}
    next_above(given, "old-3", 0)
    forget(given, {"old-0", "old-1"})
    assert given["old-0"] == given["old-1"] == 5 and given["old-3"] == 6
    assert "old-2" not in given and given[FLOOR] == 5


@drawn(
    st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 3), st.booleans()), max_size=60)
)
def test_a_former_incarnation_is_older_than_any_new_one(
    steps: list[tuple[str, int, bool]],
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(incarnations, "KEPT_MAX", 2)
        given: dict[str, int] = {}
        newest: dict[str, int] = {}
        for name, ahead, forgets in steps:
            # What the registry has seen, or a member that was lost says, may be ahead of us.
            seen = newest.get(name, 0) + ahead if ahead else 0
            number = next_above(given, name, seen)
            assert number > max(newest.get(name, 0), seen)
            newest[name] = number
            if forgets:
                forget(given, set(list(newest)[-1:]))
