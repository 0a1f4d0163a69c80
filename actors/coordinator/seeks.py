"""Seeks of a running group: carries the steps that `pxrs_ray.group.seeking` decides."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from pxrs_ray.actors.consumer.specs import GroupSpec
from pxrs_ray.actors.coordinator.buffer_pool import BufferPool
from pxrs_ray.actors.coordinator.group_host import GroupHost
from pxrs_ray.errors import DeadlineExceeded
from pxrs_ray.group.events import Seek
from pxrs_ray.group.seek_plan import LogBounds, SeekPlan, Sought
from pxrs_ray.group.seeking import (
    AwaitMoved,
    MoveCheckpoints,
    ReadBounds,
    ReadCheckpoints,
    ReadTimes,
    SoughtGroup,
    plan_steps,
    seek_steps,
)
from pxrs_ray.model import Offset, PartitionId
from pxrs_ray.steps import Do, carry
from pxrs_ray.supervision.supervisor import within

SEEK_MARGIN_S = 15.0


async def plan_seek(spec: GroupSpec, host: GroupHost, pool: BufferPool, sought: Sought) -> SeekPlan:
    """See `plan_steps`."""
    return await carry(plan_steps(_of(spec), sought), partial(_make, spec, host, pool))


async def seek(
    spec: GroupSpec, host: GroupHost, pool: BufferPool, sought: Sought
) -> dict[PartitionId, Offset]:
    """See `seek_steps`."""
    return await carry(seek_steps(_of(spec), sought), partial(_make, spec, host, pool))


def _of(spec: GroupSpec) -> SoughtGroup:
    return SoughtGroup(spec.group, spec.queue, spec.partitions)


async def _make(spec: GroupSpec, host: GroupHost, pool: BufferPool, what: Do[Any]) -> Any:
    """Do what a step says."""
    match what:
        case ReadCheckpoints():
            return {row.partition: row.checkpoint for row in host.core.state.rows}
        case ReadBounds():
            ends = await pool.ends(spec.queue)
            return {p: LogBounds(end.start_offset, end.end_offset) for p, end in ends.items()}
        case ReadTimes(timestamp_ms):
            return await pool.offset_at(spec.queue, timestamp_ms)
        case MoveCheckpoints(offsets, told):
            await host.submit(Seek(dict(offsets), told))
        case AwaitMoved(offsets):
            await _moved(spec, host, offsets)
        case _:
            raise AssertionError(f"nobody does {what}")
    return None


async def _moved(spec: GroupSpec, host: GroupHost, offsets: Mapping[PartitionId, Offset]) -> None:
    deadline_s = host.core.settings.revoke_deadline_ms / 1_000 + SEEK_MARGIN_S
    try:
        await within(deadline_s, _seeks_done(host, offsets))
    except TimeoutError:
        raise DeadlineExceeded(
            f"seek of {spec.group}: not all partitions were handed back in {deadline_s:g} s; "
            "those that were not will still be moved"
        ) from None
    await host.settle()


async def _seeks_done(host: GroupHost, offsets: Mapping[PartitionId, Offset]) -> None:
    while any(p in host.core.state.seeks for p in offsets):
        await host.change()
