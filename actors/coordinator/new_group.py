"""Creates a new group's records: rows, start position and first epochs, in one durable step.

Rules of this file. A group is new until the topology's list of groups names it; until then nobody
can be a member of it. A creation that was cut off leaves records in the registry; the next one sets
them to where the group shall begin now. So creating it again is creating it once. No epoch that a
log has seen, and none of a removed group, is given out again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pxrs_ray.actors.consumer.specs import GroupSpec
from pxrs_ray.actors.coordinator.buffer_pool import BufferPool
from pxrs_ray.actors.coordinator.group_host import GroupHost
from pxrs_ray.actors.coordinator.store_thread import StoreThread
from pxrs_ray.errors import AlreadyExists, DeadlineExceeded
from pxrs_ray.group.events import Raise, Seek
from pxrs_ray.model import Epoch, Generation, Offset, PartitionId, PartitionRow, Snapshot
from pxrs_ray.store.registry import RegistryStore

# States of a log in which its end is what it says.
KNOWN = ("open", "lost")


@dataclass(frozen=True, slots=True)
class Floor:
    """Epochs and generations up to these were given out under names of groups that are gone."""

    epoch: Epoch = 0
    generation: Generation = 0


async def first_rows(
    spec: GroupSpec, pool: BufferPool, floor: Floor
) -> dict[PartitionId, PartitionRow]:
    """The rows that a new group begins with.

    Raises DeadlineExceeded when a buffer does not tell what is needed: half a start position is
    none.
    """
    starts = await _starts(spec, pool)
    fences = await pool.fences(spec.queue, spec.group)
    rows = {}
    for partition in range(spec.partitions):
        checkpoint = starts.get(partition, 0)
        over = max(floor.epoch, fences.get(partition, 0))
        epoch = over + 1 if over or checkpoint else 0
        rows[partition] = PartitionRow(partition, epoch=epoch, checkpoint=checkpoint)
    return rows


async def _starts(spec: GroupSpec, pool: BufferPool) -> Mapping[PartitionId, Offset]:
    if spec.config.start != "end" or spec.source is not None:
        return {}
    ends = await pool.ends(spec.queue)
    missing = [p for p in range(spec.partitions) if p not in ends or ends[p].state not in KNOWN]
    if missing:
        raise DeadlineExceeded(
            f"group {spec.group} begins at the end of {spec.queue}, and the log of partition "
            f"{missing[0]} does not tell where that is; nothing was made: try again"
        )
    return {p: end.end_offset for p, end in ends.items()}


async def make_rows(
    key: str,
    rows: Mapping[PartitionId, PartitionRow],
    floor: Floor,
    store: RegistryStore,
    thread: StoreThread,
) -> None:
    """Write the rows of a new group, all or none; what is there already stays."""
    snapshot = Snapshot(key, floor.generation, tuple(rows.values()), (), 0)
    try:
        await thread.call_until_known(store.restore, snapshot, (), {})
    except AlreadyExists:
        pass  # ours, and the answer was lost; or a former try's: see `settle_rows`


async def settle_rows(host: GroupHost, rows: Mapping[PartitionId, PartitionRow]) -> None:
    """Bring what a former try left to where the group begins now.

    A group that has members is none of those: it was begun by another coordinator, and stays.
    """
    state = host.core.state
    if state.members or any(row.owner is not None for row in state.rows):
        return
    moved = {p: r.checkpoint for p, r in rows.items() if state.rows[p].checkpoint != r.checkpoint}
    if moved:
        await host.submit(Seek(moved, "begins here"))
    low = {p: row.epoch for p, row in rows.items() if state.rows[p].epoch < row.epoch}
    if low:
        await host.submit(Raise(low, "begins above former epochs"))
