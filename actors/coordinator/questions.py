"""`Questions`: what a coordinator is asked and tells, without changing anything. A part of
`Coordinator`.

Rules of this file. A status is answered within seconds, and names what did not answer.
"""

from __future__ import annotations

import asyncio

from pxrs_ray.actors.cluster import gcs
from pxrs_ray.actors.consumer.handler import HandlerRef
from pxrs_ray.actors.consumer.member_requests import GetGroupSpec
from pxrs_ray.actors.consumer.specs import GroupSpec
from pxrs_ray.actors.coordinator.commands import Commands
from pxrs_ray.actors.coordinator.deletion import Deletion
from pxrs_ray.actors.coordinator.group_controller import GroupController
from pxrs_ray.actors.coordinator.group_status import ASK_WAIT_S
from pxrs_ray.actors.coordinator.request_handlers import answers
from pxrs_ray.actors.coordinator.topology_requests import (
    GetBufferStats,
    GetConfig,
    GetGroupStatus,
    GetHandler,
    GetHistory,
    GetPast,
    GetQueue,
    GetStatus,
    GetStoreStatus,
)
from pxrs_ray.actors.coordinator.topology_status import topology_status
from pxrs_ray.config import PxrsConfig
from pxrs_ray.data.protocol import BufferStats, QueueSpec
from pxrs_ray.errors import NotFound
from pxrs_ray.status.answers import GroupStatus, History, StoreStatus, TopologyStatus
from pxrs_ray.status.past import Past, Point
from pxrs_ray.status.problem import Kind, Report
from pxrs_ray.supervision.supervisor import problems_here


class Questions(Deletion):
    """See the rules at the head of this file."""

    changes: Commands
    _started_s: float
    _buffer_count: int
    _seal_problem: str
    _past: Past

    @answers(GetConfig)
    async def config(self) -> PxrsConfig:
        """What is in force."""
        await self._ready()
        return self._config

    @answers(GetQueue)
    async def queue(self, name: str) -> tuple[QueueSpec, PxrsConfig, int]:
        """The queue as buffers and producers know it, the configuration, and how many buffers."""
        await self._ready()
        return self._spec(name), self._config, self._buffer_count

    def _controller(self, group: str) -> GroupController:
        try:
            return self._groups[group]
        except KeyError:
            known = ", ".join(sorted(self._groups)) or "none"
            raise NotFound(
                f"no group {group!r} in topology {self._config.name}; there are: {known}"
            ) from None

    @answers(GetGroupSpec)
    async def group_spec(self, group: str) -> GroupSpec:
        """A group as its members must know it."""
        await self._ready()
        return self._controller(group).spec

    @answers(GetHandler)
    async def handler(self, group: str) -> HandlerRef | None:
        """What a group's consumers call; None when it was not started."""
        await self._ready()
        supervisor = self._controller(group).replica_set.supervisor
        return supervisor.handler if supervisor is not None else None

    @answers(GetStatus)
    async def status(self) -> TopologyStatus:
        """Everything, at this moment."""
        await self._ready()
        return await topology_status(
            self._config,
            self._started_s,
            self._pool,
            self._homing,
            self._groups.values(),
            self._thread,
            self._store.describe(),
            self._reports(),
            self.changes.waiting(),
        )

    def _reports(self) -> list[Report]:
        files = filter(None, (*self._high_water.problems, self._seal_problem))
        found = [*gcs.reports(), *(Report(Kind.COORDINATOR_FILE, text) for text in files)]
        found += [*self._homing.reports(), *self._moving.reports()]
        return found + [Report(Kind.WORK_FAILED, text) for text in problems_here()]

    @answers(GetStoreStatus)
    async def store_status(self) -> StoreStatus:
        """How the registry's store is doing; only that is asked."""
        await self._ready()
        await self._thread.look(ASK_WAIT_S)
        return self._thread.status(self._store.describe())

    @answers(GetGroupStatus)
    async def group_status(self, group: str) -> GroupStatus:
        """One group, at this moment."""
        await self._ready()
        controller = self._controller(group)
        checkpoints = controller.checkpoints()
        ends, _ = await asyncio.gather(
            self._pool.ends(controller.spec.queue, ASK_WAIT_S), self._thread.look(ASK_WAIT_S)
        )
        return await controller.status(checkpoints, ends)

    @answers(GetBufferStats)
    async def buffer_stats(self) -> dict[int, BufferStats]:
        """What each buffer has done and holds; those that are away are missing."""
        await self._ready()
        return await self._pool.stats()

    @answers(GetPast)
    async def past(self) -> dict[str, list[Point]]:
        """The last hour of each group, for as long as this incarnation runs."""
        return self._past.points()

    @answers(GetHistory)
    async def history(self, group: str, after_version: int, limit: int) -> History:
        """The newest `limit` changes of a group after `after_version`."""
        await self._ready()
        key = self._controller(group).key
        changes = await self._thread.call(self._store.changes, key, after_version, limit)
        return History(group, tuple(changes))
