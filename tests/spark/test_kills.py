"""Whoever takes part in a feed is killed in the middle of it: every row is there once, in order."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from random import Random
from typing import Any

import psutil
import pytest
import ray

from pxrs_ray.spark import write_dataframe
from tests.spark.helpers import (
    QUEUE,
    BuffersOnly,
    check_numbered,
    eventually,
    executor_pid,
    meanwhile,
    numbered,
    routing_workers,
)

pytestmark = pytest.mark.spark

ROWS = 400_000
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


@pytest.mark.parametrize("seed", range(2))
def test_the_driver_inside_a_feed(spark: Any, queue: BuffersOnly, seed: int) -> None:
    """It is killed at some moment, and started again until it comes to the end."""
    random = Random(seed)
    address = ray.get_runtime_context().gcs_address
    command = [sys.executable, "-W", "ignore", "-m", "tests.spark.feeder"]
    rows = 2 * ROWS
    command += [address, queue.name, str(rows)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    try:
        wanted = random.uniform(0.02, 0.5) * rows
        eventually(lambda: queue.rows() > wanted or process.poll() is not None, "rows came in")
        assert process.poll() is None, "it came to the end before it was killed"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    assert queue.rows() < rows
    ended = subprocess.run(command, capture_output=True, timeout=120, check=True, text=True)
    assert ended.stdout.split() == ["begins", "ended"]
    check_numbered(queue, rows)
