"""Logs on two hosts of three: how long partitions stand still when their leader dies, or its host.

As in `bench_hosts`, times are between acknowledgements that witnesses noted on the hosts; as root.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.benchmarks.bench_hosts import COUNT, PER_SECOND, WAIT_S, acknowledged_gaps
from tests.benchmarks.failover import percentile, told
from tests.benchmarks.harness import figure, figures
from tests.hosts.hosts import Hosts
from tests.hosts.world import LEASE_S, Desk, World

EVENTS = int(os.environ.get("REPLICA_EVENTS", "10"))
HOST_EVENTS = max(1, EVENTS // 5)
QUIET_S = 4.0


@contextmanager
def replicated() -> Iterator[World]:
    """Three hosts with Ray, and a settled topology whose logs are on two of them each."""
    with Hosts(COUNT) as hosts:
        hosts.start_ray()
        world = World(hosts, Desk(hosts[0]), replicas=2, durability="interval").deploy()
        world.start()
        world.settled()
        yield world


def places(world: World) -> list[dict[str, Any]]:
    """Where each buffer is led from."""
    found: list[dict[str, Any]] = world.status()["places"]
    return found


def in_sync(world: World) -> bool:
    """Whether no replica lacks anything."""
    return "replicas_behind" not in [one["kind"] for one in world.status()["reports"]]


def of_slot(world: World, slot: int) -> set[int]:
    """The partitions of a slot."""
    return {p for p in range(world.partitions) if p % COUNT == slot}


def wait_acknowledged(world: World, partitions: set[int], since_s: float) -> None:
    """Wait until all of them acknowledged something since then."""
    world.until(
        lambda: partitions <= {a.partition for a in world.acknowledged() if a.at_s > since_s},
        WAIT_S,
        "acknowledgements",
    )


def killed_gaps(world: World) -> list[float]:
    """Leaders' processes are killed: the longest pauses of acknowledgements of their partitions."""
    took: list[float] = []
    with world.load(0, per_second=PER_SECOND):
        for number in range(EVENTS):
            slot = number % COUNT
            world.until(lambda: in_sync(world), WAIT_S, "all replicas are in sync")
            mine, disk = of_slot(world, slot), places(world)[slot]["disk"]
            wait_acknowledged(world, mine, time.monotonic())
            killed_s = time.monotonic()
            world.kill_actor(f"buffer/{slot}/{disk}")
            time.sleep(QUIET_S)  # who looks takes of the same two cores
            wait_acknowledged(world, mine, time.monotonic())
            took += acknowledged_gaps(world, mine, killed_s)
    told("SIGKILL of a leader, longest gap of acknowledgements", took)
    return took


@figures(
    {"replicas.leader_kill_p50_ms": "ms", "replicas.leader_kill_p99_ms": "ms"},
    runs=1,
    warmups=0,
    setup=replicated,
)
def leader_kill(world: World) -> dict[str, float]:
    """A leader's process is killed: half of the pauses, and nearly all, are shorter."""
    took = killed_gaps(world)
    return {
        "replicas.leader_kill_p50_ms": percentile(took, 50),
        "replicas.leader_kill_p99_ms": percentile(took, 99),
    }


@figure("replicas.host_loss_over_lease_p99_ms", unit="ms", runs=1, warmups=0, setup=replicated)
def host_loss(world: World) -> float:
    """A host falls silent for good: the longest pauses of what it led, beyond the lease."""
    took: list[float] = []
    for _ in range(HOST_EVENTS):
        hosts = {host.address: host.index for host in world.hosts}
        led = {one["buffer"]: hosts[one["host"]] for one in places(world)}
        others = {0, world.homes()["coordinator"]}
        lost = next(host for host in led.values() if host not in others)
        mine = {p for slot, at in led.items() if at == lost for p in of_slot(world, slot)}
        with world.load(0, per_second=PER_SECOND):
            wait_acknowledged(world, mine, time.monotonic())
            lost_s = time.monotonic()
            world.hosts.power_off(lost)
            time.sleep(LEASE_S + QUIET_S)
            wait_acknowledged(world, mine, time.monotonic())
            took += acknowledged_gaps(world, mine, lost_s)
            world.hosts.power_on(lost)
            world.hosts.ray_where_missing()
        world.until(lambda: in_sync(world), WAIT_S, "all replicas are in sync")
    told("a host that leads falls silent, longest gap of acknowledgements", took)
    return percentile(took, 99) - LEASE_S * 1_000
