"""Computes for how many more consumers the cluster's present nodes have room."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ray
from ray._private import state as ray_state


def needs_of(ray_options: Mapping[str, Any]) -> dict[str, float]:
    """What one consumer asks of a node, by the name of the resource."""
    needs = {str(name): float(amount) for name, amount in ray_options.get("resources", {}).items()}
    for option, resource in (("num_cpus", "CPU"), ("num_gpus", "GPU"), ("memory", "memory")):
        if ray_options.get(option):
            needs[resource] = float(ray_options[option])
    return needs


def unplaced(
    count: int, needs: Mapping[str, float], free: Mapping[str, Mapping[str, float]]
) -> int:
    """How many of `count` consumers fit on no node; `free` is what each node has left."""
    if not needs:
        return 0
    room = sum(
        min(int(have.get(name, 0.0) / amount + 1e-9) for name, amount in needs.items())
        for have in free.values()
    )
    return max(0, count - room)


def free_by_node() -> dict[str, dict[str, float]]:
    """What each living node has left, as Ray has it."""
    alive = {node["NodeID"] for node in ray.nodes() if node["Alive"]}  # type: ignore[no-untyped-call]
    free = ray_state.available_resources_per_node()  # type: ignore[no-untyped-call]
    return {node: dict(have) for node, have in free.items() if node in alive}
