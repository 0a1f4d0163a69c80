"""What the product around the queue costs: its commands, its metrics, its live view."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from tests.benchmarks.harness import figure, figures

PXRS = (sys.executable, "-m", "pxrs_ray")
PARTITIONS = 1_024
FRAMES = 11
REPORTS = 10


def _run(*arguments: str) -> float:
    """Run a command that must succeed; answers its wall time in ms."""
    began_s = time.perf_counter()
    subprocess.run([*PXRS, *arguments], check=True, stdout=subprocess.DEVNULL, timeout=120)
    return (time.perf_counter() - began_s) * 1_000


@figure("product.help_ms", unit="ms")
def help_ms() -> float:
    return _run("--help")


@contextmanager
def topology() -> Iterator[Any]:
    """A topology of 1,024 partitions and two consumers, in a Ray that commands can join."""
    import ray

    import pxrs_ray

    context = ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    os.environ["RAY_ADDRESS"] = context.address_info["gcs_address"]
    with tempfile.TemporaryDirectory(prefix="pxrs-bench-") as folder:
        config = pxrs_ray.PxrsConfig(
            name="bench",
            data_dir=Path(folder),
            queues={"orders": pxrs_ray.QueueConfig(partitions=PARTITIONS, durability="memory")},
        )
        found = pxrs_ray.deploy(config)
        found.group("billing", queue="orders").start("pxrs_ray.actors.trial:ignore", consumers=2)
        yield found
        found.shutdown()
    del os.environ["RAY_ADDRESS"]
    ray.shutdown()


@figure("product.status_ms", unit="ms", setup=topology)
def status_ms(_: Any) -> float:
    return _run("status")


@figure("product.metrics_cost_percent", unit="%", runs=3, setup=topology)
def metrics_cost_percent(found: Any) -> float:
    """The CPU time of one report, everywhere, against the interval: per cent of one core.

    Nothing is counted where messages pass, so this is what metrics cost at any rate.
    """
    import ray

    from pxrs_ray.actors import names
    from pxrs_ray.actors.metrics import REPORT_EVERY_S, Sources, TopologyMetrics
    from pxrs_ray.tally import Tally

    status = found.status()
    pids = {status.coordinator_pid, *(c.pid for g in status.groups for c in g.consumers if c.pid)}
    buffers = [ray.get_actor(names.buffer("bench", i), "pxrs") for i in range(status.buffers)]
    pids |= {info.pid for info in ray.get([buffer.ping.remote() for buffer in buffers])}
    processes = [psutil.Process(pid) for pid in pids]
    metrics, tallies = TopologyMetrics("bench-metrics"), {"billing": Tally()}
    before_s = _cpu_s(processes)
    for _ in range(REPORTS):
        metrics.report(Sources(found.status(), tallies, found.buffer_stats(), [1.0] * 50))
    return (_cpu_s(processes) - before_s) / REPORTS / REPORT_EVERY_S * 100


def _cpu_s(processes: list[psutil.Process]) -> float:
    times = [process.cpu_times() for process in (*processes, psutil.Process())]
    return float(sum(t.user + t.system for t in times))


@figures({"product.top_cpu_percent": "%"}, runs=3, warmups=0, setup=topology)
def top_cpu_percent(_: Any) -> dict[str, float]:
    """Of one core, at 1,024 partitions and a frame a second, the start left out."""
    seconds = _top_cpu_s(FRAMES) - _top_cpu_s(1)
    return {"product.top_cpu_percent": seconds / (FRAMES - 1) * 100}


def _top_cpu_s(frames: int) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    _run("top", "--frames", str(frames))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)
