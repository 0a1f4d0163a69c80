"""A fan-out service at 256 partitions: stateless routers, workers that hold a part of the table.

    python examples/fanout.py           # route, kill a worker in mid-stream, prove nothing was lost
    python examples/fanout.py migrate   # from replicated to partitioned workers, in four steps
    python examples/fanout.py plan      # how much memory a worker needs, replicated or partitioned

Messages of a channel go to everybody who is subscribed. A *replicated* worker holds the routing
table of all channels; a *partitioned* one only that of its partitions, loads it in `on_prepare`
while the former owner still works, and evicts it in `on_revoked`. A router hashes the channel
(xxHash64, then jump hash) and appends; it holds nothing, so any number may run, and one that dies
is replaced by the group. Deliveries are the second hop; who receives them drops an event id that it
has seen, for a killed worker's last batch is delivered again.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray

from pxrs_ray import DeliveredBatch, PxrsConfig, QueueConfig, Topology, attach, deploy
from pxrs_ray.partitioning import Partitioner

NAME = "fanout"
PARTITIONS = 256
CHANNELS = 1_000
USERS = 500
SUBSCRIBERS = 3
ROUTING = Partitioner(PARTITIONS, "jump", "xxh64", 0)


def subscribers(channel: int) -> list[bytes]:
    """Who is subscribed: stands for the query that a real worker makes when it loads."""
    return [b"user-%d" % ((channel * 7 + n * 131) % USERS) for n in range(SUBSCRIBERS)]


def name_of(channel: int) -> bytes:
    """The id that is hashed."""
    return b"ch-%d" % channel


class Deliveries:
    """The second hop: sends each event to everybody subscribed."""

    def __init__(self) -> None:
        self._producer = attach(NAME).producer("deliveries")

    def send(self, batch: DeliveredBatch, table: dict[bytes, list[bytes]]) -> None:
        """Return when all deliveries of the batch are in the log: only then may it be committed."""
        users, events = [], []
        for channel, event in batch.batch.rows():
            for user in table[channel or b""]:
                users.append(user)
                events.append(event)
        self._producer.send_batch(users, events)
        self._producer.flush(30)

    def close(self) -> None:
        """Give the producer back."""
        self._producer.close()


class ReplicatedWorker:
    """Holds the whole table."""

    def __init__(self) -> None:
        self._table = {name_of(c): subscribers(c) for c in range(CHANNELS)}
        self._deliveries = Deliveries()

    def handle_batch(self, batch: DeliveredBatch) -> None:
        """Deliver each event."""
        self._deliveries.send(batch, self._table)

    def close(self) -> None:
        """Give everything back."""
        self._deliveries.close()


class PartitionedWorker:
    """Holds the table of its partitions only."""

    def __init__(self) -> None:
        self._tables: dict[int, dict[bytes, list[bytes]]] = {}
        self._deliveries = Deliveries()

    def on_prepare(self, partition: int, checkpoint: int) -> None:
        """Load before taking over; the former owner works on meanwhile."""
        mine = [c for c in range(CHANNELS) if ROUTING.partition(name_of(c)) == partition]
        self._tables[partition] = {name_of(c): subscribers(c) for c in mine}

    def on_assigned(self, partition: int, checkpoint: int) -> None:
        """Load now, if a crash left no time before."""
        if partition not in self._tables:
            self.on_prepare(partition, checkpoint)

    def on_revoked(self, partition: int) -> None:
        """Evict."""
        self._tables.pop(partition, None)

    def handle_batch(self, batch: DeliveredBatch) -> None:
        """Deliver each event."""
        self._deliveries.send(batch, self._tables[batch.context.partition])

    def close(self) -> None:
        """Give everything back."""
        self._deliveries.close()


class Router:
    """Hashes and appends, nothing else. Its group's checkpoints move when the appends are safe."""

    def __init__(self) -> None:
        self._producer = attach(NAME).producer("fanout")

    def handle_batch(self, batch: DeliveredBatch) -> None:
        """Route one batch, by column."""
        self._producer.send_batch(batch.batch.keys, batch.batch.payloads)
        self._producer.flush(30)

    def close(self) -> None:
        """Give the producer back."""
        self._producer.close()


class Feed:
    """Publishes events; each is `channel:number`, numbered per channel, which is also its id."""

    def __init__(self, topology: Topology) -> None:
        self._producer = topology.producer("messages")
        self.numbers: dict[int, int] = defaultdict(int)

    def publish(self, events: int) -> None:
        """Return when that many more are in the log."""
        keys, payloads = [], []
        for n in range(events):
            channel = n * 37 % CHANNELS
            keys.append(name_of(channel))
            payloads.append(b"%d:%d" % (channel, self.numbers[channel]))
            self.numbers[channel] += 1
        self._producer.send_batch(keys, payloads)
        self._producer.flush(30)

    def close(self) -> None:
        """Give the producer back."""
        self._producer.close()


