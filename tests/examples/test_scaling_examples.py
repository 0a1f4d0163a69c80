"""The scaling examples, run as a user runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.actors.programs import told_by
from tests.autoscaling_cluster import AutoscaledCluster

ROOT = Path(__file__).parents[2]
WAIT_S = 240


def run(*arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def last_line(output: str) -> dict[str, Any]:
    """What the example tells at its end; Ray may say there after it that a node has gone."""
    [*_, told] = [line for line in output.splitlines() if line.startswith("{")]
    found: dict[str, Any] = json.loads(told)
    return found


def test_the_memory_planner_reproduces_the_documents_tables() -> None:
    told = run("examples/fanout.py", "plan")
    for workers, share, each in ((4, 64, "10"), (8, 32, "5"), (16, 16, "2.5"), (32, 8, "1.25")):
        assert [str(workers), str(share), each] in [line.split() for line in told.splitlines()]
    assert "100000   2.0 GB: replicated" in told
    assert "500000   8.0 GB: replicated, on instances of 32 GB or more" in told
    assert "2000000   40.0 GB: partitioned" in told


@pytest.mark.ray
@pytest.mark.parametrize("what", ["demo", "migrate"])
def test_the_fan_out_loses_nothing(what: str) -> None:
    result = last_line(run("examples/fanout.py", what, "4000"))
    assert result["delivered"] == result["wanted"] == 12_000


@pytest.mark.ray
def test_consumers_follow_the_lag_and_nodes_follow_the_consumers(tmp_path: Path) -> None:
    picture = tmp_path / "trace.png"
    with AutoscaledCluster({"CPU": 1, "worker": 1}, 4, head_cpus=2) as cluster:
        output = run("examples/autoscaling.py", str(picture), "22", RAY_ADDRESS=cluster.address)
    result = last_line(output)
    assert result["worked"] == result["sent"]
    assert result["redelivered"] == 0
    assert result["consumers"][1] == 4
    assert result["consumers"][2] == 1
    assert result["nodes"][1] > result["nodes"][0] >= result["nodes"][2]
    assert picture.stat().st_size > 1_000


@pytest.mark.ray
def test_the_autoscaler_keeps_a_node_with_logs_until_it_is_drained() -> None:
    """Here, and not with the other nodes: it too takes a cluster that adds nodes by itself."""
    told = told_by("autoscaled_node")
    assert told["there"] and told["kept"] and told["served"]
    assert told["moved"] and told["gone"]
    assert told["processed"] == told["sent"] and told["problems"] == []
