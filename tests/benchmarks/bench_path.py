"""A user's path, through the public API alone: a producer, a group, and what its handler gets.

Two buffers, two consumers, 16 partitions, 100-byte payloads, durability "interval", SQLite. A run
is over when the registry says that everything is done, which is up to a commit interval later.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from tests.benchmarks.dataplane import BUFFERS, CHUNK, PARTITIONS, QUEUE, Load, cluster
from tests.benchmarks.harness import figure, figures

CONSUMERS = 2
MESSAGES = 5_000_000
# Of what is slower: a run of it takes a few seconds too.
SLOW_MESSAGES = 400_000
LOOK_S = 0.05
WAIT_S = 120.0
COMMIT_EVERY_S = 0.2

_numbers = count()


def look_at(message: Any) -> None:
    """A handler of one message that reads it, and nothing else."""
    message.payload  # noqa: B018 - the reading is what is measured


async def look_at_async(message: Any) -> None:
    """The same as a coroutine."""
    message.payload  # noqa: B018


class Columns:
    """A handler of a batch that reads it by column."""

    def handle_batch(self, batch: Any) -> None:
        """Look at all payloads at once."""
        assert batch.batch.payloads.nbytes >= 100 * len(batch)


class Loop:
    """A handler of a batch that takes its messages one by one."""

    def handle_batch(self, batch: Any) -> None:
        """Look at each."""
        for message in batch:
            message.payload  # noqa: B018


class Puller:
    """A process of a user's own, with a `PullConsumer`."""

    def __init__(self, topology: str, group: str) -> None:
        from pxrs_ray import attach

        self._consumer = attach(topology).group(group).consumer()

    def pull(self, quiet_s: float) -> None:
        """Take batches, look at each message, and commit, until nothing comes for so long."""
        commit_s, end_s = 0.0, time.monotonic() + quiet_s
        taken = True
        while taken or time.monotonic() < end_s:
            batch = self._consumer.poll(COMMIT_EVERY_S / 4)
            if batch is not None:
                for message in batch:
                    message.payload  # noqa: B018
                taken, end_s = True, time.monotonic() + quiet_s
            if taken and time.monotonic() >= commit_s:
                self._consumer.commit()
                taken, commit_s = False, time.monotonic() + COMMIT_EVERY_S

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()


@contextmanager
def topology() -> Iterator[Any]:
    """A topology with its one queue, gone afterwards."""
    from pxrs_ray import PxrsConfig, QueueConfig, deploy

    with cluster(), tempfile.TemporaryDirectory(prefix="pxrs-bench-") as folder:
        queues = {QUEUE: QueueConfig(partitions=PARTITIONS, durability="interval")}
        config = PxrsConfig(
            name=f"path-{next(_numbers)}", data_dir=Path(folder), queues=queues, buffers=BUFFERS
        )
        found = deploy(config)
        try:
            yield found
        finally:
            found.shutdown()


def until_owned(group: Any, owners: int) -> None:
    """Return when so many consumers share all partitions."""
    deadline_s = time.monotonic() + WAIT_S
    while len(set(_owners(group))) < owners or len(_owners(group)) < PARTITIONS:
        assert time.monotonic() < deadline_s, "the consumers do not begin"
        time.sleep(LOOK_S)


def _owners(group: Any) -> list[str]:
    return [p.owner for p in group.status().partitions if p.owner]


def committed(group: Any) -> int:
    """How far the group has come, all partitions together."""
    return sum(p.checkpoint for p in group.status().partitions)


def until_done(group: Any, offsets: int) -> None:
    """Return when the group has committed so much."""
    deadline_s = time.monotonic() + WAIT_S
    while committed(group) < offsets:
        assert time.monotonic() < deadline_s, "the consumers do not get there"
        time.sleep(LOOK_S)


