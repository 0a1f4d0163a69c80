"""`Autoscaler`: sets the number of a group's consumers as `pxrs_ray.scaling.GroupScaling` says.

Rules of this file. It looks once a second, and carries out what follows, one change at a time.
Consumers ask Ray for the resources in their `ray_options`. So a consumer that fits on no node makes
the Ray autoscaler add one, and a node whose consumers were all drained is removed by it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from pxrs_ray.actors.coordinator.buffer_pool import BufferPool
from pxrs_ray.actors.coordinator.consumer_replicas import ConsumerReplicas
from pxrs_ray.actors.coordinator.group_host import GroupHost
from pxrs_ray.clock import Instant, monotonic_ms, wall_ms
from pxrs_ray.config.options import ScalingConfig
from pxrs_ray.errors import PxrsError
from pxrs_ray.scaling import Advice
from pxrs_ray.scaling.group_scaling import (
    AskAges,
    AskLogEnds,
    GroupScaling,
    GroupSeen,
    ScaleTo,
    SeeGroup,
)
from pxrs_ray.steps import carry
from pxrs_ray.supervision.supervisor import Supervisor

logger = logging.getLogger(__name__)

LOOK_PAUSE_S = 1.0


class Autoscaler:
    """The scaler of one group; idle until it is given settings."""

    def __init__(self, replica_set: ConsumerReplicas, host: GroupHost, pool: BufferPool) -> None:
        self._replica_set, self._host, self._pool = replica_set, host, pool
        self._scaling = GroupScaling(lambda: Instant(monotonic_ms(), wall_ms()))
        self.pin = self._scaling.pin
        self._supervisor = Supervisor(f"group {host.group}")
        self._task: asyncio.Task[None] | None = None

    @property
    def advice(self) -> Advice | None:
        """What was advised last."""
        return self._scaling.advice

    def configure(self, config: ScalingConfig | None) -> None:
        """Begin, go on with other settings, or (None) leave the number of consumers alone."""
        self._scaling.configure(config.settings() if config is not None else None)
        if self._scaling.is_on and self._task is None:
            self._task = self._supervisor.keep("scaling", self._loop)

    def close(self) -> None:
        """Look no more."""
        if self._task is not None:
            self._task.cancel()

    async def _loop(self) -> None:
        while True:
            await asyncio.sleep(LOOK_PAUSE_S)
            if self._replica_set.supervisor is None:
                continue
            try:
                await self._look()
            except PxrsError as error:
                self._supervisor.note("scaling", error)
            else:
                self._supervisor.over("scaling")

    async def _look(self) -> None:
        await carry(self._scaling.looking(), self._carry)

    async def _carry(self, step: Any) -> Any:
        replica_set, queue = self._replica_set, self._replica_set.spec.queue
        match step:
            case AskLogEnds():
                return await self._pool.ends(queue)
            case AskAges(offsets):
                return await self._pool.ages(queue, offsets)
            case SeeGroup():
                replicas = replica_set.replicas
                running = sum(replica.state == "running" for replica in replicas.values())
                rows = self._host.core.state.rows
                return GroupSeen(rows, replica_set.spec.partitions, len(replicas), running)
            case ScaleTo(advice, before, choose):
                logger.info(
                    "group %s goes from %d to %d consumers: %s",
                    self._host.group,
                    before,
                    advice.consumers,
                    advice.reason,
                )
                await replica_set.scale(lambda: choose(len(replica_set.replicas)))
        return None