def check_deliveries(topology: Topology, numbers: dict[int, int]) -> dict[str, int]:
    """Read every delivery; each user must have each event of its channels, in their order."""
    wanted = SUBSCRIBERS * sum(numbers.values())
    got: dict[tuple[bytes, int], int] = defaultdict(int)
    seen = repeated = 0
    with topology.group("audit", queue="deliveries").consumer() as audit:
        quiet_s = time.monotonic() + 20
        while seen < wanted and time.monotonic() < quiet_s:
            batch = audit.poll(1)
            if batch is None:
                continue
            quiet_s = time.monotonic() + 20
            for user, event in batch.batch.rows():
                channel, number = map(int, event.split(b":"))
                place = (user or b"", channel)
                if number < got[place]:
                    repeated += 1  # its id was seen: a receiver drops it
                    continue
                if number > got[place]:
                    raise AssertionError(f"{place} got {number}, next is {got[place]}")
                got[place] = number + 1
                seen += 1
        audit.commit()
    return {"wanted": wanted, "delivered": seen, "repeated": repeated}


def wait_for(topology: Topology, group: str, timeout_s: float = 60) -> None:
    """Return when a group has passed everything."""
    end_s = time.monotonic() + timeout_s
    while topology.group(group).lag():
        if time.monotonic() > end_s:
            raise TimeoutError(f"group {group} did not finish: {topology.group(group).status()}")
        time.sleep(0.1)


@contextmanager
def running(folder: str) -> Iterator[Topology]:
    """The topology of this example, removed at the end."""
    queues = {
        "messages": QueueConfig(partitions=16),
        "fanout": QueueConfig(partitions=PARTITIONS, strategy="jump", hash_seed=0),
        "deliveries": QueueConfig(partitions=16),
    }
    topology = deploy(PxrsConfig(name=NAME, data_dir=Path(folder), queues=queues, buffers=2))
    try:
        yield topology
    finally:
        topology.shutdown()


def demo(topology: Topology, events: int) -> dict[str, int]:
    """Route, kill a worker in mid-stream, and account for every delivery."""
    workers = topology.group("workers", queue="fanout", prepare_ms=30_000)
    workers.start(PartitionedWorker, consumers=3)
    topology.group("routers", queue="messages").start(Router, consumers=1)
    feed = Feed(topology)
    feed.publish(events // 2)
    victim = workers.status().consumers[0]
    assert victim.pid is not None
    os.kill(victim.pid, signal.SIGKILL)
    feed.publish(events - events // 2)
    feed.close()
    wait_for(topology, "routers")
    wait_for(topology, "workers")
    return check_deliveries(topology, feed.numbers)


def migrate(topology: Topology, events: int) -> dict[str, int]:
    """From replicated to partitioned without a stop; events flow all the time."""
    old = topology.group("replicated", queue="messages").start(ReplicatedWorker, consumers=1)
    feed = Feed(topology)
    feed.publish(events // 3)
    print("1. the router's queue is there: 256 partitions, nobody writes to it yet")
    print("2. partitioned workers start, and load the tables of their partitions")
    topology.group("workers", queue="fanout", prepare_ms=30_000).start(
        PartitionedWorker, consumers=2
    )
    feed.publish(events // 3)
    print("3. the messages' consumer is switched: the old group drains, the router goes on there")
    old.stop()
    routers = topology.group("routers", queue="messages")
    for row in old.status().partitions:
        routers.seek(row.checkpoint, row.partition)
    routers.start(Router, consumers=1)
    print("4. the replicated workers are gone; what they had delivered is not delivered again")
    feed.publish(events - 2 * (events // 3))
    feed.close()
    wait_for(topology, "routers")
    wait_for(topology, "workers")
    return check_deliveries(topology, feed.numbers)


# Routing table sizes that were measured for the service, in GB, by users online.
TABLE_GB = {100_000: 2.0, 500_000: 8.0, 2_000_000: 40.0}


def table_gb(users: int) -> float:
    """The size of the whole routing table, between and beyond the measured points."""
    points = sorted(TABLE_GB.items())
    for (low, small), (high, large) in itertools.pairwise(points):
        if users <= high:
            return max(0.0, small + (large - small) * (users - low) / (high - low))
    return points[-1][1] * users / points[-1][0]


def advice(users: int) -> str:
    """What to run at that many users."""
    size = table_gb(users)
    if users > 500_000:
        return f"{size:.1f} GB: partitioned"
    machine = "" if users < 200_000 else ", on instances of 32 GB or more"
    return f"{size:.1f} GB: replicated{machine}"


def plan() -> None:
    """Print the two tables of the memory planner."""
    print("users online   routing table and advice")
    for users in (100_000, 200_000, 500_000, 1_000_000, 2_000_000):
        print(f"{users:>12}   {advice(users)}")
    print(f"\nworkers   partitions each   GB each at {table_gb(2_000_000):.0f} GB in all")
    for workers in (4, 8, 16, 32):
        share = table_gb(2_000_000) / workers
        print(f"{workers:>7}   {PARTITIONS // workers:>15}   {share:g}")


def main(arguments: list[str]) -> None:
    """See the head of this file."""
    what = arguments[0] if arguments else "demo"
    if what == "plan":
        plan()
        return
    events = int(arguments[1]) if len(arguments) > 1 else 20_000
    if not ray.is_initialized():
        ray.init("local", num_cpus=4, include_dashboard=False, log_to_driver=False)
    run: dict[str, Any] = {"demo": demo, "migrate": migrate}
    with tempfile.TemporaryDirectory() as folder, running(folder) as topology:
        result = run[what](topology, events)
    print(json.dumps(result))
    assert result["delivered"] == result["wanted"], result


if __name__ == "__main__":
    main(sys.argv[1:])
