"""Logs on two hosts of three: how many messages go, how soon they are acknowledged, and how fast a
third copy is made.

Beside it the same with one copy. Hosts share the processors of this machine; as root.
"""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path

from tests.benchmarks.bench_hosts_path import Path3, rate, three
from tests.benchmarks.harness import figures
from tests.hosts.hosts import Hosts
from tests.hosts.world import Desk, World

PARTITIONS = 8
ACKS, PER_SECOND = 5_000, 1_000
COPIED = int(os.environ.get("REPLICA_MESSAGES", "10000000"))
COPY_S = 500.0
PRODUCER, CONSUMER = 0, 2


class Copies(Path3):
    """A topology whose logs have so many copies, a producer on one host, a consumer on another."""

    def __init__(self, hosts: Hosts, desk: Desk, replicas: int, kind: str = "Meter") -> None:
        self._world = World(
            *(hosts, desk),
            partitions=PARTITIONS,
            buffers=2,
            replicas=replicas,
            durability="interval",
            linger_ms=0,
            lease_ttl_seconds=10.0,
            link_ports="any",
            group={"lease_ttl_seconds": 10.0, "consumers": 1},
        ).deploy()
        self._producer = hosts[PRODUCER]
        self._world.start_at(kind, f"h{CONSUMER}")
        self._world.settled(1)
        self.notes = Path(self._world.notes)

    def in_sync(self, replicas: int) -> bool:
        """Whether every buffer has so many replicas that lack nothing."""
        every = [place["replicas"] for place in self._world.status()["places"]]
        return all(len(found) == replicas and all(r["in_sync"] for r in found) for found in every)

    def set_replicas(self, replicas: int) -> None:
        """From now on there are to be so many."""
        self._world.desk("set_replicas", name=self._world.name, replicas=replicas)

    def kept_bytes(self) -> int:
        """What the leaders keep."""
        return sum(place["bytes"] or 0 for place in self._world.status()["places"])


@figures(
    {
        "replicas.e2e_msgs_per_s": "msgs/s",
        "replicas.one_copy_e2e_msgs_per_s": "msgs/s",
        "replicas.e2e_ratio_to_one_copy": "x",
    },
    runs=1,
    warmups=0,
    setup=three,
)
def end_to_end(stage: tuple[Hosts, Desk]) -> dict[str, float]:
    """Columns through a producer, the buffers and a handler: with two copies, and with one."""
    found = {}
    for replicas in (2, 1):
        path = Copies(*stage, replicas)
        try:
            found[replicas] = rate(path)
        finally:
            path.close()
    return {
        "replicas.e2e_msgs_per_s": found[2],
        "replicas.one_copy_e2e_msgs_per_s": found[1],
        "replicas.e2e_ratio_to_one_copy": found[2] / found[1],
    }


@figures(
    {
        "replicas.ack_p50_ms": "ms",
        "replicas.ack_p99_ms": "ms",
        "replicas.one_copy_ack_p50_ms": "ms",
    },
    runs=1,
    warmups=0,
    setup=three,
)
def acknowledged(stage: tuple[Hosts, Desk]) -> dict[str, float]:
    """From `send` to the acknowledgement at 1,000 a second: with two copies, and with one."""
    found: dict[str, float] = {}
    for replicas, name in ((2, "ack"), (1, "one_copy_ack")):
        path = Copies(*stage, replicas)
        try:
            path.produce("acks", 500, PER_SECOND)
            took_s = path.produce("acks", ACKS, PER_SECOND)["took_s"]
        finally:
            path.close()
        centiles = statistics.quantiles(took_s, n=100)
        found[f"replicas.{name}_p50_ms"] = centiles[49] * 1e3
        found[f"replicas.{name}_p99_ms"] = centiles[98] * 1e3
    del found["replicas.one_copy_ack_p99_ms"]
    return found


@figures(
    {"replicas.catch_up_mb_per_s": "MB/s", "replicas.catch_up_msgs_per_s": "msgs/s"},
    runs=1,
    warmups=0,
    setup=three,
)
def catching_up(stage: tuple[Hosts, Desk]) -> dict[str, float]:
    """A third copy of logs with millions of messages is made, until it is in sync."""
    path = Copies(*stage, 2)
    try:
        sent = path.produce("fill", COPIED)["sent"]
        kept = path.kept_bytes()
        path.set_replicas(3)
        began_s = time.monotonic()
        while not path.in_sync(3):
            assert time.monotonic() < began_s + COPY_S, "it does not catch up"
            time.sleep(0.2)
        took_s = time.monotonic() - began_s
    finally:
        path.close()
    return {
        "replicas.catch_up_mb_per_s": kept / 1e6 / took_s,
        "replicas.catch_up_msgs_per_s": sent / took_s,
    }
