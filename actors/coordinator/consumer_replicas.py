"""`ConsumerReplicas`: how many consumers a group should have, their names, and what of that
survives a coordinator.

Rules of this file. One change of the consumers at a time. What must survive the coordinator
(handler, members, their actors, whether the group is paused) is in the document `replicas` of the
group's registry. The document is saved after each change; a consumer that it does not list is an
orphan and is killed at the next start.
"""

from __future__ import annotations

import asyncio
import json
import statistics
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import ray

from pxrs_ray.actors.cluster import gcs
from pxrs_ray.actors.cluster.free_resources import free_by_node, needs_of, unplaced
from pxrs_ray.actors.consumer.handler import HandlerRef
from pxrs_ray.actors.consumer.specs import GroupSpec
from pxrs_ray.actors.coordinator.consumer_replica import ConsumerReplica
from pxrs_ray.actors.coordinator.consumer_supervisor import ConsumerSupervisor
from pxrs_ray.actors.coordinator.group_host import GroupHost
from pxrs_ray.actors.coordinator.group_requests import (
    AddConsumer,
    PlanScale,
    RemoveConsumer,
    RestartConsumer,
    StartGroup,
    StopGroup,
)
from pxrs_ray.actors.coordinator.reconfiguration import OF_CONSUMERS
from pxrs_ray.actors.coordinator.replicas_document import ReplicasDocument, kill_orphans
from pxrs_ray.actors.coordinator.request_handlers import answers_for_group
from pxrs_ray.clock import wall_ms
from pxrs_ray.config import GroupConfig
from pxrs_ray.config.declare import Effect
from pxrs_ray.config.diff import differences
from pxrs_ray.errors import AlreadyExists, NotFound, UsageError
from pxrs_ray.group.events import Configure, Plan
from pxrs_ray.group.incarnations import forget
from pxrs_ray.group.replica_count import (
    BeginAnew,
    CountConsumers,
    EndAll,
    EndSome,
    Owed,
    StartMore,
    Unkept,
    check_count,
    new_names,
    scale,
    start,
    who_goes_first,
)
from pxrs_ray.model import Incarnation, Member, MemberId
from pxrs_ray.steps import Do, carry
from pxrs_ray.store.rules import check_member
from pxrs_ray.supervision.supervisor import Supervisor


