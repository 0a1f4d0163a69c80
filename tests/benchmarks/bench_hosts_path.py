"""Between hosts with networks of their own: how long a message is on its way, and how many go.

A producer on one host, the buffers on another, the consumer on a third; beside it the same without
links, where Ray's calls carry everything, and all of it on one host. As root.
"""

from __future__ import annotations

import itertools
import json
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.benchmarks.harness import figures
from tests.hosts.host import PYTHON
from tests.hosts.hosts import Hosts
from tests.hosts.world import Desk, World

PARTITIONS = 8
MESSAGES = 5_000
PER_SECOND = 1_000
SECONDS = 5.0
WAIT_S = 120.0
WARM = 500
HEAD, FAR = 0, 2

_numbers = itertools.count()


@contextmanager
def three() -> Iterator[tuple[Hosts, Desk]]:
    """Three hosts with Ray."""
    with Hosts(3) as hosts:
        hosts.start_ray()
        yield hosts, Desk(hosts[HEAD])


class Path3:
    """One topology with one buffer, and where its producer and its consumer are."""

    def __init__(self, hosts: Hosts, desk: Desk, kind: str, *, links: bool, together: bool) -> None:
        self._world = World(
            *(hosts, desk),
            partitions=PARTITIONS,
            buffers=1,
            durability="interval",
            linger_ms=0,
            lease_ttl_seconds=10.0,
            link_ports="any" if links else "off",
            group={"lease_ttl_seconds": 10.0, "consumers": 1},
        ).deploy()
        home = self._world.homes()["buffer/0"]
        producer, consumer = [i for i in range(len(hosts)) if i != home]
        self._producer = hosts[home if together else producer]
        at = home if together else consumer
        self._world.start_at(kind, f"h{at}")
        self._world.settled(1)
        self.notes = Path(self._world.notes)

    def produce(self, *arguments: object) -> dict[str, Any]:
        """Run the producer to its end."""
        command = [PYTHON, "-m", "tests.hosts.inside.pace", self._world.name]
        done = self._producer.run([*command, *map(str, arguments)], WAIT_S)
        found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        return found

    def link_calls(self) -> int:
        """How many calls came over links: what is measured is what is said to be."""
        return int(self._world.link_calls())

    def close(self) -> None:
        """Take it away."""
        self._world.close()


def ages_s(path: Path, count: int) -> list[float]:
    """The ages of all of a run's messages."""
    end_s = time.monotonic() + WAIT_S
    while True:
        found = path.read_text().split("\n") if path.exists() else []
        if len(found) > count:
            return [float(line) for line in found[:count]]
        assert time.monotonic() < end_s, f"{len(found)} of {count} messages"
        time.sleep(0.05)


@figures(
    {
        "hosts.latency_p50_ms": "ms",
        "hosts.latency_p99_ms": "ms",
        "hosts.ray_latency_p50_ms": "ms",
        "hosts.ray_latency_p99_ms": "ms",
    },
    runs=3,
    warmups=0,
    setup=three,
)
def latency(stage: tuple[Hosts, Desk]) -> dict[str, float]:
    """From `send` to the handler at 1,000 a second, over links and through Ray."""
    found = {}
    for links, name in ((True, "hosts.latency"), (False, "hosts.ray_latency")):
        path = Path3(*stage, "Stopwatch", links=links, together=False)
        try:
            path.produce("latency", WARM, PER_SECOND)
            ages_s(path.notes / "ages", WARM)
            path.produce("latency", WARM + MESSAGES, PER_SECOND)
            every = ages_s(path.notes / "ages", 2 * WARM + MESSAGES)[2 * WARM :]
            assert bool(path.link_calls()) == links
        finally:
            path.close()
        centiles = statistics.quantiles(every, n=100)
        found[f"{name}_p50_ms"] = centiles[49] * 1e3
        found[f"{name}_p99_ms"] = centiles[98] * 1e3
    return found


def rate(path: Path3) -> float:
    """Messages a second, from the first that is sent to the last that is handled."""
    path.produce("batches", 1.0)
    told = path.produce("batches", SECONDS)
    end_s = time.monotonic() + WAIT_S
    while True:
        rows = [
            (float(at), int(count))
            for file in path.notes.glob("seen-*")
            for at, count in (line.split() for line in file.read_text().splitlines())
        ]
        mine = sorted(row for row in rows if row[0] > told["began_s"])
        if sum(count for _, count in mine) >= told["sent"]:
            return float(told["sent"] / (mine[-1][0] - told["began_s"]))
        assert time.monotonic() < end_s, "messages are missing"
        time.sleep(0.1)


@figures(
    {
        "hosts.e2e_msgs_per_s": "msgs/s",
        "hosts.ray_e2e_msgs_per_s": "msgs/s",
        "hosts.one_host_msgs_per_s": "msgs/s",
        "hosts.e2e_ratio_to_one_host": "x",
        "hosts.ray_e2e_ratio_to_one_host": "x",
    },
    runs=3,
    warmups=0,
    setup=three,
)
def end_to_end(stage: tuple[Hosts, Desk]) -> dict[str, float]:
    """Columns through a producer, a buffer and a handler: on three hosts, and on one."""
    found = {}
    for name, links, together in (
        ("e2e", True, False),
        ("ray_e2e", False, False),
        ("one_host", True, True),
    ):
        path = Path3(*stage, "Meter", links=links, together=together)
        try:
            found[f"hosts.{name}_msgs_per_s"] = rate(path)
            assert bool(path.link_calls()) == (links and not together)
        finally:
            path.close()
    one = found["hosts.one_host_msgs_per_s"]
    found["hosts.e2e_ratio_to_one_host"] = found["hosts.e2e_msgs_per_s"] / one
    found["hosts.ray_e2e_ratio_to_one_host"] = found["hosts.ray_e2e_msgs_per_s"] / one
    return found
