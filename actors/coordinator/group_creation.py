"""`GroupCreation`: how a coordinator creates groups, and whose logs its buffers hold. A part of
`Coordinator`.

Rules of this file. One change of what a topology is made of at a time. Memory follows the registry:
nobody sees a group, a queue or a configuration before it is durable. What is cut off anywhere is
finished, or made, by the next call.
"""

from __future__ import annotations

import asyncio
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from pxrs_ray.actors.cluster.coordinator_request import Request, WhileAway
from pxrs_ray.actors.coordinator.buffer_pool import BufferPool
from pxrs_ray.actors.coordinator.buffer_slots import FOREIGN_REMEDY, went_elsewhere
from pxrs_ray.actors.coordinator.group_controller import GroupController
from pxrs_ray.actors.coordinator.request_handlers import answers
from pxrs_ray.actors.coordinator.startup import Startup
from pxrs_ray.actors.coordinator.topology_requests import (
    OpenGroup,
    RecoverRegistry,
)
from pxrs_ray.config import PxrsConfig
from pxrs_ray.data.protocol import QueueSpec
from pxrs_ray.errors import AlreadyExists, DiskFull, RegistryNotHere, StoreCorrupted
from pxrs_ray.group.custom_assignor import check_assignor
from pxrs_ray.log.identity import Identity
from pxrs_ray.model import Generation, Offset, PartitionId
from pxrs_ray.processing.done_ranges import done_to
from pxrs_ray.supervision.supervisor import off_loop
from pxrs_ray.topology.group_making import Floor
from pxrs_ray.topology.homes import RegistryHome
from pxrs_ray.topology.log_witness import Recovered
from pxrs_ray.topology.registry_witness import (
    RECOVER,
    RegistryWitness,
    ShownRegistry,
    accept_loss,
    who_accepted,
)
from pxrs_ray.topology.seal import Seal, forget_old_keys
from pxrs_ray.topology.tombstones import Tombstones

if TYPE_CHECKING:
    from pxrs_ray.actors.coordinator.home_controller import HomeController
    from pxrs_ray.actors.coordinator.store_thread import StoreThread
    from pxrs_ray.clock import Clock
    from pxrs_ray.store.registry import RegistryStore

logger = logging.getLogger(__name__)


