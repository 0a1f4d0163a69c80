"""Whoever takes part in a feed is killed in the middle of it: every row is there once, in order."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

import psutil
import pytest
import ray

from pxrs_ray.spark import write_dataframe
from tests.spark.helpers import (
    QUEUE,
    BuffersOnly,
    Source,
    check_numbered,
    eventually,
    executor_pid,
    meanwhile,
    numbered,
    routing_workers,
)

pytestmark = pytest.mark.spark

ROWS = 400_000
STREAM_FILES, FILE_ROWS = 8, 20_000
BOTH = pytest.mark.parametrize("via", ["raydp", "push"])


def feed(spark: Any, queue: BuffersOnly, via: Any, rows: int = ROWS, **options: Any) -> Any:
    report = write_dataframe(
        numbered(spark, rows),
        queue,
        QUEUE,
        key="account",
        payload="number",
        feed_id="f",
        via=via,
        **options,
    )
    check_numbered(queue, rows)
    return report


@pytest.mark.parametrize("seed", range(5))
def test_a_routing_worker(spark: Any, queue: BuffersOnly, seed: int) -> None:
    random = Random(seed)

    def kill() -> None:
        workers = eventually(routing_workers, "a routing task ran")
        time.sleep(random.uniform(0, 0.3))
        random.choice(workers).send_signal(signal.SIGKILL)

    with meanwhile(kill, random, 0.1):
        feed(spark, queue, "raydp")


@BOTH
@pytest.mark.parametrize("seed", range(3))
def test_a_buffer(spark: Any, queue: BuffersOnly, via: Any, seed: int) -> None:
    random = Random(seed)

    def kill() -> None:
        eventually(lambda: queue.rows() > random.uniform(0.1, 0.8) * ROWS, "rows came in")
        queue.kill_buffer(random.randrange(2))

    with meanwhile(kill, random, 0.1):
        feed(spark, queue, via)


@BOTH
def test_an_executor(spark: Any, queue: BuffersOnly, via: Any) -> None:
    """The only executor: everything that it held is gone, and Spark computes it again."""
    random = Random(7)
    pid = executor_pid(spark)

    def kill() -> None:
        eventually(lambda: queue.rows() > random.uniform(0.05, 0.5) * ROWS, "rows came in")
        os.kill(pid, signal.SIGKILL)

    with meanwhile(kill, random, 0.1):
        feed(spark, queue, via, fetch_s_max=15.0)
    assert not psutil.pid_exists(pid)


def kill_when(
    queue: BuffersOnly, rows: float, command: list[str], environment: dict[str, str]
) -> None:
    """Start a driver, and kill it when there are so many rows."""
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, start_new_session=True, env=environment
    )
    try:
        eventually(lambda: queue.rows() > rows or process.poll() is not None, "rows came in")
        assert process.poll() is None, "it came to the end before it was killed"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def test_the_driver(queue: BuffersOnly, java: None, tmp_path: Path) -> None:
    """It is killed in a feed, and again in a stream; the third one comes to the end."""
    random = Random(5)
    source = Source(tmp_path / "source", FILE_ROWS, first=ROWS)
    source.add(STREAM_FILES)
    address = ray.get_runtime_context().gcs_address
    command = [sys.executable, "-W", "ignore", "-m", "tests.spark.feeder"]
    command += [address, queue.name, str(ROWS), str(tmp_path)]
    (tmp_path / "tmp").mkdir()
    environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp")}
    kill_when(queue, random.uniform(0.02, 0.5) * ROWS, command, environment)
    assert queue.rows() < ROWS
    kill_when(queue, ROWS + random.uniform(0.02, 0.5) * source.rows, command, environment)
    assert ROWS < queue.rows() < ROWS + source.rows
    ended = subprocess.run(
        command, capture_output=True, timeout=120, check=True, text=True, env=environment
    )
    assert ended.stdout.split() == ["begins", "fed", "ended"]
    check_numbered(queue, ROWS, streamed=source.rows, files=source.files)
    left = [path.name for path in (tmp_path / "tmp").iterdir()]
    assert len(left) <= 2, f"the two that were killed leave their folders, and no more: {left}"
