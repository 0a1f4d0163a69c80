"""`topology_status`: the status of a whole topology, within seconds, even when some do not
answer."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Mapping, Sequence

from pxrs_ray.actors.coordinator.buffer_pool import BufferPool
from pxrs_ray.actors.coordinator.group_controller import GroupController
from pxrs_ray.actors.coordinator.group_status import ASK_WAIT_S, queue_status, unanswered
from pxrs_ray.actors.coordinator.home_controller import HomeController
from pxrs_ray.actors.coordinator.placement_status import buffer_statuses, uneven
from pxrs_ray.actors.coordinator.store_thread import StoreThread
from pxrs_ray.config import PxrsConfig
from pxrs_ray.data.protocol import LogEnds
from pxrs_ray.model import PartitionId
from pxrs_ray.status.answers import QueueStatus, TopologyStatus
from pxrs_ray.status.problem import Report
from pxrs_ray.store.registry import StoreInfo
from pxrs_ray.supervision.supervisor import beside


async def topology_status(
    config: PxrsConfig,
    started_s: float,
    pool: BufferPool,
    homing: HomeController,
    controllers: Collection[GroupController],
    thread: StoreThread,
    store: StoreInfo,
    reports: Sequence[Report],
    waiting: tuple[str, ...],
) -> TopologyStatus:
    """Everything, at this moment."""
    # Before the ends, which are asked later: lag is never told as less than it was.
    stood = {controller: controller.checkpoints() for controller in controllers}
    looking = beside(thread.look, ASK_WAIT_S)
    queues = {name: config.full_name(name) for name in config.queues}
    stats, found = await asyncio.gather(pool.stats(ASK_WAIT_S), pool.all_ends(ASK_WAIT_S))
    ends = {queue: found.get(queue, {}) for queue in queues.values()}
    groups = await asyncio.gather(
        *(controller.status(at, ends[controller.spec.queue]) for controller, at in stood.items())
    )
    await looking

    def one(name: str, ends: Mapping[PartitionId, LogEnds]) -> QueueStatus:
        partitions = config.resolved_queue(name).partitions
        unknown = unanswered(pool, config.full_name(name), partitions, ends)
        return queue_status(name, partitions, ends, unknown)

    return TopologyStatus(
        config.name,
        config.fingerprint(),
        os.getpid(),
        started_s,
        pool.count,
        thread.status(store),
        tuple(one(name, ends[queue]) for name, queue in queues.items()),
        tuple(groups),
        (*pool.reports(), *reports),
        waiting,
        buffer_statuses(homing, pool, stats),
        uneven(homing, pool),
    )
