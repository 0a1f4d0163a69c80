"""Checkpoints that stand while lag grows: found after the window, and never for who is at work."""

from __future__ import annotations

import pytest

from pxrs_ray.status.stalls import PAUSES, WINDOW_MS, Stall, StallDetector

STEP_MS = 5_000


def look(watch: StallDetector, at_ms: int, checkpoint: int, lag: int | None) -> Stall | None:
    return watch.note(at_ms, {0: (checkpoint, lag)}).get(0)


def test_an_owned_partition_that_stands_while_its_lag_grows_is_told_after_the_window() -> None:
    watch = StallDetector()
    told = {at: look(watch, at, 10, 5 + at // 1_000) for at in range(0, 90_000, STEP_MS)}
    assert all(found is None for at, found in told.items() if at < WINDOW_MS)
    assert told[WINDOW_MS] == Stall(60.0, 60) and told[85_000] == Stall(85.0, 85)
    assert look(watch, 90_000, 11, 94) is None


def test_a_lag_that_does_not_grow_is_told_as_lag_alone() -> None:
    watch = StallDetector()
    assert all(look(watch, at, 10, 5) is None for at in range(0, 200_000, STEP_MS))


@pytest.mark.parametrize("pause_ms", [20_000, 55_000, 120_000, 600_000])
def test_who_works_slowly_and_commits_now_and_then_is_at_work(pause_ms: int) -> None:
    """After its first pause, which nothing can tell from a stall while it lasts."""
    watch = StallDetector()
    told = []
    for at in range(0, 8 * pause_ms, STEP_MS):
        found = look(watch, at, at // pause_ms, 5 + at // 1_000)
        told += [at] if found is not None and at >= pause_ms else []
    assert told == []
    assert pause_ms < WINDOW_MS or PAUSES * pause_ms > WINDOW_MS


def test_a_partition_that_stops_after_it_worked_is_told_by_its_own_pace() -> None:
    watch = StallDetector()
    for number in range(6):
        look(watch, number * 30_000, number, 5)
    stopped_ms = 5 * 30_000
    told = [at for at in range(stopped_ms, stopped_ms + 300_000, STEP_MS) if look(watch, at, 5, at)]
    assert told[0] == stopped_ms + PAUSES * 30_000


def test_what_was_empty_paused_or_unowned_begins_anew() -> None:
    watch = StallDetector()
    look(watch, 0, 10, 0)
    look(watch, 3_600_000, 10, 0)
    assert look(watch, 3_605_000, 10, 500) is None
    assert look(watch, 3_660_000, 10, 900) is None
    assert watch.note(3_664_000, {}) == {}
    assert look(watch, 3_670_000, 10, 1_000) is None
    assert look(watch, 3_725_000, 10, 1_100) is None
    assert look(watch, 3_730_000, 10, 1_200) == Stall(60.0, 200)


def test_what_cannot_be_asked_tells_nothing_and_is_not_forgotten() -> None:
    watch = StallDetector()
    look(watch, 0, 10, 5)
    assert look(watch, 70_000, 10, None) is None
    assert look(watch, 75_000, 10, 50) == Stall(75.0, 45)


def test_a_longer_window_is_kept() -> None:
    watch = StallDetector()
    watch.note(0, {0: (10, 5)}, 180_000)
    assert watch.note(179_000, {0: (10, 50)}, 180_000) == {}
    assert watch.note(180_000, {0: (10, 50)}, 180_000) == {0: Stall(180.0, 45)}
