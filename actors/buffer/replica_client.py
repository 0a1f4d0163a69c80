"""How the replicas of buffers are made, called and found: `make_replica`, `ReplicaClient` and
`leading_replica`.

Rules of this file. A replica is one process, on one node: Ray starts none again. So Ray tells
whoever has a call there at once that it has ended (of an actor that restarts it does so after a
second), and the coordinator makes the next one. What a replica says is of one life of it. Of
several that take themselves for leaders, the one of the highest epoch leads.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from pxrs_ray.actors import names
from pxrs_ray.actors.buffer.buffer_making import CALLS_MAX
from pxrs_ray.actors.buffer.replica_buffer import ReplicaBuffer
from pxrs_ray.actors.cluster.named_actors import actors_named, find_actor, make_actor
from pxrs_ray.data.protocol import QueueSpec
from pxrs_ray.model import Generation, Offset, PartitionId
from pxrs_ray.replication.placement import Disk, LeaderEpoch
from pxrs_ray.replication.replica_calls import ReplicaAnswer, ReplicaRules, ReplicaTold
from pxrs_ray.supervision.supervisor import within

# A caller waits meanwhile, also for those whose buffers live: who is silent is asked again soon.
FIND_S = 0.25
# For how long each may take to say whether it leads now.
ANSWER_S = 0.05


def make_replica(
    topology: str,
    index: int,
    buffers: int,
    folder: str,
    rules: ReplicaRules,
    disk: Disk,
    node: str,
    lease_s: float,
) -> Any:
    """Start the replica of a slot on a disk, or find it when it runs; answers its handle."""
    options = {
        "get_if_exists": True,
        "max_restarts": 0,
        "max_task_retries": 0,
        "max_concurrency": CALLS_MAX,
        "scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False),
        "enable_task_events": False,
    }
    return make_actor(
        ReplicaBuffer,
        names.replica(topology, index, disk),
        options,
        *(topology, index, buffers, folder, rules, disk),
        lease_s=lease_s,
    )


class ReplicaClient:
    """A coordinator's calls to one replica. On an event loop."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle

    async def look(self, told: ReplicaTold, wait_s: float) -> ReplicaAnswer:
        """See `ReplicaBuffer.look`. Raises TimeoutError, and what Ray raises."""
        found: ReplicaAnswer = await within(wait_s, self.handle.look.remote(told))
        return found

    async def open(
        self, spec: QueueSpec, ends: Mapping[PartitionId, Offset], *, make: bool, wait_s: float
    ) -> None:
        """See `Buffer.open`."""
        await within(wait_s, self.handle.open.remote(spec, dict(ends), make))

    async def drop_queue(self, queue: str, wait_s: float) -> None:
        """See `Buffer.drop_queue`."""
        await within(wait_s, self.handle.drop_queue.remote(queue))

    async def drop_group(self, queue: str, group: str, wait_s: float) -> None:
        """See `Buffer.drop_group`."""
        await within(wait_s, self.handle.drop_group.remote(queue, group))

    async def forget(self, queues: Sequence[str], wait_s: float) -> None:
        """See `Buffer.forget`."""
        await within(wait_s, self.handle.forget.remote(queues))

    async def dismiss(
        self, generation: Generation, asked_ms: int, queues: Sequence[str], wait_s: float
    ) -> bool:
        """See `ReplicaBuffer.dismiss`."""
        gone = self.handle.dismiss.remote(generation, asked_ms, queues)
        found: bool = await within(wait_s, gone)
        return found

    async def stop(self, wait_s: float) -> None:
        """See `Buffer.close`."""
        await within(wait_s, self.handle.close.remote())


def leading_replica(topology: str, index: int, wait_s: float = FIND_S) -> Any | None:
    """The replica that leads the slot of a buffer, as soon as one does; None where there is none,
    or none tells in time. Blocks."""
    end_s = time.monotonic() + wait_s
    found = map(find_actor, actors_named(names.replicas_of(topology, index)))
    asked = {handle.leads.remote(): handle for handle in found if handle is not None}
    there = set(asked.values())
    leads: list[tuple[LeaderEpoch, Any]] = []
    for epoch, handle in _answers(asked, min(end_s, time.monotonic() + ANSWER_S)):
        if epoch is None:
            there.discard(handle)
        elif epoch:
            leads.append((epoch, handle))
    if leads:
        return max(leads, key=lambda one: one[0])[1]
    left_ms = round((end_s - time.monotonic()) * 1_000)
    if left_ms <= 0:
        return None
    # Whoever begins to lead from now on was elected just now.
    asked |= {handle.leads.remote(left_ms): handle for handle in there}
    return next((handle for epoch, handle in _answers(asked, end_s) if epoch), None)


def _answers(asked: dict[Any, Any], end_s: float) -> Iterator[tuple[LeaderEpoch | None, Any]]:
    """What each answers that it leads under, as it comes; None: it has ended. Who has answered is
    asked no more."""
    while asked and (left_s := end_s - time.monotonic()) > 0:
        done, _ = ray.wait(list(asked), timeout=left_s)
        for answer in done:
            handle = asked.pop(answer)
            try:
                yield ray.get(answer), handle
            except RayError:
                yield None, handle
