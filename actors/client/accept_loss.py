"""`accept_losses`: resumes logs that halted after a loss, once an operator has accepted it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import ray

from pxrs_ray.actors import names
from pxrs_ray.actors.client.queue_reader import CALL_WAIT_S, QueueReader
from pxrs_ray.actors.client.topology import Topology
from pxrs_ray.data.protocol import LogEnds
from pxrs_ray.errors import NotFound
from pxrs_ray.model import PartitionId

LOST = "lost"


def accept_losses(
    topology: Topology, queue: str, partitions: Collection[PartitionId] = ()
) -> dict[PartitionId, LogEnds]:
    """Resume the lost logs of a queue above their gaps; only `partitions`, when some are named.

    Answers the ends of each resumed log. Raises NotFound when a named one has no loss.
    """
    spec, _, buffers = topology.queue_spec(queue)
    found = QueueReader.of(topology, queue).ends()
    lost = {p for p, end in found.items() if end.state == LOST}
    sound = set(partitions) - lost
    if sound:
        those = ", ".join(f"P{p}" for p in sorted(sound))
        raise NotFound(f"{those} has lost nothing: queue {queue} has no loss to accept there")
    calls: dict[PartitionId, Any] = {}
    for partition in sorted(set(partitions) or lost):
        name = names.buffer(topology.name, partition % buffers)
        buffer = ray.get_actor(name, namespace=names.NAMESPACE)
        calls[partition] = buffer.accept_loss.remote(spec.queue, partition)
    return {p: ray.get(call, timeout=CALL_WAIT_S) for p, call in calls.items()}
