"""`Autoscaler`: sets the number of a group's consumers as `pxrs_ray.scaling.Scaler` says.

Rules of this file. It looks once a second and does what the scaler says, one change at a time.
Consumers ask Ray for the resources in their `ray_options`. So a consumer that fits on no node makes
the Ray autoscaler add one, and a node whose consumers were all drained is removed by it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from functools import partial

from pxrs_ray.actors.coordinator.buffer_pool import BufferPool
from pxrs_ray.actors.coordinator.consumer_replicas import ConsumerReplicas
from pxrs_ray.actors.coordinator.group_host import GroupHost
from pxrs_ray.clock import monotonic_ms, wall_ms
from pxrs_ray.config.options import ScalingConfig
from pxrs_ray.data.protocol import LogEnds
from pxrs_ray.errors import PxrsError
from pxrs_ray.model import PartitionId
from pxrs_ray.scaling import Advice, Observation, PartitionLoad, Scaler
from pxrs_ray.supervision.supervisor import Supervisor

logger = logging.getLogger(__name__)

LOOK_PAUSE_S = 1.0


class Autoscaler:
    """The scaler of one group; idle until it is given settings."""

    def __init__(self, replica_set: ConsumerReplicas, host: GroupHost, pool: BufferPool) -> None:
        self.advice: Advice | None = None
        self._replica_set, self._host, self._pool = replica_set, host, pool
        self._scaler: Scaler | None = None
        self._supervisor = Supervisor(f"group {host.group}")
        self._task: asyncio.Task[None] | None = None

    def configure(self, config: ScalingConfig | None) -> None:
        """Begin, go on with other settings, or (None) leave the number of consumers alone."""
        self.advice = None
        self._scaler = Scaler(config.settings()) if config is not None else None
        if self._scaler is not None and self._task is None:
            self._task = self._supervisor.keep("scaling", self._loop)

    def pin(self, consumers: int | None) -> None:
        """Keep a number that an operator has set, until None releases it."""
        if self._scaler is not None:
            self._scaler.pin(consumers)

    def close(self) -> None:
        """Look no more."""
        if self._task is not None:
            self._task.cancel()

    async def _loop(self) -> None:
        while True:
            await asyncio.sleep(LOOK_PAUSE_S)
            scaler, supervisor = self._scaler, self._replica_set.supervisor
            if scaler is None or supervisor is None:
                continue
            try:
                await self._look(scaler)
            except PxrsError as error:
                self._supervisor.note("scaling", error)
            else:
                self._supervisor.over("scaling")

    async def _look(self, scaler: Scaler) -> None:
        queue = self._replica_set.spec.queue
        ends = await self._pool.ends(queue)
        if len(ends) < self._replica_set.spec.partitions:
            return  # a buffer is away: what it holds would look as if it were done
        late = {
            row.partition: row.checkpoint
            for row in self._host.core.state.rows
            if ends[row.partition].lag(row.checkpoint)
        }
        ages = await self._pool.ages(queue, late) if late else {}
        seen = self._observe(ends, ages)
        self.advice = scaler.advise(seen)
        if self.advice.consumers != seen.wanted:
            logger.info(
                "group %s goes from %d to %d consumers: %s",
                self._host.group,
                seen.wanted,
                self.advice.consumers,
                self.advice.reason,
            )
            await self._replica_set.scale(partial(self._wanted, self.advice, scaler.pinned))

    def _wanted(self, advice: Advice, pinned: int | None) -> int:
        """What was advised, where nobody has set or released the number since; else what is."""
        if self._scaler is not None and self._scaler.pinned == pinned:
            return advice.consumers
        return len(self._replica_set.replicas)

    def _observe(
        self, ends: Mapping[PartitionId, LogEnds], ages: Mapping[PartitionId, int]
    ) -> Observation:
        now_ms = wall_ms()
        loads = tuple(
            PartitionLoad(
                row.partition,
                ends[row.partition].end_offset,
                max(row.checkpoint, ends[row.partition].start_offset),
                max(0, now_ms - ages[row.partition]) if row.partition in ages else 0,
                row.owner,
            )
            for row in self._host.core.state.rows
        )
        running = sum(replica.state == "running" for replica in self._replica_set.replicas.values())
        at_ms = monotonic_ms()
        return Observation(at_ms, len(self._replica_set.replicas), running, loads)
