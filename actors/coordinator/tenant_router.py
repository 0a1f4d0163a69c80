"""`TenantRouter`: the actor that knows where each tenant's messages go, and moves tenants.

Rules of this file. `TenantMoves` decides; this actor carries it out. There is one detached actor
for each pair of a queue and its group. What it must not forget is in documents of the topology. One
operation at a time; producers are answered beside it, and never wait for it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Any

from pxrs_ray.actors import names
from pxrs_ray.actors.client.topology import Topology
from pxrs_ray.actors.cluster.named_actors import make_actor
from pxrs_ray.actors.coordinator.topology_requests import GetGroupStatus, OpenGroup
from pxrs_ray.errors import DeadlineExceeded
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.status.answers import GroupStatus
from pxrs_ray.steps import Do, carry
from pxrs_ray.supervision.supervisor import Supervisor, off_loop
from pxrs_ray.tenants import tenant_moves
from pxrs_ray.tenants.followed_routes import Routes
from pxrs_ray.tenants.profile import TenantProfile, isolated_queue
from pxrs_ray.tenants.tenant_moves import (
    FenceProducer,
    IsServed,
    KeepMoves,
    KeepProducers,
    MakeQueue,
    ReadProgress,
    StartConsumers,
    StopConsumers,
    TenantMoves,
    TenantProgress,
)

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 0.1
# Written anew here, for those who wait for them.
LEASE_S, GRACE_S = tenant_moves.LEASE_S, tenant_moves.GRACE_S
START_WAIT_S = 10.0
STATUS_WAIT_S = 10.0
# What of a group's options says something of its own queue and consumers, and not of another's.
OF_ITS_OWN = frozenset(
    (
        "queue",
        "assignor",
        "static_map",
        "consumer_weights",
        "tenant",
        "quarantine_queue",
        "consumers",
    )
)


@dataclass(frozen=True, slots=True)
class TenantStatus:
    """One tenant that has, had, or is about to get a queue of its own."""

    tenant: str
    phase: str
    queue: str
    group: str
    waiting_for: tuple[str, ...] = ()
    alarm: str = ""


class TenantRouter:
    """See the rules at the head of this file."""

    def __init__(self, topology: str, queue: str, group: str, served_after_s: float) -> None:
        self._topology = Topology(topology)
        self._queue, self._group = queue, group
        # By name: a clock that somebody puts in its place is asked.
        self._moves = TenantMoves(queue, served_after_s, lambda: time.monotonic())
        self._leases, self._joining = self._moves.leases, self._moves.joining
        self._starting: dict[str, asyncio.Future[Any]] = {}
        self._keeping = asyncio.Lock()
        self._operating = asyncio.Lock()
        self._opening = asyncio.Lock()
        self._supervisor = Supervisor(f"tenants of {queue}")
        self._loop: asyncio.Task[None] | None = None
        self._clock: asyncio.Task[None] | None = None

    async def _ready(self) -> None:
        async with self._opening:
            if self._loop is None:
                moves = await off_loop(self._topology.document, self._document)
                producers = await off_loop(self._topology.document, self._known)
                self._moves.begin(moves, producers)
                self._clock = self._supervisor.keep("leases", self._tick_for_ever)
                self._loop = self._supervisor.keep("moves", self._look_for_ever)

    @property
    def _known(self) -> str:
        return f"tenants/{self._queue}/{self._group}/producers"

    @property
    def _document(self) -> str:
        return f"tenants/{self._queue}/{self._group}"

    async def _make(self, what: Do[Any]) -> Any:
        """Do what a step says."""
        match what:
            case KeepMoves(text):
                await off_loop(self._topology.keep_document, self._document, text)
            case KeepProducers():
                async with self._keeping:
                    text = self._moves.producers_text()
                    await off_loop(self._topology.keep_document, self._known, text)
            case FenceProducer(producer, queues):
                await off_loop(self._fence, producer, queues)
            case MakeQueue(tenant, profile):
                await off_loop(self._make_queue, tenant, profile)
            case ReadProgress(tenant):
                return await off_loop(self._progress_of, tenant)
            case IsServed(tenant):
                return await off_loop(self._is_served, tenant)
            case StartConsumers(tenant, profile, as_profile):
                options = {"resources": dict(profile.resources) if as_profile else {}}
                bare = as_profile and not profile.resources
                await self._begin(tenant, {} if bare else options)
            case StopConsumers(tenant):
                self._check_started(tenant)
                await off_loop(self._stop, tenant)
            case _:
                raise AssertionError(f"nobody does {what}")
        return None

    # --- producers --------------------------------------------------------------------------------

    async def sync(
        self, producer: str, follows: Mapping[str, int], is_new: bool
    ) -> tuple[float, Routes] | None:
        """See `TenantMoves.sync`."""
        await self._ready()
        return await carry(self._moves.sync(producer, follows, is_new), self._make)

    async def leave(self, producer: str) -> None:
        """A producer has closed; all it sent is in the logs."""
        await carry(self._moves.leave(producer), self._make)

    # --- operators --------------------------------------------------------------------------------

    async def promote(self, tenant: str, profile: TenantProfile) -> None:
        """Begin to give a tenant a queue and consumers of its own."""
        await self._ready()
        async with self._operating:
            await carry(self._moves.promote(tenant, profile), self._make)
            self._tell(tenant)

    async def demote(self, tenant: str) -> None:
        """Begin to let a tenant share again; what never left is where it should be."""
        await self._ready()
        async with self._operating:
            await carry(self._moves.demote(tenant), self._make)
            self._tell(tenant)

    def _tell(self, tenant: str) -> None:
        if tenant in self._moves.moves:
            phase = self._moves.moves[tenant].phase.value
            logger.warning("tenant %s of %s is %s now", tenant, self._queue, phase)

    async def status(self) -> list[TenantStatus]:
        """Every tenant that was ever moved."""
        await self._ready()
        return [
            TenantStatus(
                tenant,
                move.phase.value,
                isolated_queue(self._queue, tenant),
                isolated_queue(self._group, tenant),
                self._moves.waiting_for(tenant),
                self._moves.alarms.get(tenant, "") or "; ".join(self._supervisor.problems()),
            )
            for tenant, move in sorted(self._moves.moves.items())
        ]

    # --- moving -----------------------------------------------------------------------------------

    async def _look_for_ever(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            try:
                async with self._operating:
                    await self._look()
            except Exception as error:  # noqa: BLE001 - whatever it is, tenants must not be stuck
                self._supervisor.note("moves", error)
            else:
                self._supervisor.over("moves")

    async def _tick_for_ever(self) -> None:
        while True:
            self._leases.look(time.monotonic())
            await asyncio.sleep(LOOK_EVERY_S)

    async def _look(self) -> None:
        before = {tenant: move.phase for tenant, move in self._moves.moves.items()}
        try:
            await carry(self._moves.look(), self._make)
        finally:
            for tenant, move in self._moves.moves.items():
                if before.get(tenant) is not move.phase:
                    self._tell(tenant)

    async def _begin(self, tenant: str, ray_options: Mapping[str, Any]) -> None:
        """Have a tenant's consumers started; a start that takes long holds up nobody's move."""
        # What it raises is logged; it is looked at again when it should be served.
        work = off_loop(self._start, tenant, dict(ray_options))
        starting = self._supervisor.once(f"the consumers of tenant {tenant}", work)
        self._starting[tenant] = starting
        await asyncio.wait([starting], timeout=START_WAIT_S)

    def _check_started(self, tenant: str) -> None:
        """A start that is under way would come after the stop. Raises DeadlineExceeded."""
        starting = self._starting.get(tenant)
        if starting is not None and not starting.done():
            raise DeadlineExceeded(f"the consumers of tenant {tenant!r} are being started")

    # --- blocking calls, each on a thread ---------------------------------------------------------

    def _fence(self, producer: str, queues: tuple[str, ...]) -> None:
        there = self._topology.config.queues
        for queue in queues:
            if queue in there:
                self._topology.begin_producer(queue, producer)
        logger.warning("producer %s of %s was silent, and is fenced", producer, self._queue)

    def _progress_of(self, tenant: str) -> TenantProgress | None:
        shared = self._status_of(self._group)
        own = self._status_of(isolated_queue(self._group, tenant))
        rows = shared.partitions
        if any(row.end_offset is None for row in (*rows, *own.partitions)):
            return None
        ends = {row.partition: row.end_offset or 0 for row in rows}
        return TenantProgress(ends, {row.partition: row.checkpoint for row in rows}, own.lag)

    def _is_served(self, tenant: str) -> bool:
        status = self._status_of(isolated_queue(self._group, tenant))
        return any(consumer.state == "running" for consumer in status.consumers)

    def _stop(self, tenant: str) -> None:
        self._group_of(tenant).stop()

    def _make_queue(self, tenant: str, profile: TenantProfile) -> None:
        name, config = isolated_queue(self._queue, tenant), self._topology.config
        if name not in config.queues:
            options = config.queues[self._queue].model_dump(exclude_unset=True)
            options["partitions"] = profile.partitions
            self._topology.apply(config.changed(queues={name: options}))
        group = config.resolved_group(self._group).model_dump(exclude_unset=True)
        for own in OF_ITS_OWN:
            group.pop(own, None)
        own_group = isolated_queue(self._group, tenant)
        self._topology.group(own_group, queue=name, tenant=tenant, **group)

    def _group_of(self, tenant: str) -> Any:
        return self._topology.group(isolated_queue(self._group, tenant))

    def _status_of(self, group: str) -> GroupStatus:
        # Looked at again soon: an answer that does not come must not hold up every move.
        call = self._topology._coordinator.call
        name = call(OpenGroup(group, None, {}), STATUS_WAIT_S)
        return call(GetGroupStatus(name), STATUS_WAIT_S)

    def _start(self, tenant: str, ray_options: Mapping[str, Any]) -> None:
        handler, moves = self._topology.group(self._group).handler, self._moves
        if handler is None:
            told = f"group {self._group} has no handler: nobody reads {tenant!r}"
            moves.alarms[tenant] = told
            return
        self._group_of(tenant).start(handler, moves.profiles[tenant].consumers, **ray_options)


def routes_actor(topology: str, queue: str, group: str, served_after_s: float) -> Any:
    """The actor of a queue and its group, started unless it runs."""
    options = {
        "get_if_exists": True,
        "max_restarts": -1,
        "max_task_retries": -1,
        "max_concurrency": 1_000,
    }
    name = names.tenants(topology, queue, group)
    return make_actor(TenantRouter, name, options, topology, queue, group, served_after_s)
