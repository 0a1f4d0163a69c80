"""What the product around the queue costs: its commands, its metrics, its live view."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from tests.benchmarks.harness import figure
from tests.servers import RedisServer

PXRS = (sys.executable, "-m", "pxrs_ray")
PARTITIONS = 1_024
FRAMES = 20
REPORTS = 10
WELL_WAIT_S = 60.0
# When the page has drawn its first picture, in ms since it was asked for.
DRAWN = "return performance.getEntriesByName('first picture').map((e) => e.startTime)[0]"


def _run(*arguments: str) -> float:
    """Run a command that must succeed; answers its wall time in ms."""
    began_s = time.perf_counter()
    subprocess.run([*PXRS, *arguments], check=True, stdout=subprocess.DEVNULL, timeout=120)
    return (time.perf_counter() - began_s) * 1_000


@figure("product.help_ms", unit="ms")
def help_ms() -> float:
    return _run("--help")


@contextmanager
def topology(store: str = "") -> Iterator[Any]:
    """A topology of 1,024 partitions and two consumers, in a Ray that commands can join."""
    import ray

    import pxrs_ray

    context = ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)
    os.environ["RAY_ADDRESS"] = context.address_info["gcs_address"]
    with tempfile.TemporaryDirectory(prefix="pxrs-bench-") as folder:
        config = pxrs_ray.PxrsConfig(
            name="bench",
            data_dir=Path(folder),
            store=store,
            queues={"orders": pxrs_ray.QueueConfig(partitions=PARTITIONS, durability="memory")},
        )
        found = pxrs_ray.deploy(config)
        found.group("billing", queue="orders").start(
            "pxrs_ray.actors.client.cluster_benchmark:ignore", consumers=2
        )
        yield found
        found.shutdown()
    os.environ["RAY_ADDRESS"] = "local"
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
    from pxrs_ray.actors.coordinator.metrics import REPORT_EVERY_S, Sources, TopologyMetrics
    from pxrs_ray.group.counters import GroupCounters

    status = found.status()
    pids = {status.coordinator_pid, *(c.pid for g in status.groups for c in g.consumers if c.pid)}
    buffers = [ray.get_actor(names.buffer("bench", i), "pxrs") for i in range(status.buffers)]
    pids |= {info.pid for info in ray.get([buffer.ping.remote() for buffer in buffers])}
    processes = [psutil.Process(pid) for pid in pids]
    metrics, tallies = TopologyMetrics("bench-metrics"), {"billing": GroupCounters()}
    before_s = _cpu_s(processes)
    for _ in range(REPORTS):
        metrics.report(Sources(found.status(), tallies, found.buffer_stats(), [1.0] * 50))
    return (_cpu_s(processes) - before_s) / REPORTS / REPORT_EVERY_S * 100


def _cpu_s(processes: list[psutil.Process]) -> float:
    times = [process.cpu_times() for process in (*processes, psutil.Process())]
    return float(sum(t.user + t.system for t in times))


@figure("product.top_cpu_percent", unit="%", runs=3, setup=topology)
def top_cpu_percent(found: Any) -> float:
    """Of one core, at 1,024 partitions and a frame a second; Ray's own threads are counted in."""
    from rich.console import Console

    from pxrs_ray.cli.top import frame
    from pxrs_ray.status.rates import Rates

    rates, screen = Rates(), Console(file=io.StringIO(), width=160, force_terminal=True)
    before_s = time.process_time()
    for _ in range(FRAMES):
        status = found.status()
        rates.note(time.monotonic(), status)
        screen.print(frame(status, rates))
    return (time.process_time() - before_s) / FRAMES * 100


@contextmanager
def on_redis() -> Iterator[Any]:
    """The same with its registry in a process of its own, and that process."""
    with RedisServer() as server, topology(server.url) as found:
        yield found, server


@figure("product.status_fault_ms", unit="ms", runs=2, setup=on_redis)
def status_fault_ms(made: Any) -> float:
    """The longest `pxrs status` while the coordinator, a buffer, or the registry is frozen."""
    found, server = made
    coordinator, buffer = found.status().coordinator_pid, _pid_of_a_buffer()
    slowest = 0.0
    for freeze, thaw in (
        (partial(os.kill, coordinator, signal.SIGSTOP), partial(_go_on, coordinator)),
        (partial(os.kill, buffer, signal.SIGSTOP), partial(_go_on, buffer)),
        (server.freeze, server.thaw),
    ):
        freeze()
        try:
            for _ in range(2):  # as it is noticed, and when it is known
                began_s = time.perf_counter()
                subprocess.run([*PXRS, "status"], capture_output=True, timeout=120)
                slowest = max(slowest, (time.perf_counter() - began_s) * 1_000)
        finally:
            thaw()
        _until_well(found)
    return slowest


def _go_on(pid: int) -> None:
    with suppress(ProcessLookupError):  # who watches over it may have ended it
        os.kill(pid, signal.SIGCONT)


def _pid_of_a_buffer() -> int:
    import ray

    from pxrs_ray.actors import names

    info = ray.get(ray.get_actor(names.buffer("bench", 0), "pxrs").ping.remote(), timeout=30)
    return int(info.pid)


def _until_well(found: Any) -> None:
    from pxrs_ray.status.problem import Severity

    end_s = time.monotonic() + WELL_WAIT_S
    while any(p.severity is Severity.PROBLEM for p in found.status().problems):
        if time.monotonic() > end_s:
            raise TimeoutError(f"still {found.status().problems}")
        time.sleep(0.2)


@contextmanager
def in_a_browser() -> Iterator[Any]:
    """A headless Chromium, and the address of the page of such a topology."""
    from pxrs_ray.cli._page_source import RaySources
    from tests.cli.browser import chromium
    from tests.cli.page_server import page_of

    with (
        topology() as found,
        tempfile.TemporaryDirectory(prefix="pxrs-browser-") as folder,
        chromium(Path(folder)) as browser,
        page_of(RaySources(found.name), 1.0) as address,
    ):
        yield browser, address


@figure("product.page_first_picture_ms", unit="ms", runs=5, warmups=1, setup=in_a_browser)
def page_first_picture_ms(made: Any) -> float:
    """From when somebody opens the page to its first picture on their screen, by the clock of a
    real browser; of a server that has begun, and that no page has asked just now."""
    browser, address = made
    browser.get("about:blank")
    time.sleep(1.0)
    browser.get(address)
    end_s = time.monotonic() + WELL_WAIT_S
    while not (drawn := browser.execute_script(DRAWN)):
        if time.monotonic() > end_s:
            raise TimeoutError("the page shows no picture")
        time.sleep(0.05)
    shown = browser.execute_script("return document.querySelectorAll('.map > div').length")
    assert shown == PARTITIONS
    return float(drawn)