def cpu_s_of_all() -> float:
    """What this process and all that it has started, Ray's among them, have used so far."""
    ticks, parents, used = os.sysconf("SC_CLK_TCK"), {}, {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        parents[int(entry.name)] = int(fields[1])
        used[int(entry.name)] = (int(fields[11]) + int(fields[12])) / ticks
    ours = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return sum(used.get(pid, 0.0) for pid in ours)


def produce(topology: Any, messages: int) -> None:
    """Send so many, as fast as the queue takes them."""
    load = Load()
    with topology.producer(QUEUE) as producer:
        for _ in range(messages // CHUNK):
            producer.send_batch(*load.chunk())
        producer.flush(WAIT_S)


def handled_per_s(topology: Any, handler: Any, messages: int, **options: Any) -> float:
    """Messages a second from a producer's first to the last that a new group has committed."""
    return messages / handled(topology, handler, messages, **options)[0]


def handled(topology: Any, handler: Any, messages: int, **options: Any) -> tuple[float, float]:
    """How long that takes, and how much CPU of all processes together, in seconds."""
    group = topology.group(f"g{next(_numbers)}", queue=QUEUE, start="end", **options)
    group.start(handler, consumers=CONSUMERS)
    until_owned(group, CONSUMERS)
    before, before_s = committed(group), cpu_s_of_all()
    began_s = time.perf_counter()
    produce(topology, messages)
    until_done(group, before + messages)
    took_s = time.perf_counter() - began_s
    cpu_s = cpu_s_of_all() - before_s
    group.stop()
    group.delete(force=True)
    return took_s, cpu_s


@figures(
    {"path.handler_msgs_per_s": "msg/s", "path.handler_cpu_us_per_msg": "us"},
    runs=3,
    setup=topology,
)
def handler(found: Any) -> dict[str, float]:
    """A handler of one message, while the producer is at work; and what it takes of all processes
    together, which says more where others use the machine too."""
    took_s, cpu_s = handled(found, look_at, MESSAGES)
    return {
        "path.handler_msgs_per_s": MESSAGES / took_s,
        "path.handler_cpu_us_per_msg": cpu_s * 1e6 / MESSAGES,
    }


@figure("path.batch_msgs_per_s", unit="msg/s", runs=3, setup=topology)
def batch(found: Any) -> float:
    """A handler of a batch that looks at columns, while the producer is at work."""
    return handled_per_s(found, Columns, MESSAGES)


@figure("path.batch_loop_msgs_per_s", unit="msg/s", runs=3, setup=topology)
def batch_loop(found: Any) -> float:
    """A handler of a batch that takes its messages one by one, while the producer is at work."""
    return handled_per_s(found, Loop, MESSAGES)


@figure("path.drain_msgs_per_s", unit="msg/s", runs=3, setup=topology)
def drain(found: Any) -> float:
    """A handler of one message, out of a backlog: nobody produces."""
    group = found.group(f"g{next(_numbers)}", queue=QUEUE, start="end")
    group.start(look_at, consumers=CONSUMERS)
    until_owned(group, CONSUMERS)
    before = committed(group)
    group.pause()
    produce(found, MESSAGES)
    time.sleep(1.0)
    assert committed(group) == before, "somebody has worked on the backlog already"
    began_s = time.perf_counter()
    group.resume()
    until_done(group, before + MESSAGES)
    took_s = time.perf_counter() - began_s
    group.stop()
    group.delete(force=True)
    return MESSAGES / took_s


@figure("path.poll_msgs_per_s", unit="msg/s", runs=3, setup=topology)
def poll(found: Any) -> float:
    """Two processes that poll, and look at each message, while the producer is at work."""
    import ray

    group = found.group(f"g{next(_numbers)}", queue=QUEUE, start="end")
    puller = ray.remote(Puller).options(num_cpus=0, enable_task_events=False)
    pullers: list[Any] = [puller.remote(found.name, group.name) for _ in range(CONSUMERS)]
    # They have joined, and hold what they were given.
    ray.get([puller.pull.remote(1.0) for puller in pullers], timeout=WAIT_S)
    until_owned(group, CONSUMERS)
    before = committed(group)
    began_s = time.perf_counter()
    pulling = [puller.pull.remote(2.0) for puller in pullers]
    produce(found, MESSAGES)
    until_done(group, before + MESSAGES)
    took_s = time.perf_counter() - began_s
    ray.get(pulling, timeout=WAIT_S)
    ray.get([puller.close.remote() for puller in pullers], timeout=WAIT_S)
    for puller in pullers:
        ray.kill(puller)
    group.delete(force=True)
    return MESSAGES / took_s


@figure("path.async_handler_msgs_per_s", unit="msg/s", runs=3, setup=topology)
def async_handler(found: Any) -> float:
    """An `async` handler of one message, in the order of the partition."""
    return handled_per_s(found, look_at_async, SLOW_MESSAGES)


@figure("path.lanes_msgs_per_s", unit="msg/s", runs=3, setup=topology)
def lanes(found: Any) -> float:
    """A handler of one message, many keys of a partition at once."""
    from pxrs_ray.config import ByKey

    return handled_per_s(found, look_at, SLOW_MESSAGES, processing=ByKey())


@figure("path.packs_msgs_per_s", unit="msg/s", runs=3, setup=topology)
def packs(found: Any) -> float:
    """A handler of one message, pack by pack."""
    from pxrs_ray.config import Packs

    return handled_per_s(found, look_at, SLOW_MESSAGES, processing=Packs())


@figure("path.async_lanes_msgs_per_s", unit="msg/s", runs=3, setup=topology)
def async_lanes(found: Any) -> float:
    """An `async` handler of one message, many keys of a partition at once."""
    from pxrs_ray.config import ByKey

    return handled_per_s(found, look_at_async, SLOW_MESSAGES, processing=ByKey())
