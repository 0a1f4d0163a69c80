"""`make_buffer`: has Ray start a buffer actor, or finds it."""

from __future__ import annotations

from typing import Any

from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from pxrs_ray.actors import names
from pxrs_ray.actors.buffer.buffer_actor import LEASE_S, Buffer
from pxrs_ray.actors.cluster.named_actors import make_actor

CALLS_MAX = 10_000


def make_buffer(
    topology: str,
    index: int,
    buffers: int,
    folder: str,
    lease_s: float = LEASE_S,
    disk_id: str = "",
    node: str = "",
) -> Any:
    """Start the buffer actor, or find it when it runs; answers its handle.

    On the `node` it stays: it is started again there, and nowhere else. '' is any node.

    Detached and restarted for ever; calls that a restart cut off are made again by Ray, which is
    safe for they are idempotent.
    """
    options = {
        "get_if_exists": True,
        "max_restarts": -1,
        "max_task_retries": -1,
        "max_concurrency": CALLS_MAX,
        "scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False) if node else None,
        "enable_task_events": False,
    }
    return make_actor(
        Buffer,
        names.buffer(topology, index),
        options,
        *(topology, index, buffers, folder),
        lease_s=lease_s,
        disk_id=disk_id,
    )
