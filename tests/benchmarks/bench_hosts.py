"""Three hosts in namespaces: how long things stand still when processes and hosts fail on them.

All times are between notes of witnesses on the hosts, or from a fault to such a note; as root. Ray
holds no worker ready (three hosts share two cores), and notices within seconds that a host is gone.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from tests.benchmarks.failover import percentile, told
from tests.benchmarks.harness import figure
from tests.hosts.hosts import Hosts
from tests.hosts.world import LEASE_S, Desk, World

COUNT = 3
EVENTS = int(os.environ.get("HOSTS_EVENTS", "10"))
POWER_EVENTS = max(1, EVENTS // 5)
PER_SECOND = 100.0
CUT_S = LEASE_S + 3.0
DRAIN_S = 60.0
WAIT_S = 60.0
QUIET_S = 3.0


class Scene:
    """The hosts, a topology, and how to begin one anew where a fault has used it up."""

    def __init__(self, hosts: Hosts) -> None:
        self.hosts = hosts
        self.world = self.begin()

    def begin(self) -> World:
        """A topology with a consumer a host, working."""
        world = World(self.hosts, Desk(self.hosts[0])).deploy()
        world.start()
        world.settled()
        return world

    def renew(self) -> World:
        """Another one, on hosts that are whole."""
        self.world.close()
        self.world.desk.close()
        self.hosts.heal()
        self.hosts.ray_where_missing()
        self.world = self.begin()
        return self.world


@contextmanager
def three_hosts() -> Iterator[Scene]:
    """Three hosts with Ray and a settled topology."""
    with Hosts(COUNT) as hosts:
        hosts.start_ray()
        yield Scene(hosts)


def longest_gap_ms(times_s: Iterable[float], since_s: float) -> float:
    """The longest time between two that ended after `since_s`."""
    gaps = [after - before for before, after in pairwise(sorted(times_s)) if after > since_s]
    return max(gaps) * 1_000


def wait_all(world: World, partitions: set[int], since_s: float, what: str) -> None:
    """Wait until messages of all of them were acknowledged and begun since then."""

    def check() -> bool:
        known = {ack.partition for ack in world.acknowledged() if ack.at_s > since_s}
        return partitions <= known and partitions <= world.handled_since(since_s)

    world.until(check, WAIT_S, what)


def acknowledged_gaps(world: World, partitions: Iterable[int], since_s: float) -> list[float]:
    """The longest gap between acknowledgements of each partition that ended since then."""
    found = world.acknowledged()
    return [
        longest_gap_ms((ack.at_s for ack in found if ack.partition == p), since_s)
        for p in partitions
    ]


def p99(what: str, values: Sequence[float]) -> float:
    """Show the values, and answer their 99th percentile."""
    told(what, values)
    return percentile(values, 99)


@figure("hosts.buffer_restart_p99_ms", unit="ms", runs=1, warmups=0, setup=three_hosts)
def buffer_restart(scene: Scene) -> float:
    """A buffer's process is killed: the longest pause of acknowledgements of its partitions."""
    world, took = scene.world, []
    buffers = [name for name in world.homes() if name.startswith("buffer/")]
    with world.load(0, per_second=PER_SECOND):
        for number in range(EVENTS):
            name = buffers[number % len(buffers)]
            index = int(name.partition("/")[2])
            mine = {p for p in range(world.partitions) if p % len(buffers) == index}
            wait_all(world, mine, time.monotonic(), f"work at {name}")
            killed_s = time.monotonic()
            _, pid = world.kill_actor(name)
            time.sleep(QUIET_S)  # who looks takes of the same two cores
            world.wait_back(name, pid)
            wait_all(world, mine, time.monotonic(), f"work at {name} again")
            took += acknowledged_gaps(world, mine, killed_s)
    return p99("SIGKILL of a buffer on hosts, longest gap of acknowledgements", took)


@figure("hosts.coordinator_restart_p99_ms", unit="ms", runs=1, warmups=0, setup=three_hosts)
def coordinator_restart(scene: Scene) -> float:
    """The coordinator is killed: the time to its next answer about the group."""
    world, took = scene.world, []
    for _ in range(EVENTS):
        before = world.status()["coordinator_started_s"]
        killed_s = time.monotonic()
        world.kill_actor("coordinator")
        world.until(
            lambda: world.status()["coordinator_started_s"] != before,  # noqa: B023
            WAIT_S,
            "a new coordinator",
            0.01,
        )
        took.append((time.monotonic() - killed_s) * 1_000)
        world.settled()
    return p99("SIGKILL of the coordinator on hosts, to its next answer", took)


