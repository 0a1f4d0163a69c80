"""`GroupShell`: everything one group is, on the coordinator: its core, its crew, its documents.

Rules of this file: each part has one job. `GroupHost` decides and stores, `MemberDesk` answers
members, `Staff` has the consumers; here they are put together and told what concerns them.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from pxrs_ray.actors.autoscale import Autoscale
from pxrs_ray.actors.buffers import BufferPool
from pxrs_ray.actors.crew_document import CrewDocument
from pxrs_ray.actors.group_host import GroupHost
from pxrs_ray.actors.group_view import group_status
from pxrs_ray.actors.member_desk import MemberDesk
from pxrs_ray.actors.seeking import seek
from pxrs_ray.actors.specs import GroupSpec
from pxrs_ray.actors.staff import Staff
from pxrs_ray.actors.store_thread import StoreThread
from pxrs_ray.clock import Clock
from pxrs_ray.config import GroupConfig, PxrsConfig
from pxrs_ray.errors import UsageError
from pxrs_ray.events import Configure, Dismiss, Rebalance, Seek
from pxrs_ray.group_state import GroupSettings
from pxrs_ray.log.wire import LogEnds
from pxrs_ray.model import Epoch, Offset, PartitionId
from pxrs_ray.stats import GroupStatus
from pxrs_ray.store.base import RegistryStore

logger = logging.getLogger(__name__)

PASSED_PAUSE_S = 1.0
TOLD_WAIT_S = 2.0
COMMANDS = frozenset(("pause", "resume", "rebalance", "seek", "release_scale"))
STAFF_COMMANDS = frozenset(("start", "scale", "stop", "plan", "add_consumer", "remove_consumer"))


class Owner(Protocol):
    """What a group needs of the coordinator that it belongs to."""

    def deposed(self, group: str, error: BaseException) -> None:
        """End this coordinator."""

    def led(self, group: str, generation: int, version: int) -> None:
        """These are durable in the registry."""

    def check_led(self, group: str, generation: int, version: int) -> None:
        """Raise StoreCorrupted when the registry has gone back."""


class GroupShell:
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
        spec = GroupSpec(
            config.name,
            group,
            config.full_name(declared.queue),
            queue.partitions,
            pool.count,
            declared,
            queue.source_spec(),
        )
        self.host = GroupHost(self.key, store, thread, clock, self, config.history_keep)
        self.staff = Staff(spec, self.host, self._keep_crew)
        self.members = MemberDesk(self.host, self.staff)
        self.autoscale = Autoscale(self.staff, self.host, pool)
        self._store = store
        self._thread = thread
        self._pool = pool
        self._owner = owner
        self._documents: Mapping[str, str] = {}
        self._passed: asyncio.Task[None] | None = None
        self._is_new = False

    # --- life -------------------------------------------------------------------------------------

    async def lead(self, *, recovering: bool) -> None:
        """Take the next generation, and go on from what the registry holds."""
        call = self._thread.call_until_known
        snapshot = await call(
            self._store.lead, self.key, self.spec.partitions, f"pid {os.getpid()}"
        )
        self._owner.check_led(self.key, snapshot.generation, snapshot.last_version)
        self._documents = await call(self._store.documents, self.key)
        self._is_new = not recovering and snapshot.generation == 1
        await self.host.start(snapshot, _settings(self.spec.config, self._kept_crew().paused))
        self._owner.led(self.key, snapshot.generation, snapshot.last_version)

    async def go_on(self) -> None:
        """Register with the logs, and find the consumers that a former coordinator left."""
        checkpoints = self.checkpoints()
        if self._is_new:
            # A group of that name in a former registry may have left fences of higher epochs.
            await self._pool.drop_group(self.spec.queue, self.spec.group)
        if self._is_new and self.spec.config.start == "end":
            ends = await self._pool.ends(self.spec.queue)
            checkpoints = {p: end.end_offset for p, end in ends.items()}
            await self.host.submit(Seek(checkpoints, "starts at the end"))
        await self._pool.passed(self.spec.queue, self.spec.group, checkpoints)
        self.tell_buffers()
        self._passed = asyncio.ensure_future(self._passed_loop())
        self.staff.restore(self._kept_crew())
        self.autoscale.configure(self.spec.config.scaling)

    @property
    def spec(self) -> GroupSpec:
        """The group as its consumers must know it."""
        return self.staff.spec

    async def _keep_crew(self, text: str) -> None:
        generation = self.host.core.state.generation
        await self._thread.call_until_known(
            self._store.put_document, self.key, generation, "crew", text
        )

    def _kept_crew(self) -> CrewDocument:
        return CrewDocument.from_text(self._documents.get("crew", ""))

    async def close(self, *, graceful: bool) -> None:
        """End everything of this group, its consumers included."""
        self.autoscale.close()
        await self.staff.close(graceful=graceful)
        if self._passed is not None:
            self._passed.cancel()
        await self.host.settle()
        await self.host.close()

    def actor_names(self) -> list[str]:
        """The actors that this group has now."""
        return [hand.actor for hand in self.staff.hands.values()]

    def tell_buffers(self) -> None:
        """Repeat which epochs are current, for a buffer that may have forgotten."""
        epochs = {row.partition: row.epoch for row in self.host.core.state.rows if row.epoch}
        self._pool.fence(self.spec.queue, self.spec.group, epochs)

    async def _passed_loop(self) -> None:
        told = self.checkpoints()
        while True:
            await asyncio.sleep(PASSED_PAUSE_S)
            now = self.checkpoints()
            moved = {p: offset for p, offset in now.items() if told[p] != offset}
            if not moved:
                continue
            try:
                await self._pool.passed(self.spec.queue, self.spec.group, moved)
                told = now
            except Exception as error:  # noqa: BLE001 - told again in the next round
                logger.info("a buffer is away, %s is told later: %s", self.spec.group, error)

    def checkpoints(self) -> dict[PartitionId, Offset]:
        """Where each partition stands now."""
        return {row.partition: row.checkpoint for row in self.host.core.state.rows}

    # --- Shell: called by the host ----------------------------------------------------------------

    def fence(self, group: str, epochs: dict[PartitionId, Epoch]) -> None:
        """Pass on which epochs are over."""
        self._pool.fence(self.spec.queue, self.spec.group, epochs)

    def dismissed(self, group: str, dismiss: Dismiss) -> None:
        """Let the crew deal with a member that is struck from the register."""
        if self.staff.crew is not None:
            self.staff.crew.dismissed(dismiss)

    def deposed(self, group: str, error: BaseException) -> None:
        """Pass it on."""
        self._owner.deposed(group, error)

    def led(self, group: str, generation: int, version: int) -> None:
        """Pass it on."""
        self._owner.led(group, generation, version)

    # --- commands ---------------------------------------------------------------------------------

    async def command(self, name: str, *arguments: Any) -> Any:
        """Carry out one of COMMANDS or STAFF_COMMANDS."""
        if name in COMMANDS:
            return await getattr(self, name)(*arguments)
        if name == "scale":
            self.autoscale.pin(arguments[0])
        if name in STAFF_COMMANDS:
            return await getattr(self.staff, name)(*arguments)
        raise UsageError(f"groups have no command {name!r}")

    async def pause(self) -> None:
        """Let consumers finish what they hold, and fetch nothing more.

        Returns when all have heard it, or when one that has not is as good as silent.
        """
        await self.host.submit(Configure(paused=True))
        await self.host.told(TOLD_WAIT_S)
        await self.staff.save()

    async def resume(self) -> None:
        """Fetch again."""
        await self.host.submit(Configure(paused=False))
        await self.staff.save()

    async def reconfigure(self, config: GroupConfig) -> None:
        """Take on another configuration of this group."""
        scaling = self.spec.config.scaling
        await self.staff.reconfigure(config)
        if config.scaling != scaling:
            self.autoscale.configure(config.scaling)

    async def release_scale(self) -> None:
        """Let the load decide again how many consumers there are."""
        self.autoscale.pin(None)

    async def rebalance(self) -> None:
        """Share out anew."""
        await self.host.submit(Rebalance())

    async def seek(
        self, kind: str, value: int, partitions: Sequence[PartitionId] | None
    ) -> dict[PartitionId, Offset]:
        """Move checkpoints while running; answers where each partition stands afterwards."""
        return await seek(self.spec, self.host, self._pool, kind, value, partitions)

    # --- asking -----------------------------------------------------------------------------------

    async def status(
        self, checkpoints: Mapping[PartitionId, Offset], ends: Mapping[PartitionId, LogEnds]
    ) -> GroupStatus:
        """This group at this moment; `checkpoints` are from before the logs told their ends."""
        behind = {
            partition: checkpoint
            for partition, checkpoint in checkpoints.items()
            if partition in ends and checkpoint < ends[partition].end_offset
        }
        ages = await self._pool.ages(self.spec.queue, behind) if behind else {}
        infos = await self.staff.crew.infos() if self.staff.crew is not None else {}
        return group_status(self, checkpoints, ends, ages, infos)


def _settings(config: GroupConfig, paused: bool) -> GroupSettings:
    return GroupSettings(
        assignor=config.assignor,
        static_map=config.static_owners,
        lease_ms=config.lease_ms,
        revoke_deadline_ms=config.revoke_deadline_ms,
        prepare_ms=config.prepare_ms,
        paused=paused,
    )
