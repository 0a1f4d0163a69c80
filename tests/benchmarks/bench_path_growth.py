"""What grows with partitions, queues and consumers, on a topology that is quiet otherwise.

Through the public API, on SQLite, two buffers. CPU is that of the topology's own processes, read
from the system. Ray's own part in them is left out: that of as many Ray actors that do nothing,
which run beside them.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from struct import Struct
from typing import Any

import numpy as np

from tests.benchmarks.dataplane import BUFFERS, QUEUE, Load, cluster
from tests.benchmarks.harness import figure, figures

WAIT_S = 180.0
LOOK_S = 0.05
SETTLE_S = 15.0
IDLE_S = 20.0
QUEUES = 100
GROUPS = 5
STATUS_CALLS = 5
APPEND_S = 4.0
BACKLOG = 20_000_000

CLI = "from pxrs_ray.cli import main; raise SystemExit(main())"

# How Ray calls the processes of a topology: by the actor's class.
PROCESSES = (b"ray::Consumer", b"ray::Buffer", b"ray::CoordinatorActor")
SLEEPERS = (b"ray::Sleeper",)

_NOTE = Struct("<qqq")
BEGUN, ENDED = 1, 0


class Noting:
    """A handler that notes when each partition comes and goes, on the machine's clock."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = -1

    def _note(self, partition: int, what: int) -> None:
        if self._file < 0:
            flags = os.O_CREAT | os.O_APPEND | os.O_WRONLY
            self._file = os.open(self._folder / str(os.getpid()), flags)
        os.write(self._file, _NOTE.pack(time.monotonic_ns(), partition, what))

    def on_assigned(self, partition: int, checkpoint: int) -> None:
        """It may work from now on."""
        self._note(partition, BEGUN)

    def on_revoked(self, partition: int) -> None:
        """It has worked for the last time."""
        self._note(partition, ENDED)

    def handle(self, message: Any) -> None:
        """Nothing."""


class Sleeper:
    """An actor that does nothing, for ever: what it costs is Ray's."""

    async def begin(self) -> None:
        """Have its event loop, as the topology's actors have."""

    async def sleep(self) -> None:
        """Never answer."""
        await asyncio.Event().wait()


class Columns:
    """A handler of batches that looks at nothing."""

    def handle_batch(self, batch: Any) -> None:
        """Nothing."""


@contextmanager
def topology(partitions: int, queues: int = 1, **options: Any) -> Iterator[Any]:
    """A topology with so many partitions in each of its queues, gone afterwards."""
    from pxrs_ray import PxrsConfig, QueueConfig, deploy

    # What is killed may still write while the folder goes.
    gone = tempfile.TemporaryDirectory(prefix="pxrs-bench-", ignore_cleanup_errors=True)
    with cluster(), gone as folder:
        named = {
            QUEUE if not n else f"{QUEUE}{n}": QueueConfig(partitions=partitions, **options)
            for n in range(queues)
        }
        config = PxrsConfig(name="grown", data_dir=Path(folder), queues=named, buffers=BUFFERS)
        found = deploy(config)
        try:
            yield found
        finally:
            found.kill()


def until_owned(group: Any, owners: int, partitions: int) -> None:
    """Return when so many consumers share all partitions."""
    deadline_s = time.monotonic() + WAIT_S
    while True:
        found = group.status().owners
        if len(found) == owners and sum(map(len, found.values())) == partitions:
            return
        assert time.monotonic() < deadline_s, "the consumers do not begin"
        time.sleep(LOOK_S)


def cpu_s_by_process(titles: tuple[bytes, ...] = PROCESSES) -> dict[int, float]:
    """The CPU seconds of each process of these titles that is a child of a raylet of ours."""
    ticks, found = os.sysconf("SC_CLK_TCK"), {}
    for entry in Path("/proc").iterdir():
        try:
            if not entry.name.isdigit():
                continue
            if not (entry / "cmdline").read_bytes().startswith(titles):
                continue
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        if _is_ours(int(entry.name)):
            found[int(entry.name)] = (int(fields[11]) + int(fields[12])) / ticks
    return found


