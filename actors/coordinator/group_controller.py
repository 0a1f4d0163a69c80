"""`GroupController`: one group on the coordinator: its core, its consumers, its documents.

Rules of this file. `GroupHost` decides and stores, `MemberApi` answers members, `ConsumerReplicas`
holds the wanted consumers. This class connects them and passes each event to its part.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from pxrs_ray.actors.consumer.specs import GroupSpec
from pxrs_ray.actors.coordinator.autoscaler import Autoscaler
from pxrs_ray.actors.coordinator.buffer_pool import BufferPool
from pxrs_ray.actors.coordinator.consumer_replicas import ConsumerReplicas
from pxrs_ray.actors.coordinator.group_host import GroupHost
from pxrs_ray.actors.coordinator.group_requests import (
    PauseGroup,
    PlanSeek,
    RebalanceGroup,
    ReleaseScale,
    ResumeGroup,
    ScaleGroup,
    SeekGroup,
)
from pxrs_ray.actors.coordinator.group_status import ASK_WAIT_S, Observed, group_status, unanswered
from pxrs_ray.actors.coordinator.log_witness import LogWitnessCalls
from pxrs_ray.actors.coordinator.member_api import MemberApi
from pxrs_ray.actors.coordinator.new_group import AsyncCall, NewGroupCalls, new_group
from pxrs_ray.actors.coordinator.replicas_document import ReplicasDocument
from pxrs_ray.actors.coordinator.request_handlers import RequestHandlers, answers_for_group
from pxrs_ray.actors.coordinator.seeks import plan_seek, seek
from pxrs_ray.actors.coordinator.store_thread import StoreThread
from pxrs_ray.clock import Clock, wall_ms
from pxrs_ray.config import GroupConfig, PxrsConfig
from pxrs_ray.config.limits import group_settings
from pxrs_ray.data.protocol import LogEnds
from pxrs_ray.errors import PxrsError
from pxrs_ray.group.events import Configure, Dismiss, Rebalance
from pxrs_ray.group.replica_count import check_count
from pxrs_ray.group.seek_plan import SeekPlan, Sought
from pxrs_ray.model import Epoch, Offset, PartitionId, Snapshot
from pxrs_ray.status.answers import GroupStatus
from pxrs_ray.steps import Do, carry
from pxrs_ray.store.registry import RegistryStore
from pxrs_ray.supervision.passing_trouble import passes
from pxrs_ray.supervision.supervisor import Supervisor
from pxrs_ray.topology.coordinator_start import LeadOnce, lead_above
from pxrs_ray.topology.group_making import Floor, make_group
from pxrs_ray.topology.seal import Seal
from pxrs_ray.topology.told_checkpoints import ToldCheckpoints, last_used_ms

logger = logging.getLogger(__name__)

PASSED_PAUSE_S = 1.0
USE_LOOKED_AT = 1_000
TOLD_WAIT_S = 2.0

SomePartitions = Sequence[PartitionId] | None
Begins = Mapping[PartitionId, Offset] | None


class Owner(Protocol):
    """What a group needs of its coordinator."""

    seal: Seal
    accepts_loss: bool

    def deposed(self, group: str, error: BaseException) -> None:
        """End this coordinator."""

    def led(self, group: str, generation: int, version: int) -> None:
        """These are durable in the registry."""

    def check_led(self, group: str, generation: int, version: int) -> None:
        """Raise StoreCorrupted when the registry has gone back."""

    def floor(self, group: str) -> Floor:
        """What was given out under this name before, by a registry that is gone or forgot it."""

    def identity_of(self, queue: str) -> str:
        """What is kept outside of this queue's messages bears this."""

    async def check_leading(self) -> None:
        """Raise CoordinatorDeposed when a newer coordinator leads the topology."""


