"""Replicated logs under faults: what clients saw of them, and how long they had to wait."""

from __future__ import annotations

import pytest

from tests.simulation.replicas.group import ReplicaGroup, broken_in, drawn
from tests.simulation.replicas.kept import FAULTS

RUNS = 24
RUNS_OF_A_FAULT = 8
# A dead replica is missed for as long as its coordinator waits to hear of it, and a little more.
PAUSE_MAX_MS = 800
WATCHED_MS = 3_000


def test_no_promise_breaks_whatever_fails() -> None:
    broken = {seed: found for seed in range(RUNS) if (found := broken_in(seed))}
    assert not broken


@pytest.mark.parametrize("fault", FAULTS)
def test_no_promise_breaks_where_one_fault_comes_often(fault: str) -> None:
    seeds = range(1_000, 1_000 + RUNS_OF_A_FAULT)
    broken = {seed: found for seed in seeds if (found := broken_in(seed, (fault, "kill")))}
    assert not broken


def test_no_promise_breaks_where_everything_is_synced_and_everybody_loses_power() -> None:
    faults = ("power_cut", "network")
    broken = {
        seed: found
        for seed in range(2_000, 2_000 + RUNS)
        if (found := broken_in(seed, faults, synced_only=True, fault_ms=90))
    }
    assert not broken


@pytest.mark.parametrize("who", ["leader", "follower"])
@pytest.mark.parametrize("replicas", [2, 3])
def test_a_replica_that_is_gone_for_good_holds_up_nobody_for_long(who: str, replicas: int) -> None:
    group = ReplicaGroup(1, drawn(1, replicas=replicas, min_isr=1, weights={"network": 1e-9}))
    world = group.world
    group.heal()
    for producer in group.producers:
        producer.sending = True
    world.run_until(1_000)
    leads = group.registry.placement.leader
    gone = leads if who == "leader" else next(d for d in group.disks if d != leads)
    group.processes[gone].crash()
    longest_ms = before = 0
    for now_ms in range(1_000, WATCHED_MS, 20):
        world.run_until(now_ms)
        longest_ms = max(longest_ms, group.waited_ms())
        before = max(before, len(group.registry.placement.isr))
    assert longest_ms <= PAUSE_MAX_MS
    assert group.waited_ms() < PAUSE_MAX_MS / 2, "and it goes on after that"
    assert (before, len(group.registry.placement.isr)) == (replicas, replicas - 1)
    assert not group.broken


def test_one_replica_acknowledges_by_itself_and_less_than_the_least_nothing() -> None:
    alone = ReplicaGroup(2, drawn(2, replicas=1, min_isr=1, weights={"network": 1e-9}))
    alone.world.run_until(1_000)
    assert alone.waited_ms() < 100
    two = ReplicaGroup(2, drawn(2, replicas=2, min_isr=2, weights={"network": 1e-9}))
    two.world.run_until(1_000)
    follower = next(d for d in two.disks if d != two.registry.placement.leader)
    two.processes[follower].crash()
    two.world.run_until(WATCHED_MS)
    assert two.waited_ms() > 1_000