@figure("hosts.host_back_s", unit="s", runs=1, warmups=0, setup=three_hosts)
def host_back(scene: Scene) -> float:
    """A host is off and on with its disk: from Ray's having its node to work on all its logs."""
    world, hosts, took = scene.world, scene.hosts, []
    for _ in range(POWER_EVENTS):
        going = world.one_to_lose()
        there = world.partitions_of(going)
        with world.load(0, per_second=PER_SECOND):
            wait_all(world, there, time.monotonic(), "work on its logs")
            hosts.power_off(going)
            world.until(lambda: going not in world.homes().values(), WAIT_S, "its end")  # noqa: B023
            hosts.power_on(going)
            there_s = _ray_again(world, going)
            wait_all(world, there, there_s, "work on its logs again")
            first = {
                p: min(
                    one.from_s
                    for one in world.handled()
                    if one.partition == p and one.from_s > there_s
                )
                for p in there
            }
            took.append((max(first.values()) - there_s) * 1_000)
        world.settled()
    return p99("a host off and on, from Ray's node to work on all its logs", took) / 1_000


def _ray_again(world: World, index: int) -> float:
    """Start a host's Ray node; answer when the cluster had it."""
    address = world.hosts[index].address
    process = world.hosts[index].begin_ray(world.hosts[0])
    world.until(lambda: address in world.desk("nodes"), WAIT_S, "Ray has the node", 0.02)
    there_s = time.monotonic()
    process.wait(WAIT_S)
    return there_s


@figure("hosts.cut_takeover_over_lease_p99_ms", unit="ms", runs=1, warmups=0, setup=three_hosts)
def cut_takeover(scene: Scene) -> float:
    """A link is cut: the time beyond the lease to the first message under each new owner."""
    world, hosts, took = scene.world, scene.hosts, []
    for _ in range(EVENTS):
        going = world.one_to_lose()
        status = world.settled()
        epochs = {row["partition"]: row["epoch"] for row in status["partitions"]}
        with world.load(0, per_second=PER_SECOND):
            began_s = time.monotonic()
            wait_all(world, set(range(world.partitions)), began_s, "work")
            mine = {
                one.partition
                for one in world.handled()
                if one.host == f"h{going}" and one.from_s > began_s
            } - world.partitions_of(going)
            cut_s = time.monotonic()
            hosts.cut(going)
            time.sleep(CUT_S)
            hosts.heal()
            took += _taken(world, mine, epochs, cut_s)
            hosts.ray_where_missing()
    return p99("a link cut, to the first message by the new owner", took) - LEASE_S * 1_000


def _taken(world: World, mine: set[int], epochs: dict[int, int], cut_s: float) -> list[float]:
    def first(p: int) -> float | None:
        newer = (
            one.from_s
            for one in world.handled()
            if one.partition == p and one.epoch > epochs[p] and one.from_s > cut_s
        )
        return min(newer, default=None)

    found: list[float] = []
    for p in mine:
        at_s = world.until(_asking(first, p), WAIT_S, f"a new owner of P{p}")
        found.append((at_s - cut_s) * 1_000)
    return found


def _asking(first: Callable[[int], float | None], partition: int) -> Callable[[], Any]:
    return lambda: first(partition)


@figure("hosts.drain_pause_p99_ms", unit="ms", runs=1, warmups=0, setup=three_hosts)
def drain_pause(scene: Scene) -> float:
    """A host is drained: the longest pause of acknowledgements of each partition that moves."""
    took: list[float] = []
    hosts = scene.hosts
    for _ in range(POWER_EVENTS):
        world = scene.renew()
        going = world.one_to_lose()
        there = world.partitions_of(going)
        with world.load(0, per_second=PER_SECOND):
            wait_all(world, there, time.monotonic(), "work on its logs")
            drained_s = time.monotonic()
            hosts.drain(going, DRAIN_S)
            world.until(
                lambda: going not in world.homes().values() and len(world.homes()) == COUNT + 1,  # noqa: B023
                DRAIN_S,
                "its logs elsewhere",
            )
            wait_all(world, there, time.monotonic(), "work on the moved logs")
            took += acknowledged_gaps(world, there, drained_s)
        hosts[going].stop_ray()
    return p99("a host drained, longest gap of acknowledgements of what moves", took)
