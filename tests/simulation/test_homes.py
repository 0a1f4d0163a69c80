"""Homes of logs in trouble: nothing is taken for new, served twice, or lost, and all comes back."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.simulation.homes.run import CLOCKS, FAULTS, LOST, run

RUNS = 25
ONLY = dict.fromkeys(FAULTS, 0.0)


def _failed(weights: Mapping[str, float] | None, runs: int = RUNS) -> list[str]:
    return [f"seed {seed}: {told}" for seed in range(runs) if (told := run(seed, weights).wrong)]


def test_every_promise_is_kept() -> None:
    assert _failed(None) == []


def test_buffers_that_die_and_freeze() -> None:
    weights = {**ONLY, "buffer_crash": 4.0, "buffer_freeze": 2.0, "host_off": 0.5}
    assert _failed({**weights, "network": 1.0}, 10) == []


def test_moves_that_are_cut_off_anywhere() -> None:
    weights = {**ONLY, "move": 12.0, "drain": 2.0, "leader_crash": 1.0, "host_off": 0.7}
    assert _failed({**weights, "buffer_crash": 1.0, "network": 0.5}) == []


def test_hosts_that_come_back_with_another_disk() -> None:
    weights = {**ONLY, "host_off": 5.0, "host_cut": 4.0, "give_up": 3.0, "leader_crash": 1.0}
    assert _failed(weights) == []


def test_registries_that_come_back_older_or_empty() -> None:
    assert _failed(LOST) == []


def test_a_clock_that_is_set_gives_no_host_up() -> None:
    assert _failed({**ONLY, "host_off": 4.0, "clock_jump": 4.0, "leader_crash": 1.0}, 24) == []
    assert _failed(CLOCKS, 8) == []


@pytest.mark.parametrize("seed", [594, 757, 1481, 4529, 16624, 30511])
def test_a_registry_that_forgot_a_home_is_gone_on_with_from_the_newest_logs(seed: int) -> None:
    """The host of the newest logs is there, or away, or goes in the middle of it."""
    assert run(seed).wrong == ()


@pytest.mark.parametrize("seed", [649, 2254, 16856, 30079, 30087])
def test_a_lost_registry_is_begun_again_from_the_newest_logs(seed: int) -> None:
    """Only their older copies are here, or notes of those that have left."""
    assert run(seed).wrong == ()


@pytest.mark.parametrize("seed", [114, 318, 593, 1189, 3942, 4304, 9292, 12090])
def test_what_a_registry_forgot_is_noticed(seed: int) -> None:
    """A loss that was accepted before another one; a process that goes by a coordinator that is
    forgotten; logs that were moved since, and their host away; logs that are away while their
    registry is begun again, or another one restored; two copies that one coordinator had left."""
    assert run(seed).wrong == ()


def test_a_run_does_what_it_should() -> None:
    """Nothing would be shown by runs in which nothing moved and nobody sent."""
    runs = [run(seed) for seed in range(10)]
    assert sum(one.moves for one in runs) >= 5
    assert min(one.acknowledged for one in runs) > 50
    assert len({fault for one in runs for fault in one.faults}) >= len(FAULTS) - 3


@pytest.mark.parametrize("seed", [3, 16])
def test_a_seed_tells_a_run_again(seed: int) -> None:
    assert run(seed) == run(seed)
