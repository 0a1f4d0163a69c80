"""`FreezeDetector`: frozen is ended in time, slow never, and who stood still itself judges
nobody."""

from __future__ import annotations

import pytest

from pxrs_ray.supervision.freeze_detector import FreezeDetector, Health, ProcessLook

LEASE_S = 10.0
GAP_MAX_S = 3.0
STOPPED = ProcessLook(answered=False, stopped=True)
MUTE = ProcessLook(answered=False)
WELL = ProcessLook(answered=True, loop_silent_s=0.2)


def first_frozen(
    seen: ProcessLook, seconds: int, judge: FreezeDetector | None = None
) -> int | None:
    judge = judge or FreezeDetector(LEASE_S)
    for second in range(seconds):
        if judge.look(float(second), seen, GAP_MAX_S) is Health.FROZEN:
            return second
    return None


def test_a_stopped_process_is_ended_well_within_its_lease() -> None:
    found = first_frozen(STOPPED, 60)
    assert found is not None and 4 <= found <= LEASE_S / 2 + 1


def test_a_process_that_is_mute_and_not_stopped_gets_three_leases() -> None:
    assert first_frozen(MUTE, 29) is None
    assert first_frozen(MUTE, 60) == 30


def test_a_slow_loop_is_not_a_frozen_process() -> None:
    # It reads a big state for half a minute, or works something off: its pulse is answered.
    assert first_frozen(ProcessLook(answered=True, loop_silent_s=45.0), 600) is None
    assert first_frozen(ProcessLook(answered=True), 600) is None


def test_a_loop_that_never_runs_again_is_ended() -> None:
    assert first_frozen(ProcessLook(answered=True, loop_silent_s=61.0), 2) == 0


def test_one_answer_begins_the_count_anew() -> None:
    judge = FreezeDetector(LEASE_S)
    for second in range(60):
        seen = WELL if second % 4 == 0 else STOPPED
        assert judge.look(float(second), seen, GAP_MAX_S) is not Health.FROZEN


def test_who_stood_still_itself_judges_nobody_by_it() -> None:
    """The machine was paused for a minute: at the next look nobody has answered for long."""
    judge = FreezeDetector(LEASE_S)
    assert [judge.look(float(s), STOPPED, GAP_MAX_S) for s in range(3)] == [Health.MUTE] * 3
    assert judge.look(63.0, STOPPED, GAP_MAX_S) is Health.MUTE
    assert judge.mute_s(63.0) == 0.0
    assert judge.look(64.0, WELL, GAP_MAX_S) is Health.WELL


@pytest.mark.parametrize("lease_s", [0.5, 1.0, 3600.0])
def test_nobody_is_ended_by_fewer_than_three_looks(lease_s: float) -> None:
    found = first_frozen(STOPPED, 10_000, FreezeDetector(lease_s))
    assert found is not None and found >= 2
