"""`purge`: drops the messages that a queue holds now."""

from __future__ import annotations

from collections.abc import Collection

from pxrs_ray.actors.buffer.blocking_buffer_client import BlockingBufferClient
from pxrs_ray.actors.client.topology import Topology
from pxrs_ray.data.protocol import LogEnds
from pxrs_ray.errors import DeadlineExceeded, NotFound, UsageError
from pxrs_ray.model import PartitionId
from pxrs_ray.topology.removal import Removal


def plan_purge(
    topology: Topology, queue: str, partitions: Collection[PartitionId] = ()
) -> tuple[Removal, dict[PartitionId, LogEnds]]:
    """What a purge drops, and the ends up to which it does. Changes nothing.

    Raises NotFound, DeadlineExceeded while a buffer is away, and UsageError for a queue whose
    messages are elsewhere, or are what a group has put aside: those have an order to keep.
    """
    spec, config, buffers = topology.queue_spec(queue)
    if spec.external:
        raise UsageError(f"queue {queue} is external: remove its messages there")
    aside = [
        name for name in config.groups if config.resolved_group(name).quarantine_queue == queue
    ]
    if aside:
        raise UsageError(
            f"queue {queue} is the quarantine of {aside[0]}: `pxrs quarantine skip {aside[0]} KEY`"
        )
    unknown = sorted(set(partitions) - set(range(spec.partitions)))
    if unknown:
        raise NotFound(f"queue {queue} has partitions 0 to {spec.partitions - 1}, not {unknown[0]}")
    wanted = sorted(set(partitions)) or list(range(spec.partitions))
    found = BlockingBufferClient(topology.name, buffers).ends(spec.queue)
    if missing := [p for p in wanted if p not in found]:
        raise DeadlineExceeded(f"the buffer of partition {missing[0]} does not answer now")
    ends = {p: found[p] for p in wanted}
    messages = sum(end.end_offset - end.start_offset for end in ends.values())
    size_bytes = sum(end.bytes for end in ends.values())
    groups = sorted({group for end in ends.values() for group in end.groups})
    behind = [
        f"group {group}, which has {lag:,} of them before it: it will never be given them"
        for group in groups
        if (lag := sum(end.lag(end.groups.get(group, 0)) for end in ends.values()))
    ]
    goes = (f"{messages:,} messages of {queue}, {size_bytes:,} bytes", *behind)
    numbers = {"messages": messages, "bytes": size_bytes}
    stays = (f"queue {queue}, and what is produced from now on",)
    return Removal("the messages of", queue, goes, stays, numbers=numbers), ends


def purge(topology: Topology, queue: str, ends: dict[PartitionId, LogEnds]) -> None:
    """Drop every message below these ends, whether groups have passed it or not.

    Offsets go on where they are; a group that is behind goes on at the first message that is left.
    """
    spec, _, buffers = topology.queue_spec(queue)
    logs = BlockingBufferClient(topology.name, buffers)
    for partition, end in ends.items():
        logs.truncate(spec.queue, partition, end.end_offset, force=True)
