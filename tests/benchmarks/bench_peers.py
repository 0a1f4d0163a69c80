"""What users would run instead, on the same work in the same run: see `peers`.

A rate is from the first send to the last acknowledgement, with order and number checked. What the
processes of all sides took together says more where others use the machine too: two cores make no
more of it than that allows. A peer that is not here is told in a line and left out.
"""

from __future__ import annotations

import multiprocessing
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tests.benchmarks import bench_path
from tests.benchmarks.dataplane import PAYLOAD_BYTES, cluster
from tests.benchmarks.harness import LeftOut, figures
from tests.benchmarks.peers import BATCH, SERVED, SHARDS, library
from tests.servers import ServiceMissing

RAY_MESSAGES = 200_000
OURS = 5_000_000
WAIT_S = 180.0


class Checked:
    """A handler that sees that the messages of its shard come in order, each once."""

    def __init__(self, shard: int) -> None:
        self._next = shard

    def __call__(self, payload: bytes) -> None:
        """Look at the number that the payload begins with."""
        assert int.from_bytes(payload[:8], "big") == self._next, "out of order"
        self._next += SHARDS


def payloads(messages: int) -> Iterator[tuple[int, bytes]]:
    """Shard and payload of each message; a payload begins with its number."""
    fill = bytes(PAYLOAD_BYTES - 8)
    for number in range(messages):
        yield number % SHARDS, number.to_bytes(8, "big") + fill


class CheckedMessages:
    """The same as a handler of ours: each partition has its own numbers, ever rising."""

    def __init__(self) -> None:
        self._last: dict[int, int] = {}

    def handle(self, message: Any) -> None:
        """Look at the number that the payload begins with."""
        number, partition = int.from_bytes(message.payload[:8], "big"), message.partition
        assert number > self._last.get(partition, 0), "out of order"
        self._last[partition] = number


def _receive(name: str, url: str, libraries: str, shard: int, ready: Any) -> None:
    """In a process of its own."""
    sys.path.append(libraries)
    peer = SERVED[name].client(url)
    ready.wait()
    peer.receive(shard, SERVED[name].messages // SHARDS, Checked(shard))


class Took(NamedTuple):
    """What so many messages took, in seconds: of time, and of CPU of all processes."""

    messages: int
    took_s: float
    cpu_s: float

    @property
    def per_s(self) -> float:
        """Messages a second."""
        return self.messages / self.took_s

    @property
    def cpu_us(self) -> float:
        """CPU for each."""
        return self.cpu_s * 1e6 / self.messages


def cpu_s_so_far() -> float:
    """What all processes of ours have used, those that are over among them."""
    over = resource.getrusage(resource.RUSAGE_CHILDREN)
    return bench_path.cpu_s_of_all() + over.ru_utime + over.ru_stime


def served(name: str) -> Took:
    """What messages through one of the servers take. Raises ServiceMissing where it is not here."""
    make, client, module, package, messages = SERVED[name]
    context = multiprocessing.get_context("spawn")
    with ExitStack() as until_done:
        libraries = until_done.enter_context(tempfile.TemporaryDirectory(prefix="pxrs-peers-"))
        library(module, package, Path(libraries))
        server = until_done.enter_context(make())
        client(server.url).prepare()
        ready = context.Barrier(SHARDS + 1)
        told = [(name, server.url, libraries, shard, ready) for shard in range(SHARDS)]
        receivers = [context.Process(target=_receive, args=each, daemon=True) for each in told]
        for receiver in receivers:
            receiver.start()
        sender = client(server.url)
        ready.wait(WAIT_S)
        before_s, began_s = cpu_s_so_far(), time.perf_counter()
        sender.send(payloads(messages))
        for receiver in receivers:
            receiver.join(WAIT_S)
        took_s, cpu_s = time.perf_counter() - began_s, cpu_s_so_far() - before_s
        ended = [receiver.exitcode for receiver in receivers]
        for receiver in receivers:
            receiver.kill()
        assert ended == [0] * SHARDS, f"receivers of {name} ended with {ended}"
        return Took(messages, took_s, cpu_s)


def ray_queue() -> Took:
    """What messages through one `ray.util.queue` a shard take, in batches."""
    import ray
    from ray.util.queue import Queue

    def receive(queue: Any, shard: int) -> None:
        handle, done = Checked(shard), 0
        while done < RAY_MESSAGES // SHARDS:
            for payload in queue.get_nowait_batch(min(BATCH, queue.qsize())):
                handle(payload)
                done += 1

    with cluster():
        options = {"num_cpus": 0}
        queues = [Queue(actor_options=options) for _ in range(SHARDS)]
        task = ray.remote(num_cpus=0)(receive)
        before_s, began_s = cpu_s_so_far(), time.perf_counter()
        coming = [task.remote(queue, shard) for shard, queue in enumerate(queues)]
        every = list(payloads(RAY_MESSAGES))
        for at in range(0, RAY_MESSAGES, BATCH):
            for shard, queue in enumerate(queues):
                queue.put_nowait_batch([p for of, p in every[at : at + BATCH] if of == shard])
        ray.get(coming, timeout=WAIT_S)
        took_s, cpu_s = time.perf_counter() - began_s, cpu_s_so_far() - before_s
        for queue in queues:
            queue.shutdown(force=True)
        return Took(RAY_MESSAGES, took_s, cpu_s)


_of_peers: dict[str, Took] = {}


def _measure(name: str, take: Callable[[], Took]) -> None:
    """Declare the figures of one peer."""
    units = {f"peers.{name}_msgs_per_s": "msg/s", f"peers.{name}_cpu_us_per_msg": "us"}

    def run() -> dict[str, float]:
        try:
            took = _of_peers[name] = take()
        except ServiceMissing as missing:
            raise LeftOut(str(missing)) from None
        return dict(zip(units, (took.per_s, took.cpu_us), strict=True))

    run.__doc__ = f"What {name} does."
    figures(units, runs=1, warmups=0)(run)


for _name in SERVED:
    _measure(_name, partial(served, _name))
_measure("ray_queue", ray_queue)


@figures(
    {
        "peers.pxrs_msgs_per_s": "msg/s",
        "peers.pxrs_cpu_us_per_msg": "us",
        "peers.pxrs_ratio_to_best": "times",
        "peers.pxrs_cpu_ratio_to_best": "times",
    },
    runs=1,
    setup=bench_path.topology,
)
def ours(topology: Any) -> dict[str, float]:
    """Ours, with a handler of one message, and how many times the best of the others that is."""
    if not _of_peers:
        raise LeftOut("no peer was measured in this run")
    mine = Took(OURS, *bench_path.handled(topology, CheckedMessages, OURS))
    return {
        "peers.pxrs_msgs_per_s": mine.per_s,
        "peers.pxrs_cpu_us_per_msg": mine.cpu_us,
        "peers.pxrs_ratio_to_best": mine.per_s / max(peer.per_s for peer in _of_peers.values()),
        "peers.pxrs_cpu_ratio_to_best": min(p.cpu_us for p in _of_peers.values()) / mine.cpu_us,
    }
