"""Why a message does not come to its handlers: who waits for a reply is told. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from pxrs_ray.model import Offset, PartitionId
from pxrs_ray.status.answers import GroupStatus


def halt_before(
    groups: Sequence[GroupStatus], queue: str, partition: PartitionId, offset: Offset | None
) -> str | None:
    """Why no group of `queue` (its full name) comes to the message; None while one does, has
    passed it, or is not known."""
    found = []
    for group in groups:
        if group.queue != queue:
            continue
        told = _halt_of(group, partition, offset)
        if told is None:
            return None
        found.append(told)
    return "; ".join(found) or None


def _halt_of(group: GroupStatus, partition: PartitionId, offset: Offset | None) -> str | None:
    if group.problem:
        return f"group {group.group} is halted: {group.problem}"
    for each in group.partitions:
        if each.partition == partition and each.problem:
            if offset is not None and offset < (each.checkpoint or 0):
                return None
            return (
                f"group {group.group} is halted at P{partition} offset {each.checkpoint}: "
                f"{each.problem}"
            )
    return None
