"""What the benchmarks of failover share: a steady load, a trace of what was processed, and tables.

Every handler call writes one small record (when, which partition, offset, epoch) to a file of its
process; what an event did is read from these files alone. Times are the wall clock of the one
machine that all of it runs on.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import ray

from pxrs_ray.actors.client.group import Group
from pxrs_ray.actors.client.topology import Topology, deploy
from pxrs_ray.config import GroupConfig, PxrsConfig, QueueConfig
from pxrs_ray.consumer.delivery import Delivery
from pxrs_ray.partitioning import Partitioner

PARTITIONS = 8
CONSUMERS = 3
LEASE_S = 1.0
BEAT_S = 0.01
WAIT_S = 60.0
WINDOW_NS = 300_000_000
MS = 1e-6

_RECORD = Struct("<qqqq")
ROW = np.dtype([("at", "<i8"), ("partition", "<i8"), ("offset", "<i8"), ("epoch", "<i8")])
Rows = npt.NDArray[Any]


class Stamper:
    """A handler that notes each message and does nothing else."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = -1

    def handle(self, message: Delivery) -> None:
        if self._file < 0:
            flags = os.O_CREAT | os.O_APPEND | os.O_WRONLY
            self._file = os.open(self._folder / str(os.getpid()), flags)
        context = message.context
        record = (time.time_ns(), context.partition, context.offset, context.epoch)
        os.write(self._file, _RECORD.pack(*record))


class Trace:
    """Everything that was processed, in the order of time; reads on where it stopped."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._read: dict[Path, int] = {}
        self._every: Rows = np.empty(0, ROW)

    def rows(self, since_ns: int = 0) -> Rows:
        parts = [self._every]
        for file in self.folder.iterdir():
            with file.open("rb") as opened:
                opened.seek(self._read.get(file, 0))
                new = opened.read()
            whole = len(new) - len(new) % _RECORD.size
            self._read[file] = self._read.get(file, 0) + whole
            if whole:
                parts.append(np.frombuffer(new[:whole], ROW))
        if len(parts) > 1:
            every = np.concatenate(parts)
            # Almost in order already, which a stable sort makes use of.
            self._every = every[np.argsort(every["at"], kind="stable")]
        return self._every[np.searchsorted(self._every["at"], since_ns) :]


class Beat:
    """Sends one message to each partition every BEAT_S for as long as the `with` block runs."""

    def __init__(self, topology: Topology) -> None:
        partitioner = Partitioner(PARTITIONS)
        keys: dict[int, str] = {}
        number = 0
        while len(keys) < PARTITIONS:
            keys.setdefault(partitioner.partition(f"k{number}"), f"k{number}")
            number += 1
        self._keys = list(keys.values())
        self._producer = topology.producer("q")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        due_s = time.monotonic()
        while not self._stop.is_set():
            self._producer.send_batch(self._keys, [b"x" * 100] * PARTITIONS)
            due_s = max(due_s + BEAT_S, time.monotonic() - BEAT_S)
            self._stop.wait(max(0.0, due_s - time.monotonic()))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join(WAIT_S)
        self._producer.close(WAIT_S)


@dataclass(frozen=True)
class Scene:
    """A topology under load, and what it does."""

    topology: Topology
    group: Group
    trace: Trace
    events: int


def events_wanted() -> int:
    """How many events of each kind: PXRS_FAILOVER_EVENTS, 100 when it is not set."""
    return int(os.environ.get("PXRS_FAILOVER_EVENTS", "100"))


@contextmanager
def scene() -> Iterator[Scene]:
    """A local Ray, a topology, three consumers, and a steady load."""
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="error")
    try:
        with tempfile.TemporaryDirectory(prefix="pxrs-failover-") as folder:
            notes = Path(folder, "notes")
            notes.mkdir()
            config = PxrsConfig(
                name="failover",
                data_dir=Path(folder),
                buffers=2,
                linger_ms=0,
                lease_ttl_seconds=LEASE_S,
                queues={"q": QueueConfig(partitions=PARTITIONS)},
                groups={"g": GroupConfig(queue="q", consumers=CONSUMERS)},
            )
            topology = deploy(config)
            try:
                group = topology.group("g")
                group.start(Stamper(notes), consumers=CONSUMERS)
                with Beat(topology):
                    found = Scene(topology, group, Trace(notes), events_wanted())
                    settled(found)
                    yield found
            finally:
                topology.kill()
    finally:
        ray.shutdown()


def until(check: Callable[[], Any], what: str, pause_s: float = 0.01) -> Any:
    """Wait until `check` answers something true."""
    end_s = time.monotonic() + WAIT_S
    while not (found := check()):
        if time.monotonic() > end_s:
            raise AssertionError(f"not within {WAIT_S} s: {what}")
        time.sleep(pause_s)
    return found


def settled(scene: Scene, consumers: int = CONSUMERS, calm_s: float = WINDOW_NS / 1e9) -> Any:
    """The group's status once everybody runs, owns its share, and has worked for `calm_s`."""

    def check() -> Any:
        status = scene.group.status()
        shares = [len(owned) for owned in status.owners.values()]
        running = [c for c in status.consumers if c.state == "running" and c.pid]
        fair = len(shares) == consumers and sum(shares) == PARTITIONS
        return len(running) == consumers and fair and max(shares) - min(shares) <= 1 and status

    until(check, "a settled group", 0.05)
    time.sleep(calm_s)
    return check() or settled(scene, consumers, calm_s)


