"""Seeks of a running group: what one would do, and how running partitions get there."""

from __future__ import annotations

from collections.abc import Mapping

from pxrs_ray.actors.consumer.specs import GroupSpec
from pxrs_ray.actors.coordinator.buffer_pool import BufferPool
from pxrs_ray.actors.coordinator.group_host import GroupHost
from pxrs_ray.errors import DeadlineExceeded, NotFound
from pxrs_ray.group.events import Seek
from pxrs_ray.group.seek_plan import LogBounds, PartitionSeek, SeekPlan, Sought, seek_offset
from pxrs_ray.model import Offset, PartitionId
from pxrs_ray.supervision.supervisor import within

SEEK_MARGIN_S = 15.0


async def plan_seek(
    spec: GroupSpec,
    host: GroupHost,
    pool: BufferPool,
    sought: Sought,
) -> SeekPlan:
    """What a seek would do now. Raises NotFound, UsageError, and DeadlineExceeded while a buffer
    that must say where its log ends is away."""
    checkpoints = {row.partition: row.checkpoint for row in host.core.state.rows}
    ends = await pool.ends(spec.queue)
    wanted = sought.wanted(spec.partitions)
    for partition in wanted:
        if not 0 <= partition < spec.partitions:
            raise NotFound(
                f"queue {spec.queue} has partitions 0 to {spec.partitions - 1}, not {partition}"
            )
        if partition not in ends:
            raise DeadlineExceeded(f"the buffer of partition {partition} does not answer now")
    by_time = sought.kind == "time"
    times = await pool.offset_at(spec.queue, sought.value) if by_time else {}
    rows = []
    for partition in wanted:
        end = ends[partition]
        bounds = LogBounds(end.start_offset, end.end_offset)
        checkpoint = checkpoints[partition]
        offset = seek_offset(sought, partition, bounds, checkpoint, times)
        rows.append(PartitionSeek(partition, checkpoint, offset))
    return SeekPlan(spec.group, tuple(rows))


async def seek(
    spec: GroupSpec,
    host: GroupHost,
    pool: BufferPool,
    sought: Sought,
) -> dict[PartitionId, Offset]:
    """Move checkpoints while running; answers the position of each partition afterwards."""
    plan = await plan_seek(spec, host, pool, sought)
    offsets = {row.partition: row.offset for row in plan.rows}
    await host.submit(Seek(offsets, sought.told()))
    deadline_s = host.core.settings.revoke_deadline_ms / 1_000 + SEEK_MARGIN_S
    try:
        await within(deadline_s, _seeks_done(host, offsets))
    except TimeoutError:
        raise DeadlineExceeded(
            f"seek of {spec.group}: not all partitions were handed back in {deadline_s:g} s; "
            "those that were not will still be moved"
        ) from None
    await host.settle()
    return offsets


async def _seeks_done(host: GroupHost, offsets: Mapping[PartitionId, Offset]) -> None:
    while any(p in host.core.state.seeks for p in offsets):
        await host.change()
