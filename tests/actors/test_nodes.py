"""A node that goes takes nothing with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.ray, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]


def told_by(program: str) -> dict[str, Any]:
    ran = subprocess.run(
        [sys.executable, "-m", f"tests.actors.{program}"],
        capture_output=True,
        text=True,
        timeout=200,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr[-4_000:]}"
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


def test_a_lost_node_loses_nothing_and_a_drained_one_hands_over() -> None:
    told = told_by("two_nodes")
    assert told["processed"] == told["sent"]
    # A consumer's lease is two seconds here; the logs that were there open elsewhere meanwhile.
    assert told["node_loss_takeover_s"] < 15
    assert told["repeated_in_drain"] == 0
    assert told["drain_causes"] and all("released by" in cause for cause in told["drain_causes"])


def test_buffers_bring_back_a_coordinator_whose_node_is_gone() -> None:
    told = told_by("two_homes")
    assert told["coordinator_on_second"] and told["buffers_on"] == 2
    assert told["buffers_back"]
    assert told["kept"] == told["kept_again"] == 800
    assert told["gaps"] == 0 and told["problems"] == []