def epochs(status: Any) -> dict[int, int]:
    """The epoch of each partition."""
    return {p.partition: p.epoch for p in status.partitions}


def taken_over(scene: Scene, at_ns: int, before: Mapping[int, int]) -> dict[int, float]:
    """How many ms after `at_ns` each partition of `before` was first processed anew."""

    def check() -> dict[int, float] | None:
        rows = scene.trace.rows(at_ns)
        found = {}
        for partition, epoch in before.items():
            new = rows[(rows["partition"] == partition) & (rows["epoch"] > epoch)]
            if len(new):
                found[partition] = float(new["at"][0] - at_ns) * MS
        return found if len(found) == len(before) else None

    took: dict[int, float] = until(check, f"new owners of {sorted(before)}", 0.02)
    return took


def longest_gaps(scene: Scene, from_ns: int, partitions: Sequence[int]) -> list[float]:
    """The longest time without a message of each partition in the window after `from_ns`, in ms."""
    rows = scene.trace.rows(from_ns - WINDOW_NS)
    found = []
    for partition in partitions:
        times = rows["at"][rows["partition"] == partition]
        gaps = np.diff(times)
        inside = (times[1:] > from_ns) & (times[:-1] < from_ns + WINDOW_NS)
        found.append(float(gaps[inside].max()) * MS if inside.any() else float(WINDOW_NS) * MS)
    return found


def hand_over_pauses(scene: Scene, since_ns: int) -> list[float]:
    """Between the last message of each owner since then and the first of its successor, in ms."""
    rows = scene.trace.rows(since_ns)
    found = []
    for partition in range(PARTITIONS):
        mine = rows[rows["partition"] == partition]
        change = np.flatnonzero(np.diff(mine["epoch"]))
        found += [float(mine["at"][i + 1] - mine["at"][i]) * MS for i in change]
    return found


def redelivered(scene: Scene, since_ns: int) -> int:
    """How many messages since then were processed more than once."""
    rows = scene.trace.rows(since_ns)
    places = rows["partition"] * (1 << 40) + rows["offset"]
    return len(places) - len(np.unique(places))


def percentile(values: Sequence[float], part: float) -> float:
    """The value below which `part` percent of all lie."""
    return float(np.percentile(np.array(values), part, method="higher"))


BUCKETS_MS = (5, 10, 20, 30, 50, 75, 100, 150, 250, 500, 1_000, 2_000, 5_000)


def told(title: str, values: Sequence[float]) -> None:
    """Print a histogram to stderr."""
    if not values:
        return
    print(
        f"\n{title}: {len(values)} samples, p50 {percentile(values, 50):.1f} ms, "
        f"p90 {percentile(values, 90):.1f}, p99 {percentile(values, 99):.1f}, "
        f"max {max(values):.1f}",
        file=sys.stderr,
    )
    low = float("-inf")
    for high in (*BUCKETS_MS, float("inf")):
        count = sum(low < value <= high for value in values)
        if count:
            bar = "#" * max(1, round(50 * count / len(values)))
            print(f"  up to {high:>6} ms  {count:>5}  {bar}", file=sys.stderr)
        low = high
