"""Kills, freezes and moves under load: how long partitions stand still, and what repeats."""

from __future__ import annotations

import os
import signal
import time
from itertools import pairwise

import ray

from pxrs_ray.actors import names
from tests.benchmarks.failover import (
    LEASE_S,
    PARTITIONS,
    WINDOW_NS,
    Scene,
    epochs,
    hand_over_pauses,
    longest_gaps,
    percentile,
    redelivered,
    scene,
    settled,
    taken_over,
    told,
    until,
)
from tests.benchmarks.harness import figure, figures

CONFIGURED_LEASE_S = 10.0
CALM_S = 0.1
BEFORE_NS = 50_000_000


def _victim(scene: Scene, number: int) -> tuple[int, dict[int, int], list[int]]:
    """A consumer's process, what it owns under which epochs, and what others own."""
    status = settled(scene)
    member = sorted(status.owners)[number % len(status.owners)]
    pid = next(c.pid for c in status.consumers if c.member == member)
    known = epochs(status)
    mine = {p: known[p] for p in status.owners[member]}
    return pid, mine, [p for p in known if p not in mine]


@figures(
    {
        "failover.sigkill_p50_ms": "ms",
        "failover.sigkill_p99_ms": "ms",
        "failover.untouched_pause_p99_ms": "ms",
    },
    runs=1,
    warmups=0,
    setup=scene,
)
def sigkill(scene: Scene) -> dict[str, float]:
    """A consumer's process is killed: the time to the first message by each new owner."""
    took: list[float] = []
    gaps: list[float] = []
    quiet: list[float] = []
    began_ns = time.time_ns()
    for number in range(scene.events):
        pid, mine, others = _victim(scene, number)
        quiet += longest_gaps(scene, time.time_ns() - WINDOW_NS, others)
        at_ns = time.time_ns()
        os.kill(pid, signal.SIGKILL)
        took += taken_over(scene, at_ns, mine).values()
        time.sleep(max(0.0, WINDOW_NS / 1e9 - (time.time_ns() - at_ns) / 1e9))
        gaps += longest_gaps(scene, at_ns, others)
    told("SIGKILL of a consumer to first message by the new owner", took)
    told("untouched partitions, longest gap after a kill", gaps)
    told("the same partitions, longest gap before it", quiet)
    print_repeats("SIGKILL of a consumer", scene, began_ns)
    return {
        "failover.sigkill_p50_ms": percentile(took, 50),
        "failover.sigkill_p99_ms": percentile(took, 99),
        # What a kill adds to the longest gap that the same partitions have without one.
        "failover.untouched_pause_p99_ms": max(0.0, percentile(gaps, 99) - percentile(quiet, 99)),
    }


@figure("failover.freeze_over_lease_p99_ms", unit="ms", runs=1, warmups=0, setup=scene)
def freeze(scene: Scene) -> float:
    """A consumer's process is stopped: the time beyond its lease to the first message anew."""
    took: list[float] = []
    began_ns = time.time_ns()
    for number in range(scene.events):
        pid, mine, _ = _victim(scene, number)
        at_ns = time.time_ns()
        os.kill(pid, signal.SIGSTOP)
        try:
            took += taken_over(scene, at_ns, mine).values()
        finally:
            os.kill(pid, signal.SIGCONT)
    told("SIGSTOP of a consumer to first message by the new owner (lease 1000 ms)", took)
    print_repeats("SIGSTOP of a consumer", scene, began_ns)
    return percentile(took, 99) - LEASE_S * 1_000


@figures(
    {"failover.move_p99_ms": "ms", "failover.move_redelivered": "messages"},
    runs=1,
    warmups=0,
    setup=scene,
)
def moves(scene: Scene) -> dict[str, float]:
    """Consumers leave and join gracefully: how long a partition that moves stands still."""
    settled(scene)
    began_ns = time.time_ns()
    pauses: dict[int, list[float]] = {2: [], 3: []}
    for _ in range(scene.events):
        for consumers, found in pauses.items():
            at_ns = time.time_ns() - BEFORE_NS
            scene.group.scale(consumers)
            settled(scene, consumers, CALM_S)
            found += hand_over_pauses(scene, at_ns)
    for what, consumers in (("leave", 2), ("join", 3)):
        told(f"{what}: last message of the old owner to first of the new one", pauses[consumers])
    return {
        "failover.move_p99_ms": percentile([*pauses[2], *pauses[3]], 99),
        "failover.move_redelivered": redelivered(scene, began_ns),
    }


@figure("failover.coordinator_restart_moves", unit="moves", runs=1, warmups=0, setup=scene)
def coordinator_kills(scene: Scene) -> float:
    """The coordinator is killed again and again: how many ownership changes that causes."""
    lease = {"lease_ttl_seconds": CONFIGURED_LEASE_S}
    scene.topology.apply(scene.topology.config.changed(groups={"g": lease}))
    before = settled(scene)
    began_ns = time.time_ns()
    away: list[float] = []
    gaps: list[float] = []
    for _ in range(scene.events):
        pid = scene.topology.status().coordinator_pid
        at_ns = time.time_ns()
        os.kill(pid, signal.SIGKILL)
        until(lambda: scene.topology.status().coordinator_pid != pid, "a new coordinator")  # noqa: B023
        away.append((time.time_ns() - at_ns) / 1e6)
        time.sleep(0.2)
        gaps += longest_gaps(scene, at_ns, range(PARTITIONS))
    told("SIGKILL of the coordinator to its next answer", away)
    told("all partitions, longest gap after it", gaps)
    print_repeats("SIGKILL of the coordinator", scene, began_ns)
    changes = scene.group.history(after_version=before.version, limit=10_000)
    scene.topology.apply(
        scene.topology.config.changed(groups={"g": {"lease_ttl_seconds": LEASE_S}})
    )
    return float(sum(change.kind != "led" for change in changes))


@figure("failover.buffer_sigkill_p99_ms", unit="ms", runs=1, warmups=0, setup=scene)
def buffer_kills(scene: Scene) -> float:
    """A buffer is killed: the time to the next message of each of its partitions."""
    buffers = [
        ray.get_actor(names.buffer("failover", index), namespace=names.NAMESPACE)
        for index in range(2)
    ]
    settled(scene)
    began_ns = time.time_ns()
    took: list[float] = []
    for number in range(scene.events):
        index = number % 2
        pid = ray.get(buffers[index].ping.remote()).pid
        at_ns = time.time_ns()
        os.kill(pid, signal.SIGKILL)
        until(lambda: ray.get(buffers[index].ping.remote()).pid != pid, "a new buffer")  # noqa: B023
        until(
            lambda: (
                set(scene.trace.rows(time.time_ns() - 100_000_000)["partition"])
                == set(range(PARTITIONS))
            ),
            "messages of all partitions",
        )
        rows = scene.trace.rows(at_ns - 50_000_000)
        for partition in range(index, PARTITIONS, 2):
            times = rows["at"][rows["partition"] == partition]
            gaps = [(b - a) / 1e6 for a, b in pairwise(times) if b > at_ns]
            took.append(float(max(gaps)))
        time.sleep(0.2)
    told("SIGKILL of a buffer, longest gap of its partitions", took)
    print_repeats("SIGKILL of a buffer", scene, began_ns)
    return percentile(took, 99)


def print_repeats(what: str, scene: Scene, since_ns: int) -> None:
    """Say how many messages were processed more than once."""
    rows = len(scene.trace.rows(since_ns))
    print(f"  {what}: {redelivered(scene, since_ns)} of {rows} messages repeated", flush=True)
