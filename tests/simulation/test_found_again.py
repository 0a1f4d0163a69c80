"""The page on the simulator says what is true of guards, checkers and commands."""

from __future__ import annotations

from tests.simulation.checkers import CHECKERS
from tests.simulation.feeding.feed_scenario import FEED_FAULTS
from tests.simulation.found_again import (
    BY_GUARD,
    BY_TESTS,
    FOUND_AGAIN,
    IN_SMALL_WORLDS,
    PAGE,
    SMALL,
    SMALL_WORLDS,
    rewritten,
    rows_of,
)
from tests.simulation.guard_runs import ROOT, RUNS_MAX
from tests.simulation.worlds import WORLDS

DEFECTS_MIN = 11


def test_each_defect_that_is_told_as_found_again_has_guards_that_a_checker_notices() -> None:
    assert len(FOUND_AGAIN) >= DEFECTS_MIN
    told = rows_of(PAGE.read_text())
    guards = [guard for defect in FOUND_AGAIN for guard in defect.guards]
    assert sorted(told) == sorted(guards)
    known = {checker.__name__ for checker in CHECKERS}
    for guard, (checker, runs) in told.items():
        assert checker in known and checker in BY_GUARD[guard].seen_by, guard
        assert 0 < runs <= RUNS_MAX, guard


def test_each_defect_that_a_small_world_finds_has_guards_with_tests_of_it() -> None:
    told = rows_of(PAGE.read_text(), SMALL)
    assert sorted(told) == sorted(guard for defect, _ in IN_SMALL_WORLDS for guard in defect.guards)
    for defect, world in IN_SMALL_WORLDS:
        assert world in SMALL_WORLDS and (ROOT / "tests" / "simulation" / world).exists()
        for guard in defect.guards:
            assert BY_GUARD[guard].tests, guard
            assert told[guard][0] == world and 0 < told[guard][1] <= RUNS_MAX, guard


def test_each_defect_that_tests_notice_has_guards_with_tests() -> None:
    for defect in BY_TESTS:
        for guard in defect.guards:
            assert BY_GUARD[guard].tests, guard


def test_the_tables_are_as_they_are_written() -> None:
    page = PAGE.read_text()
    assert rewritten(page, rows_of(page), rows_of(page, SMALL)) == page, (
        "python -m tests.simulation.found_again --rewrite"
    )


def test_the_page_names_the_worlds_and_files_that_there_are() -> None:
    page = PAGE.read_text()
    assert all(f"`{world}`" in page for world in WORLDS)
    assert FEED_FAULTS
    for name in ("simulator/scenario.py", "feeding/feed_scenario.py", "histories.py", "shells.py"):
        assert f"tests/simulation/{name}" in page
        assert (ROOT / "tests" / "simulation" / name).exists()
