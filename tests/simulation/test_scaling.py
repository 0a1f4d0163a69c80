"""The scaler in small worlds: it must beat a threshold rule, not swing, and end where it should."""

from __future__ import annotations

import math

import pytest

from pxrs_ray.scaling import Observation, PartitionLoad, Scaler
from tests.settings import scaler_settings
from tests.simulation.scaling_world import (
    Scenario,
    Shipped,
    ThresholdRule,
    Trace,
    compare,
    run,
    scenarios,
)

WORLDS = scenarios()
RESULTS = compare()


def of(name: str) -> tuple[Scenario, Trace, Trace]:
    number = next(i for i, world in enumerate(WORLDS) if world.name == name)
    return (WORLDS[number], *RESULTS[number])


@pytest.mark.parametrize("number", range(len(WORLDS)), ids=[world.name for world in WORLDS])
def test_costs_less_than_a_threshold_rule(number: int) -> None:
    ours, rule = RESULTS[number]
    assert ours.area < rule.area


@pytest.mark.parametrize("number", range(len(WORLDS)), ids=[world.name for world in WORLDS])
def test_never_turns_more_than_twice_a_load_change(number: int) -> None:
    assert RESULTS[number][0].turns <= 2 * WORLDS[number].load_changes


@pytest.mark.parametrize("number", range(len(WORLDS)), ids=[world.name for world in WORLDS])
def test_ends_where_it_should_with_nothing_left(number: int) -> None:
    low, high = WORLDS[number].settles_at
    ours = RESULTS[number][0]
    assert low <= ours.wanted[-1] <= high
    if "saturates" not in ours.scenario:
        assert ours.lag[-1] < 2 * WORLDS[number].per_consumer


def test_a_hot_partition_is_reported_and_does_not_call_for_a_crowd() -> None:
    _, ours, rule = of("hot key")
    assert ours.skewed == {0}
    assert max(ours.wanted) <= 4 < max(rule.wanted)


def test_a_database_that_saturates_is_not_run_over() -> None:
    _, ours, rule = of("database that saturates")
    assert max(ours.wanted) <= 8
    assert max(rule.wanted) == 32


def test_nothing_is_advised_while_a_buffer_is_away() -> None:
    """What it holds would look as if it were done, and the group would shrink."""
    world = WORLDS[3]
    settings = scaler_settings()
    there = run(world, Shipped(settings), consumers=6)
    away = run(world, Shipped(settings, away=lambda second: second < 290), consumers=6)
    assert min(there.wanted[:290]) < 6
    assert set(away.wanted[:290]) == {6}
    assert max(away.wanted) > 6


def test_what_the_load_said_before_does_not_undo_a_number_set_by_hand() -> None:
    world = WORLDS[3]
    grows = run(world, Shipped(scaler_settings()))
    at = next(second for second, wanted in enumerate(grows.wanted) if wanted > 1)
    pinned = run(world, Shipped(scaler_settings(), pins={at: 1}))
    assert pinned.wanted[at] == 1 and set(pinned.wanted[at:]) == {1}
    released = run(world, Shipped(scaler_settings(), pins={at: 1, at + 30: None}))
    assert max(released.wanted[at + 30 :]) > 1


def observed(
    at_s: int, wanted: int, lag: int = 0, end: int = 0, partitions: int = 8
) -> Observation:
    loads = tuple(
        PartitionLoad(p, end, end - lag, 10_000 if lag else 0, "c" if wanted else None)
        for p in range(partitions)
    )
    return Observation(at_s * 1_000, wanted, wanted, loads)


def test_sleeps_when_idle_and_wakes_when_messages_arrive() -> None:
    scaler = Scaler(scaler_settings(consumers_min=0, idle_ms=30_000))
    sizes = {second: scaler.advise(observed(second, 1)).consumers for second in range(40)}
    assert sizes[29] == 1
    assert sizes[31] == 0
    assert scaler.advise(observed(41, 0)).consumers == 0
    assert scaler.advise(observed(42, 0, lag=5, end=5)).consumers >= 1


def test_a_pin_holds_until_it_is_released_and_never_passes_the_partitions() -> None:
    scaler = Scaler(scaler_settings())
    scaler.pin(6)
    assert scaler.advise(observed(0, 1)).consumers == 6
    scaler.pin(99)
    assert scaler.advise(observed(1, 6)).consumers == 8
    scaler.pin(None)
    assert scaler.advise(observed(2, 8)).reason != "pinned by hand"


def test_the_rule_that_we_compare_with_does_scale() -> None:
    """The comparison would be worth nothing against a rule that never moves."""
    trace = run(WORLDS[3], ThresholdRule(500))
    assert max(trace.wanted) > 10
    assert trace.lag[-1] == 0


def test_the_area_ratio_over_all_worlds_is_well_below_one() -> None:
    logs = [math.log(ours.area / rule.area) for ours, rule in RESULTS]
    assert math.exp(sum(logs) / len(logs)) < 0.5


def test_calm_is_noticed_however_unevenly_it_is_looked() -> None:
    scaler = Scaler(scaler_settings(calm_ms=8_000, settle_ms=2_000, idle_ms=1_000_000))
    wanted = 4
    for look in range(1, 60):
        loads = tuple(PartitionLoad(p, look, look, 0, "c") for p in range(8))
        wanted = scaler.advise(Observation(look * 1_037, wanted, wanted, loads)).consumers
    assert wanted == 1
