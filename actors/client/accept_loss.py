"""`accept_losses`: resumes logs that halted after a loss, once an operator has accepted it."""

from __future__ import annotations

from collections.abc import Collection

from pxrs_ray.actors.buffer.blocking_buffer_client import BlockingBufferClient
from pxrs_ray.actors.client.queue_reader import QueueReader
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
    logs = BlockingBufferClient(topology.name, buffers)
    lost = lost_logs(topology, queue, partitions)
    return {p: logs.accept_loss(spec.queue, p) for p in lost}


def lost_logs(
    topology: Topology, queue: str, partitions: Collection[PartitionId] = ()
) -> list[PartitionId]:
    """Those of `partitions`, or of all, whose loss waits to be accepted. Raises as above."""
    found = QueueReader.of(topology, queue).ends()
    if unknown := sorted(set(partitions) - found.keys()):
        raise NotFound(f"queue {queue} has partitions 0 to {max(found)}, not {unknown[0]}")
    lost = {p for p, end in found.items() if end.state == LOST}
    sound = set(partitions) - lost
    if sound:
        those = ", ".join(f"P{p}" for p in sorted(sound))
        raise NotFound(f"{those} of queue {queue} has no recorded loss: there is nothing to accept")
    return sorted(set(partitions) or lost)
