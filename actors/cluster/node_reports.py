"""Inspects every node of the cluster with one small task each: `pxrs doctor`."""

from __future__ import annotations

import platform
import shutil
import time
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from pxrs_ray.clock import wall_ms
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.supervision.restart_rules import first_line


@dataclass(frozen=True, slots=True)
class NodeReport:
    """One node. `clock_ms` is how far its clock is ahead of ours; `problem` says why it did not
    answer."""

    node: str
    python: str = ""
    ray: str = ""
    clock_ms: float = 0.0
    disk_free_bytes: int = 0
    problem: str = ""


def _look(folder: str) -> tuple[str, str, int, int]:
    place = Path(folder).expanduser()
    while not place.exists():
        place = place.parent
    return platform.python_version(), ray.__version__, wall_ms(), shutil.disk_usage(place).free


def look_at_nodes(folder: str, wait_s: float) -> list[NodeReport]:
    """Every living node, as seen from there; one that does not answer says so in `problem`."""
    calls: dict[str, tuple[Any, int]] = {}
    for node in ray.nodes():  # type: ignore[no-untyped-call]
        if node["Alive"]:
            where = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            task = ray.remote(_look).options(
                num_cpus=0, max_retries=0, scheduling_strategy=where, runtime_env={}
            )
            calls[node["NodeID"]] = (task.remote(folder), wall_ms())
    end_s = time.monotonic() + wait_s
    return [_report(node, call, began_ms, end_s) for node, (call, began_ms) in calls.items()]


def _report(node: str, call: Any, began_ms: int, end_s: float) -> NodeReport:
    try:
        python, ray_version, at_ms, free = ray.get(call, timeout=max(0.1, end_s - time.monotonic()))
    except RayError as error:
        return NodeReport(node, problem=first_line(error))
    # The task ran somewhere between its call and now: only what lies outside is a difference.
    ahead_ms = max(0, at_ms - wall_ms()) or min(0, at_ms - began_ms)
    return NodeReport(node, python, ray_version, ahead_ms, free)