class ConsumerReplicas:
    """The wanted consumers of one group. For the coordinator's event loop."""

    def __init__(
        self, spec: GroupSpec, host: GroupHost, keep: Callable[[str], Awaitable[object]]
    ) -> None:
        self.spec = spec
        self.supervisor: ConsumerSupervisor | None = None
        self.incarnations: dict[MemberId, Incarnation] = {}
        # When an operator set the number of consumers, other than the file does.
        self.scaled_ms: int | None = None
        self._host = host
        self._keep = keep
        self._given_options: dict[str, Any] = {}
        self._changing = asyncio.Lock()
        self._saving = asyncio.Lock()
        self._unkept = Unkept()
        self._owed: Owed[Effect] = Owed()
        self._keeping: asyncio.Task[None] | None = None
        self._loops = Supervisor(f"group {spec.group}")

    @property
    def replicas(self) -> Mapping[MemberId, ConsumerReplica]:
        """Every wanted consumer by name."""
        return self.supervisor.replicas if self.supervisor is not None else {}

    # --- changing ---------------------------------------------------------------------------------

    @answers_for_group(StartGroup)
    async def start(
        self, handler: HandlerRef, consumers: int, ray_options: Mapping[str, Any]
    ) -> None:
        """Start `consumers` with `handler`; a group that runs another handler is replaced."""
        check_count(consumers)
        check_ray_options(ray_options)
        async with self._changing:
            self._given_options.update(ray_options)
            spec = replace(self.spec, config=self._with_given(self.spec.config))
            known = self.supervisor.handler if self.supervisor is not None else None
            steps = start(consumers, is_same=known == handler and spec == self.spec)
            self.scaled_ms = None
            await carry(steps, partial(self._do, spec, handler))

    async def _do(self, spec: GroupSpec, handler: HandlerRef | None, what: Do[Any]) -> Any:
        match what:
            case CountConsumers():
                return len(self.replicas)
            case StartMore(count):
                await self._running().add(self._new_names(count))
            case EndSome(count):
                await self._running().remove(self._least_loaded(count), "scaled in")
            case EndAll(cause):
                await self._running().stop(cause)
            case BeginAnew():
                assert handler is not None
                self.spec = spec
                self.supervisor = self._new_supervisor(handler)
        return None

    async def scale(self, choose: Callable[[], int], *, by_hand: bool = False) -> None:
        """Have exactly as many consumers as `choose` says; those on draining nodes go first, then
        those that own least.

        `choose` is asked when this change's turn has come, and not where it is refused.
        """
        async with self._changing:
            self._running()
            consumers = choose()
            if by_hand:
                declared = self.spec.config
                differs = declared.scaling is not None or consumers != declared.consumers
                self.scaled_ms = wall_ms() if differs else None
            await self._scale(consumers)
            if by_hand:
                await self.save()

    async def released(self) -> None:
        """The load decides again: no number is an operator's any more."""
        self.scaled_ms = None
        await self.save()

    async def _scale(self, consumers: int) -> None:
        await carry(scale(consumers), partial(self._do, self.spec, None))

    @answers_for_group(StopGroup)
    async def stop(self) -> None:
        """Drain and end every consumer; the group keeps its checkpoints."""
        async with self._changing:
            if self.supervisor is not None:
                await self.supervisor.stop("stopped")
                self.supervisor = None
                await self.save()

    @answers_for_group(AddConsumer)
    async def add_consumer(self, member: MemberId) -> None:
        """Start one more consumer, by this name."""
        check_member(Member(member or " ", 1))
        async with self._changing:
            supervisor = self._running()
            if member in supervisor.replicas or member in self._host.core.state.members:
                raise AlreadyExists(
                    f"{member} is a consumer of {self.spec.group} already: choose another name"
                )
            await supervisor.add([member])

    @answers_for_group(RemoveConsumer)
    async def remove_consumer(self, member: MemberId) -> None:
        """Drain one consumer and end it."""
        async with self._changing:
            supervisor = self._running()
            if member not in supervisor.replicas:
                known = sorted(supervisor.replicas)
                raise NotFound(f"no consumer {member!r} in {self.spec.group}; there are {known}")
            await supervisor.remove([member], "removed")

    @answers_for_group(RestartConsumer)
    async def restart_consumer(self, member: MemberId) -> None:
        """End one consumer's process, and start it anew; returns when it is on its way."""
        supervisor = self._running()
        if member not in supervisor.replicas:
            raise NotFound(
                f"no consumer {member!r} in {self.spec.group}; there are "
                f"{sorted(supervisor.replicas)}"
            )
        await supervisor.restart(member)

    def actors(self) -> set[str]:
        """Every actor that belongs to a consumer of now, one that hands over included."""
        return self.supervisor.actors() if self.supervisor is not None else set()

    async def leave_nodes(self, nodes: Collection[str]) -> None:
        """Let the consumers on these nodes hand over, and start them anew elsewhere."""
        if not any(replica.node in nodes for replica in self.replicas.values()):
            return
        async with self._changing:
            gone = [name for name, replica in self.replicas.items() if replica.node in nodes]
            if self.supervisor is not None:
                await self.supervisor.replace(gone, "its node is drained")

    async def reconfigure(self, config: GroupConfig) -> None:
        """Take on another configuration: who must react is what its options declare."""
        async with self._changing:
            wanted = self._with_given(config)
            found = differences(self.spec.config, wanted)
            # Cut off, or refused by a handler, it is owed to the next call.
            self._owed.add((one.option, one.changes) for one in found)
            self.spec = replace(self.spec, config=wanted)
            await self._carry_out(wanted)
            self._owed.paid()

    async def _carry_out(self, config: GroupConfig) -> None:
        who = self._owed.who()
        if Effect.COORDINATOR in who:
            members = self._host.core.state.members
            await self._host.submit(
                Configure(
                    assignor=config.assignor,
                    static_map=config.static_owners,
                    lease_ms=config.lease_ms,
                    revoke_deadline_ms=config.revoke_deadline_ms,
                    prepare_ms=config.prepare_ms,
                    tenant=config.tenant or self.spec.group,
                    grace_ms=config.grace_ms,
                    weights={name: config.weight_of(name) for name in members},
                )
            )
        supervisor = self.supervisor
        if supervisor is None:
            return
        supervisor.spec = self.spec
        if who & OF_CONSUMERS:
            await supervisor.take_over()
        if "consumers" in self._owed.by_option:
            self.scaled_ms = None
            await self._scale(config.consumers)

    @answers_for_group(PlanScale)
    async def plan(self, consumers: int) -> Plan:
        """What having that many consumers would move."""
        check_count(consumers)
        have = len(self.replicas)
        fresh = self._new_names(max(0, consumers - have))
        add = [Member(name, 1, self.spec.config.weight_of(name)) for name in fresh]
        members = self._host.core.state.members
        gone = [name for name in self._least_loaded(have - consumers) if name in members]
        found = self._host.core.plan(f"{have} to {consumers} consumers", add=add, remove=gone)
        needs = needs_of(self.spec.config.ray_options)
        free = await gcs.ask("list", free_by_node) if needs and add else {}
        hand_overs = self._host.tally.hand_overs_ms
        return replace(
            found,
            pause_ms=round(statistics.median(hand_overs)) if hand_overs else None,
            unplaced=unplaced(len(add), needs, free),
        )

    def _running(self) -> ConsumerSupervisor:
        if self.supervisor is None:
            raise UsageError(
                f"group {self.spec.group} has not been started: group.start(handler) comes first"
            )
        return self.supervisor

    def _new_supervisor(self, handler: HandlerRef) -> ConsumerSupervisor:
        return ConsumerSupervisor(self.spec, self._host, handler, self.incarnations, self._changed)

    def _with_given(self, config: GroupConfig) -> GroupConfig:
        """`config` with the Ray options that `start` was given put on top."""
        options = {**config.ray_options, **self._given_options}
        return config.model_copy(update={"ray_options": options})

    def _new_names(self, count: int) -> list[MemberId]:
        taken = self.replicas.keys() | self._host.core.state.members.keys()
        return new_names(self.spec.group, count, taken)

    def _least_loaded(self, count: int) -> list[MemberId]:
        """Which go first."""
        owned = {name: len(parts) for name, parts in self._host.core.state.owned.items()}
        nodes = {name: replica.node for name, replica in self.replicas.items()}
        return who_goes_first(nodes, owned, ray.get_runtime_context().get_node_id(), count)

    # --- keeping ----------------------------------------------------------------------------------

    def _changed(self) -> None:
        self._unkept.changed()
        if self._keeping is None or self._keeping.done():
            self._keeping = self._loops.keep("keeping the replicas", self._save_until_kept)

    async def _save_until_kept(self) -> None:
        while self._unkept.is_stale:
            await self.save()

    async def save(self) -> None:
        """Keep everything as it is now; saves of one group follow one another."""
        async with self._saving:
            forget(self.incarnations, self.replicas.keys() | self._host.core.state.members.keys())
            document = ReplicasDocument(
                self._host.core.settings.paused,
                self.incarnations,
                self._given_options,
                self.supervisor.handler if self.supervisor is not None else None,
                {
                    replica.member: (replica.incarnation, replica.actor)
                    for replica in self.replicas.values()
                },
                self.scaled_ms,
            )
            self._unkept.saving()
            try:
                await self._keep(document.to_text())
            except BaseException:
                self._unkept.failed()
                raise

    async def restore(self, kept: ReplicasDocument) -> None:
        """Go on with what a former coordinator kept."""
        self.incarnations.update(kept.incarnations)
        noted = {actor for _, actor in kept.members.values()}
        topology, group = self.spec.topology, self.spec.group
        end = partial(kill_orphans, topology, group, lambda: noted | self.actors())
        self._loops.keep("ending orphans", end)
        if kept.handler is None:
            return
        self._given_options = dict(kept.ray_options)
        self.scaled_ms = kept.scaled_ms
        self.spec = replace(self.spec, config=self._with_given(self.spec.config))
        self.supervisor = self._new_supervisor(kept.handler)
        for member, (incarnation, actor) in kept.members.items():
            # It may have joined anew since the document was saved.
            newest = max(incarnation, self._host.core.newest_incarnation(member))
            await self.supervisor.reattach(ConsumerReplica(member, newest, actor))

    def let_go(self) -> None:
        """Watch nobody any more; every consumer goes on, and is found by the next start."""
        for replica in self.replicas.values():
            for task in list(replica.tasks):
                task.cancel()
        self.supervisor = None

    async def close(self, *, graceful: bool) -> None:
        """End every consumer; what is kept stays as it is, for the next start."""
        if self.supervisor is not None:
            if graceful:
                await self.supervisor.stop("the topology shuts down")
            await self.supervisor.abandon()


def check_ray_options(options: Mapping[str, Any]) -> None:
    """Raise UsageError for options that the registry cannot keep for the next coordinator."""
    try:
        json.dumps(options, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(
            f"Ray options of a group must be numbers, texts, lists and tables, so that a consumer "
            f"can be replaced at any time: {error}"
        ) from None
