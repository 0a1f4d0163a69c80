"""Every example runs as it stands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.light_ray import python_path
from tests.servers import RedisServer

pytestmark = pytest.mark.ray

ROOT = Path(__file__).resolve().parents[2]


def run(name: str, *arguments: str, timeout_s: float = 170) -> str:
    """Run an example as a user would; answer what it printed."""
    ran = subprocess.run(
        [sys.executable, str(ROOT / "examples" / name), *arguments],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": python_path(ROOT), "RAY_ADDRESS": "local"},
    )
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr[-3_000:]}"
    return ran.stdout


def test_quickstart() -> None:
    told = run("quickstart.py")
    assert "group billing of queue payments: ok, lag 0," in told, told[-3_000:]
    assert len(re.findall(r"billing-\d#\d +running", told)) == 3, told[-3_000:]


def test_testing_a_handler() -> None:
    told = run("testing_a_handler.py")
    assert told.count(": it holds") == 4 and "a stale owner charges nobody" in told


def test_rebalance_demo() -> None:
    told = run("rebalance_demo.py")
    for line in ("A: [0, 1, 2]", "B: [3, 4, 5]", "C: [6, 7]", "B: [0, 1, 2, 3]", "C: [4, 5, 6, 7]"):
        assert line in told
    assert "150 of 150 messages processed" in told and "no actor is left" in told


def test_rebalance_demo_with_a_leave_on_another_store(redis_server: RedisServer) -> None:
    told = run("rebalance_demo.py", "--partitions", "16", "--leave", "--store", redis_server.url)
    assert "150 of 150 messages processed, 0 of them again" in told
    assert "registry: redis://" in told


def test_crash_recovery() -> None:
    told = run("crash_recovery.py")
    assert re.search(r"\d+ sent, 0 lost, \d+ processed again", told)
    assert "what the registry has to say about it: ['led']" in told