class GroupController:
    """One group of one coordinator incarnation."""

    def __init__(
        self,
        group: str,
        config: PxrsConfig,
        store: RegistryStore,
        thread: StoreThread,
        clock: Clock,
        pool: BufferPool,
        owner: Owner,
    ) -> None:
        name = group.removeprefix(f"{config.prefix}.") if config.prefix else group
        declared = config.resolved_group(name)
        queue = config.resolved_queue(declared.queue)
        self.key = f"{config.name}/{group}"
        full_queue = config.full_name(declared.queue)
        spec = GroupSpec(
            config.name,
            owner.identity_of(full_queue),
            group,
            full_queue,
            queue.partitions,
            pool.count,
            declared,
            queue.source_spec(),
        )
        self.host = GroupHost(self.key, store, thread, clock, self, config.history_keep)
        self.follow(config)
        self.replica_set = ConsumerReplicas(spec, self.host, self._keep_replicas)
        self.logs = LogWitnessCalls(spec, self.host, pool, lambda: owner.accepts_loss)
        self.members = MemberApi(self.host, self.replica_set, self.logs)
        self.autoscale = Autoscaler(self.replica_set, self.host, pool)
        self.handlers = RequestHandlers(self, self.replica_set, self.members)
        self._store = store
        self._thread = thread
        self._pool = pool
        self._owner = owner
        self._documents: Mapping[str, str] = {}
        self._passed: asyncio.Task[None] | None = None
        self._told = ToldCheckpoints()
        self.used_ms = wall_ms()
        self.distrusted = ""
        self.observed = Observed()

    # --- life -------------------------------------------------------------------------------------

    async def begin(self, keep_config: AsyncCall, keep_listed: AsyncCall) -> None:
        """Make the group, and lead it: nothing of it is known to anybody before it is listed."""
        places = (self.key, self.spec, self.host, self._pool, self._store, self._thread)
        calls = NewGroupCalls(*places, self.lead, keep_config, keep_listed, self.go_on)
        await carry(make_group(new_group(self.spec, self._owner.floor(self.key))), calls.make)

    async def lead(self) -> None:
        """Take the next generation, and go on from what the registry holds."""
        snapshot = await self._lead()
        self._documents = await self._thread.call_until_known(self._store.documents, self.key)
        paused = self._kept_replicas().paused
        settings = group_settings(self.spec.config, self.spec.group, paused=paused)
        await self.host.start(snapshot, settings)
        self._owner.led(self.key, snapshot.generation, snapshot.last_version)

    async def _lead(self) -> Snapshot:
        over = self._owner.floor(self.key).generation if self._owner.accepts_loss else 0
        snapshot = await carry(lead_above(over), self._lead_once)
        self._owner.check_led(self.key, snapshot.generation, snapshot.last_version)
        return snapshot

    async def _lead_once(self, what: Do[Any]) -> Snapshot:
        assert isinstance(what, LeadOnce)
        place = (self.key, self.spec.partitions, f"pid {os.getpid()}")
        return await self._thread.call_until_known(self._store.lead, *place)

    async def go_on(self) -> None:
        """Register with the logs, and find the consumers that a former coordinator left."""
        await self.logs.check()
        await self._remember_use()
        await self._tell_passed()
        self.tell_buffers()
        self._passed = Supervisor(self.key).keep("telling the logs", self._passed_loop)
        await self._seal_anew()
        await self.replica_set.restore(self._kept_replicas())
        self.autoscale.configure(self.spec.config.scaling)
        self.autoscale.pin(len(self.replica_set.replicas) if self.replica_set.scaled_ms else None)

    async def _remember_use(self) -> None:
        after = max(0, self.host.core.state.version - USE_LOOKED_AT)
        call = self._thread.call_until_known
        changes = await call(self._store.changes, self.key, after, USE_LOOKED_AT)
        self.used_ms = last_used_ms(changes, wall_ms())

    @property
    def spec(self) -> GroupSpec:
        """The group as its consumers must know it."""
        return self.replica_set.spec

    async def _keep_replicas(self, text: str) -> None:
        await self._put_replicas(self._owner.seal.sealed(f"{self.key}/replicas", text))

    async def _put_replicas(self, sealed: str) -> None:
        generation = self.host.core.state.generation
        put = self._store.put_document
        await self._thread.call_until_known(put, self.key, generation, "replicas", sealed)

    def _kept_replicas(self) -> ReplicasDocument:
        """What a former coordinator kept; of what nobody of ours wrote, nothing that is code."""
        kept = self._documents.get("replicas", "")
        text, ours = self._owner.seal.opened(f"{self.key}/replicas", kept)
        document = ReplicasDocument.from_text(text)
        if ours or not kept:
            return document
        self.distrusted = (
            "what the registry says of this group's consumers bears no seal of this topology, as "
            "it is on another node, or when somebody else wrote it: start them again with `pxrs "
            "up FILE`, or with group.start(handler)"
        )
        return document.without_code()

    async def _seal_anew(self) -> None:
        """Seal with our key what a former coordinator sealed, before anybody changes it: another
        node has no other key, and this one's disk keeps only the last few."""
        kept = self._documents.get("replicas", "")
        renewed = self._owner.seal.renewed(f"{self.key}/replicas", kept)
        if renewed is not None:
            await self._put_replicas(renewed)

    async def close(self, *, graceful: bool) -> None:
        """End everything of this group, its consumers included."""
        self.autoscale.close()
        await self.replica_set.close(graceful=graceful)
        if self._passed is not None:
            self._passed.cancel()
        try:
            await self.host.settle()
            await self._pool.passed(self.spec.queue, self.spec.group, self.checkpoints())
        except Exception as error:  # noqa: BLE001 - halted, or a buffer is away: it ends all the same
            logger.info("%s ends without a last word: %s", self.spec.group, error)
        await self.host.close()

    async def let_go(self) -> None:
        """Give up a group that could not be begun: nobody has heard of it."""
        if self._passed is not None:
            self._passed.cancel()
        await self.host.close()

    def actor_names(self) -> list[str]:
        """The actors that this group has now."""
        return [replica.actor for replica in self.replica_set.replicas.values()]

    async def meet(self, index: int) -> None:
        """A buffer has come back: hear what its logs know of us, and tell them what we know."""
        await self.logs.check(index)
        await self._pool.passed_on(index, self.spec.queue, self.spec.group, self.checkpoints())

    def epochs(self) -> dict[PartitionId, Epoch]:
        """The epoch of each partition that has had one."""
        return {row.partition: row.epoch for row in self.host.core.state.rows if row.epoch}

    def tell_buffers(self) -> None:
        """Repeat which epochs are current, for a buffer that may have forgotten."""
        self._pool.fence(self.spec.queue, self.spec.group, self.epochs())

    async def _tell_passed(self) -> None:
        """Register with the logs; a buffer that has no lease now is asked again in a second."""
        stands = self.checkpoints()
        try:
            await self._pool.passed(self.spec.queue, self.spec.group, stands)
        except PxrsError as error:
            if not passes(error):
                raise
            logger.info("the logs hear of %s later: %s", self.spec.group, error)
        else:
            self._told.heard(stands)

    async def _passed_loop(self) -> None:
        while True:
            await asyncio.sleep(PASSED_PAUSE_S)
            await self.logs.try_again()
            if self.host.core.state.members:
                self.used_ms = wall_ms()
            stands = self.checkpoints()
            if not (moved := self._told.untold(stands)):
                continue
            try:
                await self._pool.passed(self.spec.queue, self.spec.group, moved)
            except Exception as error:  # noqa: BLE001 - told again in the next round
                logger.info("a buffer is away, %s is sent later: %s", self.spec.group, error)
            else:
                self._told.heard(stands)

    @property
    def registry_away_s(self) -> float | None:
        """For how long the registry has been away; None while it is not known to be."""
        away_ms = self._thread.away_ms()
        return None if away_ms is None else away_ms / 1_000

    def checkpoints(self) -> dict[PartitionId, Offset]:
        """The checkpoint of each partition now."""
        return {row.partition: row.checkpoint for row in self.host.core.state.rows}

    # --- called by the runtime --------------------------------------------------------------------

    def fence(self, group: str, epochs: dict[PartitionId, Epoch]) -> None:
        """Pass on which epochs are over."""
        self._pool.fence(self.spec.queue, self.spec.group, epochs)

    def dismissed(self, group: str, dismiss: Dismiss) -> None:
        """Let the supervisor end the actor of a removed member."""
        if self.replica_set.supervisor is not None:
            self.replica_set.supervisor.dismissed(dismiss)

    def deposed(self, group: str, error: BaseException) -> None:
        """Pass it on."""
        self._owner.deposed(group, error)

    async def lead_again(self, group: str) -> Snapshot:
        """Lead anew after a fault, unless a newer coordinator does."""
        await self._owner.check_leading()
        return await self._lead()

    def led(self, group: str, generation: int, version: int) -> None:
        """Pass it on."""
        self._owner.led(group, generation, version)

    # --- commands ---------------------------------------------------------------------------------

    @answers_for_group(ScaleGroup)
    async def scale(self, consumers: int) -> None:
        """Have exactly this many consumers, whatever the load."""
        check_count(consumers)

        def by_hand() -> int:
            self.autoscale.pin(consumers)
            return consumers

        await self.replica_set.scale(by_hand, by_hand=True)

    @answers_for_group(PauseGroup)
    async def pause(self) -> None:
        """Let consumers finish what they hold, and fetch nothing more.

        Returns when all have heard it, or when one that has not is as good as silent.
        """
        await self.host.submit(Configure(paused=True))
        await self.host.told(TOLD_WAIT_S)
        await self.replica_set.save()

    @answers_for_group(ResumeGroup)
    async def resume(self) -> None:
        """Fetch again."""
        await self.host.submit(Configure(paused=False))
        await self.replica_set.save()

    def follow(self, config: PxrsConfig) -> None:
        """Go by what the topology says of all groups."""
        self.host.follow(config.history_keep, config.rebalance_interval_ms)

    async def reconfigure(self, config: GroupConfig) -> None:
        """Take on another configuration of this group."""
        if config.scaling != self.spec.config.scaling:
            self.autoscale.configure(config.scaling)
        await self.replica_set.reconfigure(config)

    @answers_for_group(ReleaseScale)
    async def release_scale(self) -> None:
        """Let the load decide again how many consumers there are."""
        self.autoscale.pin(None)
        await self.replica_set.released()

    @answers_for_group(RebalanceGroup)
    async def rebalance(self) -> None:
        """Share out anew."""
        await self.host.submit(Rebalance())

    @answers_for_group(SeekGroup)
    async def seek(
        self, kind: str, value: int, partitions: SomePartitions = None, begins: Begins = None
    ) -> dict[PartitionId, Offset]:
        """Move checkpoints while running; answers the position of each partition afterwards."""
        sought = Sought(kind, value, partitions, begins)
        return await seek(self.spec, self.host, self._pool, sought)

    @answers_for_group(PlanSeek)
    async def plan_seek(self, kind: str, value: int, partitions: SomePartitions = None) -> SeekPlan:
        """What such a seek would repeat and skip."""
        return await plan_seek(self.spec, self.host, self._pool, Sought(kind, value, partitions))

    # --- asking -----------------------------------------------------------------------------------

    async def status(
        self, checkpoints: Mapping[PartitionId, Offset], ends: Mapping[PartitionId, LogEnds]
    ) -> GroupStatus:
        """This group at this moment; `checkpoints` are from before the logs told their ends."""
        behind = {
            partition: checkpoint
            for partition, checkpoint in checkpoints.items()
            if partition in ends and ends[partition].lag(checkpoint)
        }
        supervisor = self.replica_set.supervisor
        ages, infos = await asyncio.gather(
            self._pool.ages(self.spec.queue, behind, ASK_WAIT_S) if behind else _nothing(),
            supervisor.infos() if supervisor is not None else _nothing(),
        )
        unknown = unanswered(self._pool, self.spec.queue, self.spec.partitions, ends)
        return group_status(self, checkpoints, ends, ages, infos, unknown)


async def _nothing() -> dict[Any, Any]:
    return {}