def _is_ours(pid: int) -> bool:
    while pid > 1:
        if pid == os.getpid():
            return True
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return False


@figures(
    {"path.idle_cpu_percent_1024": "%", "path.idle_cpu_percent_1024_with_ray": "%"},
    runs=1,
    warmups=0,
)
def idle_cpu() -> dict[str, float]:
    """Of one core, with 1,024 partitions and 8 consumers that have nothing to do."""
    import ray

    with topology(1_024) as found:
        group = found.group("g", queue=QUEUE)
        group.start(Columns, consumers=8)
        until_owned(group, 8, 1_024)
        count = 8 + BUFFERS + 1
        options = {"num_cpus": 0, "max_concurrency": 1_000, "enable_task_events": False}
        made: list[Any] = [ray.remote(Sleeper).options(**options).remote() for _ in range(count)]
        ray.get([actor.begin.remote() for actor in made], timeout=WAIT_S)
        sleeping = [actor.sleep.remote() for actor in made]
        time.sleep(SETTLE_S)
        titles = (PROCESSES, SLEEPERS)
        before, began_s = [cpu_s_by_process(one) for one in titles], time.monotonic()
        assert [len(one) for one in before] == [count, count], f"{before} processes"
        time.sleep(IDLE_S)
        after, passed_s = [cpu_s_by_process(one) for one in titles], time.monotonic() - began_s
        whole, of_ray = (
            100 * sum(now[pid] - then[pid] for pid in then) / passed_s
            for then, now in zip(before, after, strict=True)
        )
        assert len(sleeping) == count
        return {
            "path.idle_cpu_percent_1024": whole - of_ray,
            "path.idle_cpu_percent_1024_with_ray": whole,
        }


@figures({"path.status_10k_ms": "ms", "path.status_10k_command_ms": "ms"}, runs=1, warmups=0)
def status() -> dict[str, float]:
    """With 10,000 partitions: a call of `status`, and the command that shows it."""
    import ray

    with topology(10_000) as found:
        group = found.group("g", queue=QUEUE)
        group.start(Columns, consumers=8)
        until_owned(group, 8, 10_000)
        time.sleep(SETTLE_S)
        calls, commands = [], []
        environment = os.environ | {"RAY_ADDRESS": ray.get_runtime_context().gcs_address}
        for _ in range(STATUS_CALLS):
            began_s = time.perf_counter()
            found.status()
            calls.append(time.perf_counter() - began_s)
            began_s = time.perf_counter()
            command = [sys.executable, "-c", CLI, "status", "--topology", "grown"]
            subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
            commands.append(time.perf_counter() - began_s)
        return {
            "path.status_10k_ms": statistics.median(calls) * 1_000,
            "path.status_10k_command_ms": statistics.median(commands) * 1_000,
        }


@figures({"path.rebalance_4096_pause_p99_ms": "ms", "path.stop_4096_s": "s"}, runs=1, warmups=0)
def rebalance_and_stop() -> dict[str, float]:
    """A ninth consumer comes to eight; then all of it goes to one, which is stopped."""
    with topology(4_096) as found, tempfile.TemporaryDirectory(prefix="pxrs-notes-") as notes:
        group = found.group("g", queue=QUEUE)
        group.start(Noting(Path(notes)), consumers=8)
        until_owned(group, 8, 4_096)
        time.sleep(SETTLE_S)
        since_ns = time.monotonic_ns()
        group.scale(9)
        until_owned(group, 9, 4_096)
        time.sleep(1.0)
        pauses_ms = _pauses_ms(Path(notes), since_ns)
        assert len(pauses_ms) >= 4_096 // 9, "too little has moved"
        group.scale(1)
        until_owned(group, 1, 4_096)
        time.sleep(SETTLE_S)
        return {
            "path.rebalance_4096_pause_p99_ms": float(np.percentile(pauses_ms, 99)),
            "path.stop_4096_s": _stopped_s(group, 4_096),
        }


