"""`RemovalPlans`: what the removal of a group, a queue or a whole topology takes away, and what
prevents it. A part of `Coordinator`.

Rules of this file. Nothing is changed here. What is beside a queue goes with it, and is told with
it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pxrs_ray.actors.coordinator.leadership import Leadership
from pxrs_ray.actors.coordinator.request_handlers import answers
from pxrs_ray.actors.coordinator.topology_requests import (
    PlanGroupRemoval,
    PlanQueueRemoval,
    PlanTopologyRemoval,
)
from pxrs_ray.config.beside import BesideQueue, belongs_to, beside, gaps_queue
from pxrs_ray.data.protocol import LogEnds
from pxrs_ray.model import PartitionId
from pxrs_ray.topology.removal import Removal

TENANTS = "tenants/"


class RemovalPlans(Leadership):
    """See the rules at the head of this file."""

    _deployed: str

    @answers(PlanGroupRemoval)
    async def plan_group_removal(self, name: str) -> Removal:
        """What removing a group takes away. Raises NotFound."""
        await self._ready()
        return await self._group_removal(self._short(name))

    @answers(PlanQueueRemoval)
    async def plan_queue_removal(self, name: str) -> Removal:
        """What removing a queue takes away. Raises NotFound."""
        await self._ready()
        return await self._queue_removal(name)

    @answers(PlanTopologyRemoval)
    async def plan_topology_removal(self) -> Removal:
        """What removing the whole topology takes away."""
        await self._ready()
        config = self._config
        removals = [await self._removal_alone(name) for name in config.queues]
        messages = sum(removal.numbers["messages"] for removal in removals)
        size_bytes = sum(removal.numbers["bytes"] for removal in removals)
        return Removal(
            "topology",
            config.name,
            (
                *(line for removal in removals for line in removal.goes),
                f"{len(self._groups)} groups with their checkpoints and history",
                "the registry's rows of this topology, and its folders on every node",
            ),
            numbers={"messages": messages, "bytes": size_bytes, "groups": len(self._groups)},
        )

    async def _group_removal(self, name: str) -> Removal:
        config, full_name = self._config, self._config.full_name(name)
        declared = config.resolved_group(name)
        controller = self._groups.get(full_name)
        ends = await self._pool.ends(config.full_name(declared.queue))
        stands = controller.checkpoints() if controller is not None else {}
        lag = sum(end.lag(stands.get(p, 0)) for p, end in ends.items())
        uses = []
        if controller is not None and controller.replica_set.replicas:
            count = len(controller.replica_set.replicas)
            uses.append(f"{count} consumers run: `pxrs drain {name}` ends them")
        elif controller is not None and controller.host.core.live_members():
            members = ", ".join(
                known.member.member for known in controller.host.core.live_members()
            )
            uses.append(f"members read for it: {members}")
        if name in self._in_file("groups"):
            uses.append(f"{self._file} names it: `pxrs up` would make it anew, from its `start`")
        stays = [
            f"queue {queue} with what was put aside for it: `pxrs queue delete {queue}`"
            for queue in (declared.dead_letter_queue, declared.quarantine_queue)
            if queue is not None
        ]
        gaps = self._gaps_of(name)
        parts = (f"queue {gaps}, where it keeps what is done out of order",) if gaps else ()
        goes = (
            *parts,
            f"its checkpoints of {len(stands)} partitions, its history, and who put it there",
            f"its claim to {lag:,} messages of queue {declared.queue} that it has not passed: "
            "retention waits for it no longer",
        )
        numbers = {"lag": lag, "partitions": len(stands)}
        return Removal("group", name, goes, tuple(stays), tuple(uses), (), numbers)

    async def _queue_removal(self, name: str) -> Removal:
        """What removing a queue takes away, with all that is beside it."""
        config = self._config
        config.resolved_queue(name)  # one that there is not is said so
        parts = self._beside(name)
        going = (name, *parts.queues)
        found = [await self._removal_alone(each, going, parts.mover) for each in going]
        part_of = belongs_to(name, config.queues, config.groups)
        bars = [] if part_of is None else [part_of]
        return Removal(
            "queue",
            name,
            tuple(line for one in found for line in one.goes),
            (),
            tuple(line for one in found for line in one.uses),
            (*bars, *(line for one in found for line in one.bars)),
            {key: sum(one.numbers[key] for one in found) for key in found[0].numbers},
        )

    async def _removal_alone(
        self, name: str, going: tuple[str, ...] = (), mover: str | None = None
    ) -> Removal:
        """What removing one queue takes away, while those that are `going` go too."""
        config = self._config
        queue = config.resolved_queue(name)
        ends = await self._pool.ends(config.full_name(name))
        messages = sum(end.end_offset - end.start_offset for end in ends.values())
        size_bytes = sum(end.bytes for end in ends.values())
        readers = [group for group, one in config.groups.items() if one.queue == name]
        it = name if going and going[0] != name else "it"
        uses = [f"group {g} reads {it}, and is removed too" for g in readers if g != mover]
        if name in self._in_file("queues"):
            uses.append(f"{self._file} names {it}: `pxrs up` would make it anew, and empty")
        if await self._tenants_of(name):
            uses.append(f"tenants are moved between {it} and queues of their own")
        bars = [
            f"group {group} has {it} as its {what}: give that group another one, or remove it first"
            for group, one in config.groups.items()
            for what in ("dead_letter_queue", "quarantine_queue")
            if getattr(one, what) == name and one.queue not in (name, *going)
        ]
        lags = {group: self._lag_of(group, ends) for group in readers}
        goes = (
            f"{messages:,} messages of queue {name}, {size_bytes:,} bytes on disk",
            *(f"group {g}, which has {lag:,} of them before it" for g, lag in lags.items()),
        )
        numbers = {"messages": messages, "bytes": size_bytes, "groups": len(readers)}
        if queue.source is not None:
            goes = (f"queue {name}: its messages are in {queue.source} and stay there",)
        return Removal("queue", name, goes, (), tuple(uses), tuple(bars), numbers)

    def _beside(self, name: str) -> BesideQueue:
        config = self._config
        return beside(name, config.queues, config.groups, self._in_file("queues"))

    def _gaps_of(self, group: str) -> str | None:
        """The queue of a group's gap maps, if it has one."""
        name = gaps_queue(self._config.groups[group].queue, group)
        return name if name in self._config.queues else None

    def _lag_of(self, group: str, ends: Mapping[PartitionId, LogEnds]) -> int:
        controller = self._groups.get(self._config.full_name(group))
        stands = controller.checkpoints() if controller is not None else {}
        return sum(end.lag(stands.get(p, 0)) for p, end in ends.items())

    @property
    def _file(self) -> str:
        return str(json.loads(self._deployed or "{}").get("file", "the topology file"))

    def _in_file(self, kind: str) -> list[str]:
        """The queues or groups that the file that was deployed last names itself."""
        return list(json.loads(self._deployed or "{}").get(kind, ()))

    async def _tenants_of(self, queue: str) -> list[str]:
        documents = await self._thread.call(self._store.documents, self._config.name)
        return [name for name in documents if name.startswith(f"{TENANTS}{queue}/")]

    def _short(self, full_name: str) -> str:
        prefix = self._config.prefix
        return full_name.removeprefix(f"{prefix}.") if prefix else full_name
