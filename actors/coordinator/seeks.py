"""Seeks: which offset a seek means for each partition, and how running partitions get there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pxrs_ray.actors.consumer.specs import GroupSpec
from pxrs_ray.actors.coordinator.buffer_pool import BufferPool
from pxrs_ray.actors.coordinator.group_runtime import GroupRuntime
from pxrs_ray.data.protocol import LogEnds
from pxrs_ray.errors import DeadlineExceeded, NotFound, UsageError
from pxrs_ray.group.events import Seek
from pxrs_ray.model import Offset, PartitionId
from pxrs_ray.supervision.supervisor import within

SEEK_MARGIN_S = 15.0


async def seek(
    spec: GroupSpec,
    host: GroupRuntime,
    pool: BufferPool,
    kind: str,
    value: int,
    partitions: Sequence[PartitionId] | None,
) -> dict[PartitionId, Offset]:
    """Move checkpoints while running; answers the position of each partition afterwards."""
    ends = await pool.ends(spec.queue)
    wanted = list(range(spec.partitions)) if partitions is None else list(partitions)
    for partition in wanted:
        if not 0 <= partition < spec.partitions:
            raise NotFound(
                f"queue {spec.queue} has partitions 0 to {spec.partitions - 1}, not {partition}"
            )
        if partition not in ends:
            raise DeadlineExceeded(f"the buffer of partition {partition} does not answer now")
    times = await pool.offset_at(spec.queue, value) if kind == "time" else {}
    offsets = {p: seek_offset(kind, value, ends[p], times) for p in wanted}
    cause = f"seek to {kind} {value}" if kind in ("offset", "time") else f"seek to {kind}"
    await host.submit(Seek(offsets, cause))
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


async def _seeks_done(host: GroupRuntime, offsets: Mapping[PartitionId, Offset]) -> None:
    while any(p in host.core.state.seeks for p in offsets):
        await host.change()


def seek_offset(kind: str, value: int, end: LogEnds, times: Mapping[PartitionId, Offset]) -> Offset:
    """The offset that seeking to `kind` and `value` leads to; UsageError outside of the log."""
    match kind:
        case "start":
            return end.start_offset
        case "end":
            return end.end_offset
        case "time":
            return times[end.partition]
        case "offset" if end.start_offset <= value <= end.end_offset:
            return value
        case "offset":
            raise UsageError(
                f"cannot seek partition {end.partition} to offset {value}: its log holds "
                f"{end.start_offset} to {end.end_offset}; 'start' and 'end' lead to its ends"
            )
        case _:
            raise UsageError(f"seek to 'start', 'end', 'time' or 'offset', not {kind!r}")
