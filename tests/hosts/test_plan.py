"""The long run's plan comes from its seed alone, and has every kind of fault in it."""

from __future__ import annotations

from tests.hosts.faults import WEIGHTS, make_plan


def test_a_seed_is_a_plan() -> None:
    assert make_plan(7, 600) == make_plan(7, 600) != make_plan(8, 600)
    assert make_plan(7, 600)[:20] == make_plan(7, 1_800)[:20]


def test_every_kind_comes_before_any_comes_again() -> None:
    for seed in range(20):
        first = [fault.what for fault in make_plan(seed, 600)][: len(WEIGHTS)]
        assert sorted(first) == sorted(WEIGHTS)


def test_nobody_cuts_the_power_where_that_is_not_promised() -> None:
    assert "power" not in {fault.what for fault in make_plan(7, 3_600, power=False)}


def test_hosts_are_lost_with_their_disks_only_where_there_are_replicas() -> None:
    assert "lose" not in {fault.what for fault in make_plan(7, 3_600)}
    assert "lose" in {fault.what for fault in make_plan(7, 600, replicas=2)}
