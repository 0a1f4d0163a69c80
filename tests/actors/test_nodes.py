"""A node that goes takes nothing with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.ray, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]


def test_a_lost_node_loses_nothing_and_a_drained_one_hands_over() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.actors.two_nodes"],
        capture_output=True,
        text=True,
        timeout=200,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr[-4_000:]}"
    told = json.loads(ran.stdout.splitlines()[-1])
    assert told["processed"] == told["sent"]
    # A consumer's lease is two seconds here; the logs that were there open elsewhere meanwhile.
    assert told["node_loss_takeover_s"] < 15
    assert told["repeated_in_drain"] == 0
    assert told["drain_causes"] and all("released by" in cause for cause in told["drain_causes"])
