"""Looks at every node of the cluster with one small task each, and for actors that nobody owns."""

from __future__ import annotations

import platform
import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from pxrs_ray.actors import names
from pxrs_ray.stats import TopologyStatus


@dataclass(frozen=True, slots=True)
class NodeReport:
    """One node. `clock_ms` is how far its clock is ahead of ours; `problem` says why it is mute."""

    node: str
    python: str = ""
    ray: str = ""
    clock_ms: float = 0.0
    disk_free_bytes: int = 0
    problem: str = ""


def _look(folder: str) -> tuple[str, str, float, int]:
    place = Path(folder).expanduser()
    while not place.exists():
        place = place.parent
    return platform.python_version(), ray.__version__, time.time(), shutil.disk_usage(place).free


def look_at_nodes(folder: str, wait_s: float) -> list[NodeReport]:
    """Every node that is alive, as seen from there; one that does not answer is told so."""
    calls: dict[str, tuple[Any, float]] = {}
    for node in ray.nodes():  # type: ignore[no-untyped-call]
        if node["Alive"]:
            where = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            task = ray.remote(_look).options(
                num_cpus=0, max_retries=0, scheduling_strategy=where, runtime_env={}
            )
            calls[node["NodeID"]] = (task.remote(folder), time.time())
    end_s = time.monotonic() + wait_s
    return [_report(node, call, began_s, end_s) for node, (call, began_s) in calls.items()]


def _report(node: str, call: Any, began_s: float, end_s: float) -> NodeReport:
    try:
        python, ray_version, at_s, free = ray.get(call, timeout=max(0.1, end_s - time.monotonic()))
    except RayError as error:
        return NodeReport(node, problem=str(error).splitlines()[0][:200])
    # The task ran somewhere between its call and now: only what lies outside is a difference.
    ahead_s = max(0.0, at_s - time.time()) or min(0.0, at_s - began_s)
    return NodeReport(node, python, ray_version, ahead_s * 1_000, free)


def orphans(actors: Iterable[str], topologies: Iterable[TopologyStatus]) -> list[str]:
    """Which of our `actors` belong to no topology that runs, or to no member of its groups."""
    known: dict[str, set[str]] = {}
    for status in topologies:
        name = status.topology
        known[names.prefix(name)] = {
            names.consumer(name, group.group, c.member, c.incarnation)
            for group in status.groups
            for c in group.consumers
        }
    found = []
    for actor in sorted(actors):
        prefix = next((prefix for prefix in known if actor.startswith(prefix)), None)
        is_consumer = prefix is not None and actor.startswith(f"{prefix}consumer/")
        if prefix is None or (is_consumer and actor not in known[prefix]):
            found.append(actor)
    return found