class GroupCreation(ABC):
    """See the rules at the head of this file."""

    topology_id: str
    accepts_loss: bool
    _shown: ShownRegistry
    seal: Seal
    _config: PxrsConfig
    _groups: dict[str, GroupController]
    _store: RegistryStore
    _thread: StoreThread
    _clock: Clock
    _pool: BufferPool
    _homing: HomeController
    _high_water: RegistryWitness
    _changing: asyncio.Lock
    _starting: Startup
    _ends: Tombstones
    _accepted: str
    _generation: int
    _leader: str

    @abstractmethod
    async def _ready(self) -> None:
        """Return when this incarnation has recovered."""

    @abstractmethod
    async def _try_to_finish(self, before: Collection[str] = ()) -> None:
        """Go on with what was being removed. Raises what is in the way of names in `before`."""

    @abstractmethod
    async def _keep_config(self, config: PxrsConfig) -> None:
        """Make `config` what is in force; nobody sees it before it is durable."""

    @abstractmethod
    async def _put_document(self, name: str, text: str) -> None:
        """Keep a document of the topology."""

    @abstractmethod
    def deposed(self, group: str, error: BaseException) -> None:
        """End this coordinator."""

    @abstractmethod
    def led(self, group: str, generation: int, version: int) -> None:
        """These are durable in the registry."""

    @abstractmethod
    def check_led(self, group: str, generation: int, version: int) -> None:
        """Raise StoreCorrupted when the registry has gone back."""

    @abstractmethod
    async def _lead(self, over: Generation = 0) -> None:
        """Take the next generation of the topology, above `over`."""

    @abstractmethod
    async def check_leading(self) -> None:
        """Raise CoordinatorDeposed when a newer coordinator leads the topology."""

    @abstractmethod
    async def _open_queues(self, config: PxrsConfig, names: Iterable[str] | None = None) -> None:
        """Make or open the logs of every queue, or of these, wherever a buffer is for them."""

    @abstractmethod
    def _registry_home(self) -> RegistryHome | None:
        """Where the registry is at home, when that is a file."""

    def _expected_ends(self, spec: QueueSpec) -> dict[PartitionId, Offset]:
        ends = self._pool.known_ends.of(spec.queue_id)
        for controller in self._groups.values():
            if controller.spec.queue == spec.queue:
                for row in controller.host.core.state.rows:
                    done = done_to(row.checkpoint, row.detail)
                    ends[row.partition] = max(ends.get(row.partition, 0), done)
        return ends

    async def _forget_old_keys(self) -> None:
        """Every group has sealed anew by now; one that is distrusted may yet need an old key."""
        if any(controller.distrusted for controller in self._groups.values()):
            return
        try:
            await off_loop(partial(forget_old_keys, self._config.topology_dir))
        except (OSError, DiskFull) as error:
            logger.info("old seal keys stay for now: %s", error)

    def while_away(self, request: Request[Any]) -> WhileAway:
        """What becomes of a request while the registry is away."""
        if isinstance(request, OpenGroup):
            is_there = self._config.full_name(request.name) in self._groups
            return WhileAway.ASKED if is_there else WhileAway.CHANGES
        return request.while_away

    @answers(OpenGroup)
    async def group(self, name: str, queue: str | None, options: Mapping[str, Any]) -> str:
        """Make sure that the group exists; answer its full name. Options are for a new group."""
        await self._ready()
        full_name = self._config.full_name(name)
        if full_name not in self._groups:
            async with self._changing:
                if full_name not in self._groups:
                    await self._make_group(name, queue, options)
        declared = self._config.resolved_group(name)
        if queue is not None and queue != declared.queue:
            raise AlreadyExists(
                f"group {name!r} reads queue {declared.queue!r}, not {queue!r}: use another name"
            )
        return full_name

    async def _make_group(self, name: str, queue: str | None, options: Mapping[str, Any]) -> None:
        """Make a group. Cut off anywhere, it is made by the next call, or there already."""
        names = [self._config.full_name(each) for each in (name, queue) if each is not None]
        await self._try_to_finish(names)
        config = self._config
        if name not in config.groups:
            if queue is None:
                config.resolved_group(name)
            config.resolved_queue(str(queue))
            config = config.changed(groups={name: {"queue": queue, **options}})
            # Its own alone: what a group costs must not grow with the queues of others.
            await self._open_queues(config, config.queues_of(name))
        check_assignor(config.resolved_group(name).assignor)
        full_name = config.full_name(name)
        controller = self._new_shell(full_name, config)
        try:
            listed = "\n".join(sorted([*self._groups, full_name]))
            await controller.begin(
                partial(self._keep_config, config), partial(self._put_document, "groups", listed)
            )
        except BaseException:
            await controller.let_go()
            raise
        self._groups[full_name] = controller

    def _new_shell(self, full_name: str, config: PxrsConfig) -> GroupController:
        return GroupController(
            full_name, config, self._store, self._thread, self._clock, self._pool, self
        )

    def floor(self, group: str) -> Floor:
        """What was given out under this name before; see `Tombstones`."""
        noted = self._high_water.generation(group)
        return Floor(self._ends.epoch, max(self._ends.generation, noted))

    def _claim(self) -> Identity:
        home = self._registry_home()
        where = (home.disk, home.host) if home is not None else ("", "")
        return Identity(self.topology_id, self._generation, self._leader, *where)

    def identity_of(self, queue: str) -> str:
        """What is kept outside of this queue's messages bears this."""
        life = self._life(queue)
        return f"{self.topology_id}.{life}" if life else self.topology_id

    def _life(self, queue: str) -> int:
        """How many queues of this name are gone; a registry that is restored may not know all."""
        return max(self._ends.life(queue), self._high_water.life(queue))

    async def _check_identity(self) -> None:
        """Raise StoreCorrupted when the logs were made under another registry than ours, or have
        belonged to a later coordinator, or a later home, than this registry knows of: it went back.
        """
        for slot, home in self._homing.homes.behind.items():
            raise StoreCorrupted(went_elsewhere(slot, home.host))
        against = await self._pool.belong(self._claim(), adopt=False)
        if not against:
            return
        if not self.accepts_loss:
            raise StoreCorrupted(self._told_against(against))
        # Also above whom a process goes by whose folder has not noted it.
        noted = max(known.generation for known in against.values())
        await self._lead(max(noted, self._pool.newest_heard()))
        self._pool.grants.generation = self._generation
        await self._pool.belong(self._claim(), adopt=True)

    def _told_against(self, against: Mapping[int, Identity]) -> str:
        indexes = ", ".join(map(str, against))
        homes = {(k.registry_disk, k.registry_host) for k in against.values() if k.registry_disk}
        where = "".join(
            f"; their registry is at home on disk {disk} of host {host or 'unknown'}"
            for disk, host in sorted(homes)
        )
        if any(known.topology_id != self.topology_id for known in against.values()):
            return (
                f"the logs of buffers {indexes} in {self._config.topology_dir} were made under "
                f"another registry than the one that topology {self._config.name} has now{where}: "
                f"{FOREIGN_REMEDY}"
            )
        newest = max(known.generation for known in against.values())
        told = (
            f"buffers {indexes} have belonged to coordinator {newest}, and it makes this one "
            f"coordinator {self._generation}"
        )
        if newest < self._generation:
            told = f"the logs of buffers {indexes} were moved since, or served under a later term"
        return (
            f"the registry of topology {self._config.name} went back: {told}; it has lost accepted "
            f"writes{where}. Restore it, or run {RECOVER} to go on with what it holds (messages "
            "are delivered again from the older checkpoints)"
        )

    @answers(RecoverRegistry)
    async def recover_registry(self, who: str) -> dict[str, Recovered]:
        """Go on with a registry that has lost accepted writes; answers what that means, by group.

        `who` names this very request: made again, it is not carried out again. Nothing is accepted
        before it is known what the registry holds: raises StoreUnavailable, DeadlineExceeded.
        """
        folder = self._config.topology_dir
        if who not in (self._accepted, who_accepted(folder)):
            with suppress(StoreCorrupted, RegistryNotHere):
                await self._ready()
            accept_loss(folder, who, self._shown)
            logger.error("%s accepts what the registry of %s lost", who, self._config.name)
            os._exit(1)  # the next incarnation begins with it, from nothing
        await self._ready()
        return {name: controller.logs.recovered for name, controller in self._groups.items()}
