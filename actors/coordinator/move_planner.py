"""`MovePlanner`: predicts what a move of buffers, or a drain of a node, would do. Changes nothing.

Rules of this file. Every figure is taken anew: sizes and rates from the buffers, in two looks that
are a second apart, and free space from a look at every node. What does not answer is reported as
not known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from pxrs_ray.actors.cluster import node_watch
from pxrs_ray.actors.cluster.node_watch import NodeWatch
from pxrs_ray.actors.consumer.specs import queue_spec
from pxrs_ray.actors.coordinator.buffer_pool import BufferPool
from pxrs_ray.actors.coordinator.consumer_replicas import ConsumerReplicas
from pxrs_ray.actors.coordinator.group_status import ASK_WAIT_S
from pxrs_ray.actors.coordinator.home_controller import HomeController
from pxrs_ray.actors.coordinator.replica_placing import ReplicaPlacing
from pxrs_ray.clock import monotonic_ms
from pxrs_ray.config import PxrsConfig
from pxrs_ray.data.log_limits import Durability
from pxrs_ray.errors import DeadlineExceeded, NotFound
from pxrs_ray.topology.move_plan import (
    Kept,
    Leaving,
    check_may_go,
    find_node,
    kept_between,
    lost_with_coordinator,
    plan_leaving,
)
from pxrs_ray.topology.node_seen import NodeSeen

# Between two looks at how many bytes came.
LOOK_S = 1.0
IN_MEMORY = "memory:"


class MovePlanner:
    """Plans for one topology, as its coordinator sees it now."""

    def __init__(
        self,
        config: PxrsConfig,
        homing: HomeController,
        watch: NodeWatch,
        pool: BufferPool,
        replica_sets: Sequence[ConsumerReplicas],
        replicas: ReplicaPlacing | None = None,
    ) -> None:
        self._config, self._homing, self._watch = config, homing, watch
        self._pool, self._replica_sets = pool, replica_sets
        self._replicas = replicas

    async def plan_move(self, slot: int, wanted: str | None, copy_per_s: float) -> Leaving:
        """Of one buffer, to the node that is `wanted`, or to the emptiest.

        Raises NotFound, UsageError; DeadlineExceeded while nobody tells which nodes live.
        """
        homes = self._homing.homes
        if slot not in homes.slots:
            raise NotFound(f"there is no buffer {slot}: there are {sorted(homes.slots)}")
        nodes = await self._nodes()
        kept = await self._kept([slot])
        if self._replicas is not None:
            return self._replicas.plan([(slot, None)], wanted, kept, copy_per_s)
        name = self._config.name
        return plan_leaving(name, homes, nodes, {slot: wanted}, kept, copy_per_s=copy_per_s)

    async def plan_drain(self, wanted: str, deadline_s: float, copy_per_s: float) -> Leaving:
        """Of everything that is on a node. Raises NotFound, and UsageError where it cannot be."""
        homes, nodes, name = self._homing.homes, await self._nodes(), self._config.name
        node = find_node(nodes, wanted)
        check_may_go(name, homes, node, nodes)
        slots = self._homing.at_home_on([node.node])
        if self._replicas is not None:
            slots = self._replicas.slots_on(node.disk)
        there = sorted(
            f"{replica_set.spec.group}/{replica.member}"
            for replica_set in self._replica_sets
            for replica in replica_set.replicas.values()
            if replica.node == node.node
        )
        kept = await self._kept(slots)
        if self._replicas is not None:
            leaving = [(slot, node.disk) for slot in slots]
            found = self._replicas.plan(leaving, None, kept, copy_per_s, deadline_s)
        else:
            found = plan_leaving(
                name,
                homes,
                nodes,
                dict.fromkeys(slots),
                kept,
                deadline_s=deadline_s,
                copy_per_s=copy_per_s,
            )
        return found.at(node, there, *self._of_coordinator(node))

    async def _nodes(self) -> list[NodeSeen]:
        nodes = await self._watch.living()
        if nodes is None:
            raise DeadlineExceeded(self._watch.problem)
        return await self._watch.looked_anew(nodes)

    async def _kept(self, slots: Sequence[int]) -> dict[int, Kept]:
        """What each of these has, and how fast it grows."""
        if not slots:
            return {}
        before, began_ms = await self._pool.stats(ASK_WAIT_S), monotonic_ms()
        await asyncio.sleep(LOOK_S)
        after, in_memory = await asyncio.gather(self._pool.stats(ASK_WAIT_S), self._in_memory())
        took_s = (monotonic_ms() - began_ms) / 1_000
        kept = {slot: kept_between(before.get(slot), after.get(slot), took_s) for slot in slots}
        return {s: replace(each, in_memory=in_memory.get(s, {})) for s, each in kept.items()}

    async def _in_memory(self) -> dict[int, dict[str, int]]:
        """How many messages of each queue are in the memory of each buffer, and nowhere else."""
        found: dict[int, dict[str, int]] = {}
        for name in self._config.queues:
            spec = queue_spec(self._config, name)
            if spec.external or spec.limits.durability is not Durability.MEMORY:
                continue
            for partition, end in (await self._pool.ends(spec.queue, ASK_WAIT_S)).items():
                of_slot = found.setdefault(partition % self._pool.count, {})
                of_slot[name] = of_slot.get(name, 0) + end.end_offset - end.start_offset
        return found

    def _of_coordinator(self, node: NodeSeen) -> tuple[list[str], list[str]]:
        """What cannot be done, and what is to be known, when the coordinator is there too."""
        if node_watch.node_here() != node.node:
            return [], []
        kept_here = self._config.store_url.startswith(IN_MEMORY)
        return lost_with_coordinator(self._config.name, in_memory=kept_here)
