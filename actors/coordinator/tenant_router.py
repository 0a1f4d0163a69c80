"""`TenantRouter`: the actor that knows where each tenant's messages go, and moves tenants.

Rules of this file. `TenantMove` decides; this actor carries it out. There is one detached actor for
each pair of a queue and its group. What it must not forget is in a document of the topology, kept
before anybody hears of it. Producers renew a lease here and say which route they follow, whatever
else is under way; after a restart no producer counts as gone until a whole lease has passed.
Silence proves nothing: a producer that was silent for longer than its lease is fenced in the logs
before anybody goes on without it, and hears so when it asks again. Time in which this actor
itself was frozen does not count as anybody's silence.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pxrs_ray.actors import names
from pxrs_ray.actors.client.topology import Topology
from pxrs_ray.actors.cluster.named_actors import make_actor
from pxrs_ray.actors.coordinator.tenant_document import PRODUCERS, TENANTS, KeptMove
from pxrs_ray.actors.coordinator.topology_requests import GetGroupStatus, OpenGroup
from pxrs_ray.status.answers import GroupStatus
from pxrs_ray.supervision.supervisor import Supervisor, off_loop
from pxrs_ray.tenants.migration import Phase, Route, TenantMove
from pxrs_ray.tenants.producer_leases import Leases
from pxrs_ray.tenants.profile import TenantProfile, isolated_queue

logger = logging.getLogger(__name__)

LEASE_S = 3.0
# After its lease a producer's last calls may still be on their way for so long.
GRACE_S = 2.0
LOOK_EVERY_S = 0.1
# Of a longer pause between two looks at the clock no more than this counts against a producer.
STEP_MOST_S = LEASE_S / 6
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

Routes = dict[str, tuple[Route, int]]


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
        self._served_after_s = served_after_s
        self._topology = Topology(topology)
        self._queue, self._group = queue, group
        self._moves: dict[str, TenantMove] = {}
        self._profiles: dict[str, TenantProfile] = {}
        self._alarms: dict[str, str] = {}
        self._opened_s: dict[str, float] = {}
        self._leases = Leases(LEASE_S + GRACE_S, STEP_MOST_S, time.monotonic())
        self._joining: list[str] = []
        self._keeping = asyncio.Lock()
        # By the leases' own time: until then a producer may live that was not heard yet.
        self._sure_s = 0.0
        # One operation at a time; producers are answered beside it, and never wait for it.
        self._operating = asyncio.Lock()
        self._opening = asyncio.Lock()
        self._supervisor = Supervisor(f"tenants of {queue}")
        self._loop: asyncio.Task[None] | None = None
        self._clock: asyncio.Task[None] | None = None

    async def _ready(self) -> None:
        async with self._opening:
            if self._loop is None:
                text = await off_loop(self._topology.document, self._document)
                for tenant, kept in TENANTS.decode_text(text or "{}").items():
                    self._moves[tenant] = TenantMove(
                        kept.phase, kept.version, barrier=dict(kept.barrier)
                    )
                    self._profiles[tenant] = kept.profile
                known = await off_loop(self._topology.document, self._known)
                # Producers that a former incarnation knew are heard first, or fenced.
                names = PRODUCERS.decode_text(known or "[]")
                until_s = self._leases.renew_all(names, time.monotonic())
                if self._moves:
                    self._sure_s = until_s
                self._clock = self._supervisor.keep("leases", self._tick_for_ever)
                self._loop = self._supervisor.keep("moves", self._look_for_ever)

    @property
    def _known(self) -> str:
        return f"tenants/{self._queue}/{self._group}/producers"

    async def _keep_known(self) -> None:
        """Who may have messages under way is kept before it may send any."""
        async with self._keeping:
            text = PRODUCERS.encode_text(sorted({*self._leases.names(), *self._joining}))
            await off_loop(self._topology.keep_document, self._known, text)

    @property
    def _document(self) -> str:
        return f"tenants/{self._queue}/{self._group}"

    async def _change(self, tenant: str, step: Callable[[TenantMove], object]) -> bool:
        """Take a step, and keep it before any producer hears of it; False when it was none."""
        fresh = _copy(self._moves.get(tenant, TenantMove()))
        before = (fresh.phase, fresh.version)
        step(fresh)
        if (fresh.phase, fresh.version) == before:
            return False
        kept = {
            name: KeptMove(move.phase, move.version, move.barrier, self._profiles[name])
            for name, move in {**self._moves, tenant: fresh}.items()
        }
        text = TENANTS.encode_text(kept)
        await off_loop(self._topology.keep_document, self._document, text)
        # Who follows which version may have changed meanwhile. Of a tenant that was never moved
        # every producer there is follows 0: it sends to the shared queue, and must hear of this.
        known = self._moves.get(tenant)
        switched = dict.fromkeys(self._leases.names(), 0) if known is None else known.switched
        fresh.switched = dict(switched)
        self._moves[tenant] = fresh
        logger.warning("tenant %s of %s is %s now", tenant, self._queue, fresh.phase.value)
        return True

    # --- producers --------------------------------------------------------------------------------

    async def sync(
        self, producer: str, follows: Mapping[str, int], is_new: bool
    ) -> tuple[float, Routes] | None:
        """Renew a producer's lease; answers it, and every tenant's route and version.

        `follows` are the versions that it follows by now, with all it sent before in the logs; of
        a tenant that is not named it is 0, the shared queue. A new one has sent nothing yet.
        None says that the producer is fenced, or has left: it is to begin anew.
        """
        await self._ready()
        joins = producer not in self._leases
        if joins and not is_new:
            return None
        if joins:
            # Its lease begins when it may send, however long keeping it takes.
            self._joining.append(producer)
            try:
                await self._keep_known()
            finally:
                self._joining.remove(producer)
        self._leases.renew(producer, time.monotonic())
        for tenant, move in self._moves.items():
            if joins:
                move.joined(producer)
            else:
                move.switched[producer] = follows.get(tenant, 0)
        return LEASE_S, {t: (move.route, move.version) for t, move in self._moves.items()}

    async def leave(self, producer: str) -> None:
        """A producer has closed; all it sent is in the logs."""
        self._forget(producer)
        await self._keep_known()

    def _forget(self, producer: str) -> None:
        self._leases.end(producer)
        for move in self._moves.values():
            move.gone(producer)

    # --- operators --------------------------------------------------------------------------------

    async def promote(self, tenant: str, profile: TenantProfile) -> None:
        """Begin to give a tenant a queue and consumers of its own."""
        await self._ready()
        async with self._operating:
            await off_loop(self._make_queue, tenant, profile)
            self._profiles[tenant] = profile
            await self._change(tenant, TenantMove.promote)

    async def demote(self, tenant: str) -> None:
        """Begin to let a tenant share again; what never left is where it should be."""
        await self._ready()
        async with self._operating:
            if tenant in self._moves:
                await self._change(tenant, TenantMove.demote)

    async def status(self) -> list[TenantStatus]:
        """Every tenant that was ever moved."""
        await self._ready()
        return [
            TenantStatus(
                tenant,
                move.phase.value,
                isolated_queue(self._queue, tenant),
                isolated_queue(self._group, tenant),
                tuple(sorted(p for p, v in move.switched.items() if v != move.version)),
                self._alarms.get(tenant, "") or "; ".join(self._supervisor.problems()),
            )
            for tenant, move in sorted(self._moves.items())
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
        sure = self._leases.look(time.monotonic()) >= self._sure_s
        for producer in self._leases.over(time.monotonic()):
            await off_loop(self._fence, producer)
            # Also when it came back meanwhile: it is fenced now, and told when it asks again.
            self._forget(producer)
            await self._keep_known()
        if not sure:
            return
        for tenant, move in list(self._moves.items()):
            # Also on its way back: until nothing is unread there, somebody has to read it.
            if move.isolated_is_read:
                await self._serve(tenant)
            if not move.settled:
                await self._advance(tenant, move)

    async def _advance(self, tenant: str, move: TenantMove) -> None:
        # What is read below must be read after the last producer has switched.
        if move.phase in (Phase.LEAVING, Phase.HOLDING) and not move.all_switched:
            return
        shared = await off_loop(self._status_of, self._group)
        own = await off_loop(self._status_of, isolated_queue(self._group, tenant))
        rows = shared.partitions
        if any(row.end_offset is None for row in (*rows, *own.partitions)):
            return
        ends = {row.partition: row.end_offset or 0 for row in rows}
        passed = {row.partition: row.checkpoint for row in rows}
        looked = await self._change(tenant, lambda fresh: fresh.look(ends, passed, own.lag))
        if looked and self._moves[tenant].phase is Phase.SHARED:
            await off_loop(self._group_of(tenant).stop)
            self._opened_s.pop(tenant, None)

    async def _serve(self, tenant: str) -> None:
        """See that somebody reads an isolated queue: its own consumers, or as many shared ones."""
        if tenant not in self._opened_s:
            self._opened_s[tenant] = time.monotonic()
            await self._begin(tenant, self._options(tenant))
            return
        if time.monotonic() - self._opened_s[tenant] < self._served_after_s:
            return
        self._opened_s[tenant] = time.monotonic()
        status = await off_loop(self._status_of, isolated_queue(self._group, tenant))
        if any(consumer.state == "running" for consumer in status.consumers):
            return
        self._alarms[tenant] = (
            f"isolated tenant {tenant!r}: no consumer of its profile "
            f"{self._profiles[tenant].name!r} runs; it is served as the shared ones are"
        )
        logger.error(self._alarms[tenant])
        await self._begin(tenant, {"resources": {}})

    async def _begin(self, tenant: str, ray_options: Mapping[str, Any]) -> None:
        """Have a tenant's consumers started; a start that takes long holds up nobody's move."""
        # What it raises is logged; it is looked at again when it should be served: see `_serve`.
        work = off_loop(self._start, tenant, dict(ray_options))
        starting = self._supervisor.once(f"the consumers of tenant {tenant}", work)
        await asyncio.wait([starting], timeout=START_WAIT_S)

    def _options(self, tenant: str) -> Mapping[str, Any]:
        resources = self._profiles[tenant].resources
        return {"resources": dict(resources)} if resources else {}

    # --- blocking calls, each on a thread ---------------------------------------------------------

    def _fence(self, producer: str) -> None:
        """Let nothing in any more of what a silent producer may still have on its way."""
        queues = self._topology.config.queues
        for queue in (self._queue, *(isolated_queue(self._queue, t) for t in self._moves)):
            if queue in queues:
                self._topology.begin_producer(queue, producer)
        logger.warning("producer %s of %s was silent, and is fenced", producer, self._queue)

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
        handler = self._topology.group(self._group).handler
        if handler is None:
            self._alarms[tenant] = f"group {self._group} has no handler: nobody reads {tenant!r}"
            return
        self._group_of(tenant).start(handler, self._profiles[tenant].consumers, **ray_options)


def _copy(move: TenantMove) -> TenantMove:
    """A copy that nothing changes."""
    return replace(move, switched=dict(move.switched), barrier=dict(move.barrier))


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
