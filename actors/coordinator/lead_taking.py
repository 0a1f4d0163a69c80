"""`take_lead`: has a replica that was elected serve its slot.

Rules of this file. It has its logs open since it followed. So one call asks it whose they are and
what they know of each group, and nothing else waits for that; and one call lets it serve, with all
that a leader has to know. Where its logs are not ours it serves nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection
from typing import TYPE_CHECKING

from pxrs_ray.log.identity import Identity
from pxrs_ray.replication.replica_calls import GroupKnown, LeadFound

if TYPE_CHECKING:
    from pxrs_ray.actors.coordinator.buffer_pool import BufferPool
    from pxrs_ray.actors.coordinator.group_controller import GroupController


async def take_lead(
    pool: BufferPool,
    index: int,
    claim: Identity,
    controllers: Collection[GroupController],
    opening: Awaitable[list[BaseException]],
    *,
    adopt: bool,
) -> list[BaseException]:
    """Let the replica of a slot serve under the term that it has there; answers what of its queues
    could not be opened. Raises what its calls raise."""
    epoch = pool.terms[index]
    groups = [(each.spec.queue, each.spec.group) for each in controllers]

    async def found_there() -> LeadFound:
        return await pool.lead_found(index, claim, groups, adopt=adopt)

    found, failed, _ = await asyncio.gather(found_there(), opening, pool.confirmed())
    if not pool.belongs(index, found.noted, claim, adopt=adopt):
        return failed
    knows = []
    for each in controllers:
        queue, group = each.spec.queue, each.spec.group
        seen = pool.of_buffer(index, found.fences[queue, group])
        await each.logs.check_told(index, seen)
        if not pool.is_external(queue):
            epochs = pool.of_buffer(index, each.epochs())
            checkpoints = pool.of_buffer(index, each.checkpoints())
            knows.append(GroupKnown(queue, group, epochs, checkpoints))
    await pool.have_serve(index, epoch, knows)
    return failed