def _stopped_s(group: Any, partitions: int) -> float:
    """How long a group takes to end, with every one of its partitions handed over."""
    before = group.status().version
    began_s = time.perf_counter()
    group.stop()
    stopped_s = time.perf_counter() - began_s
    changes = group.history(after_version=before, limit=20_000)
    released = [c for c in changes if c.kind == "release" and "released by" in c.cause]
    assert len(released) == partitions, f"only {len(released)} partitions were handed over"
    return stopped_s


@figures(
    {"path.one_owner_10k_s": "s", "path.one_owner_10k_messages_s": "s", "path.stop_10k_s": "s"},
    runs=1,
    warmups=0,
)
def one_owner() -> dict[str, float]:
    """One consumer gets 10,000 partitions, then a message in each of them, and hands all over."""
    with topology(10_000) as found:
        group = found.group("g", queue=QUEUE)
        began_s = time.perf_counter()
        group.start(Columns, consumers=1)
        until_owned(group, 1, 10_000)
        owned_s = time.perf_counter() - began_s
        with found.producer(QUEUE) as producer:
            began_s = time.perf_counter()
            producer.broadcast(b"to each").result(WAIT_S)
            while group.lag():
                assert time.perf_counter() < began_s + WAIT_S, "not all messages are handled"
                time.sleep(LOOK_S)
            handled_s = time.perf_counter() - began_s
        assert len(group.status().owners) == 1, "it has lost some"
        return {
            "path.one_owner_10k_s": owned_s,
            "path.one_owner_10k_messages_s": handled_s,
            "path.stop_10k_s": _stopped_s(group, 10_000),
        }


def _pauses_ms(notes: Path, since_ns: int) -> list[float]:
    """From the end of each partition's work with one owner to its begin with the next."""
    every = sorted(
        note
        for file in notes.iterdir()
        for note in _NOTE.iter_unpack(file.read_bytes())
        if note[0] >= since_ns
    )
    ended: dict[int, int] = {}
    found = []
    for at_ns, partition, what in every:
        if what == ENDED:
            ended[partition] = at_ns
        elif partition in ended:
            found.append((at_ns - ended.pop(partition)) / 1e6)
    assert not ended, f"{len(ended)} partitions went and did not come"
    return found


@figure("path.group_in_100_queues_ms", unit="ms", runs=1, warmups=0)
def group_in_100_queues() -> float:
    """Making one more group where there are 100 queues of 16 partitions."""
    with topology(16, QUEUES) as found:
        found.group("first", queue=QUEUE)
        took_s = []
        for number in range(GROUPS):
            began_s = time.perf_counter()
            found.group(f"g{number}", queue=f"{QUEUE}{number + 1}")
            took_s.append(time.perf_counter() - began_s)
        return statistics.median(took_s) * 1_000


@figure("path.append_slowdown_percent", unit="%", runs=1, warmups=0)
def append_slowdown() -> float:
    """What appends lose while another group reads a backlog that is in no memory of ours."""
    with topology(16, durability="interval") as found:
        load = Load()
        with found.producer(QUEUE) as producer:
            sent = 0
            while sent < BACKLOG:
                keys, payloads = load.chunk()
                producer.send_batch(keys, payloads)
                sent += len(keys)
            producer.flush(WAIT_S)
            alone = _appended_per_s(producer, load)
            group = found.group("cold", queue=QUEUE, start="start")
            group.start(Columns, consumers=1)
            until_owned(group, 1, 16)
            beside = _appended_per_s(producer, load)
            assert group.lag(), "the backlog was read before the appends were over"
        return 100 * (1 - beside / alone)


def _appended_per_s(producer: Any, load: Load) -> float:
    began_s, sent = time.perf_counter(), 0
    while time.perf_counter() < began_s + APPEND_S:
        keys, payloads = load.chunk()
        producer.send_batch(keys, payloads)
        sent += len(keys)
    producer.flush(WAIT_S)
    return sent / (time.perf_counter() - began_s)
