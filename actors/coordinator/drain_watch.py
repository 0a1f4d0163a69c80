"""`DrainWatch`: empties nodes that Ray is about to remove, before they are gone.

Ray marks a node as draining when the autoscaler, `ray drain-node` or the end of its machine (a
SIGTERM to `ray start --block`) removes it, and then waits a while. Consumers there hand over and
are started anew elsewhere; buffers move their logs to another node. A single process that gets a
SIGTERM hands over by itself: see `pxrs_ray.actors.cluster.sigterm`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable

from pxrs_ray.actors.cluster import gcs
from pxrs_ray.actors.cluster.node_watch import draining_nodes
from pxrs_ray.actors.coordinator.consumer_replicas import ConsumerReplicas
from pxrs_ray.errors import DeadlineExceeded, PxrsError
from pxrs_ray.supervision.supervisor import Supervisor
from pxrs_ray.topology.move_steps import Drains

logger = logging.getLogger(__name__)

LOOK_PAUSE_S = 1.0


class DrainWatch:
    """Looks for draining nodes every second, on the coordinator's event loop."""

    def __init__(
        self,
        replica_sets: Callable[[], Iterable[ConsumerReplicas]],
        leave: Callable[[Collection[str]], None] = lambda _: None,
    ) -> None:
        self._replica_sets = replica_sets
        self._leave_with_logs = leave
        self._moves: set[asyncio.Task[None]] = set()
        self._drains = Drains()
        self._supervisor = Supervisor("draining nodes")
        self._task = self._supervisor.keep("watch", self._loop)

    def close(self) -> None:
        """Look no more."""
        self._task.cancel()

    async def _loop(self) -> None:
        while True:
            await asyncio.sleep(LOOK_PAUSE_S)
            try:
                nodes = await gcs.ask("drains", draining_nodes)
            except DeadlineExceeded as error:
                logger.info("whether nodes are drained is not known now: %s", error)
                continue
            for node in self._drains.seen(nodes):
                logger.warning("node %s is drained: its consumers and logs move", node)
            self._leave_with_logs(nodes)
            if nodes and not self._moves:
                for replica_set in self._replica_sets():
                    leave = self._leave(replica_set, nodes)
                    move = self._supervisor.once(replica_set.spec.group, leave)
                    self._moves.add(move)
                    move.add_done_callback(self._moves.discard)

    async def _leave(self, replica_set: ConsumerReplicas, nodes: set[str]) -> None:
        try:
            await replica_set.leave_nodes(nodes)
        except PxrsError as error:
            self._supervisor.note(f"moving consumers of {replica_set.spec.group}", error)
