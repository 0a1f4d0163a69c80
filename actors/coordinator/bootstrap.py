"""`Bootstrap`: finds a coordinator's registry, says whether it may be created, and which home each
slot has. A part of `Coordinator`.

Rules of this file. A registry that is not here is an error, and never a reason to create one.
`deploy` alone creates it, and only when no node of the cluster has a trace of the topology. A disk
is known by its id. What was never made is made once, and that it was made is durable before it is
served.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Iterable
from typing import Any

from pxrs_ray.actors import names
from pxrs_ray.actors.buffer.coordinator_recovery import RecoveryPlan
from pxrs_ray.actors.cluster import node_watch
from pxrs_ray.actors.cluster.node_watch import NodeWatch
from pxrs_ray.actors.consumer.specs import queue_spec
from pxrs_ray.actors.coordinator.buffer_moves import BufferMoves
from pxrs_ray.actors.coordinator.group_creation import GroupCreation
from pxrs_ray.actors.coordinator.home_controller import MEET_WAIT_S, HomeController
from pxrs_ray.actors.coordinator.lead_taking import take_lead
from pxrs_ray.actors.coordinator.move_planner import MovePlanner
from pxrs_ray.actors.coordinator.replica_controller import ReplicaController
from pxrs_ray.actors.coordinator.replica_followers import ReplicasWanted, Replicated
from pxrs_ray.actors.coordinator.request_handlers import answers
from pxrs_ray.actors.coordinator.topology_requests import (
    AcceptBufferLoss,
    LeadElsewhere,
    MoveBuffer,
    PlanBufferLoss,
    PlanDrain,
    PlanMove,
)
from pxrs_ray.config import PxrsConfig
from pxrs_ray.data.log_limits import Durability
from pxrs_ray.data.protocol import QueueSpec
from pxrs_ray.errors import DeadlineExceeded, RegistryNotHere, UsageError
from pxrs_ray.model import Generation
from pxrs_ray.replication.placements import placements_from
from pxrs_ray.replication.replica_calls import ReplicaRules
from pxrs_ray.steps import Do, carry
from pxrs_ray.supervision.passing_trouble import passes
from pxrs_ray.topology.disk_survey import SurveyedNode
from pxrs_ray.topology.homes import RegistryHome, homes_from
from pxrs_ray.topology.move_plan import Leaving
from pxrs_ray.topology.move_steps import Moved
from pxrs_ray.topology.node_seen import NodeSeen
from pxrs_ray.topology.older_registry import above_terms
from pxrs_ray.topology.openings import (
    NoteMade,
    OpenAll,
    check_may_begin,
    ids_on_disks,
    newest_on_disks,
    open_on,
    out_of_sight,
    queues_to_name,
)
from pxrs_ray.topology.registry_witness import ShownRegistry, may_begin_again, noted_in
from pxrs_ray.topology.replica_spread import homes_as_placed

logger = logging.getLogger(__name__)

LOOKS_MAX = 20
# A replica that is away for so long has another one in its place, where no option says otherwise.
REPLACE_AFTER_MS = 600_000
IN_MEMORY = "memory:"
FILE = "sqlite:"


def replicas_wanted(config: PxrsConfig) -> ReplicasWanted:
    """What the configuration says of replicas."""
    after_ms = config.replace_host_after_ms or REPLACE_AFTER_MS
    where = after_ms, config.spread_by, config.catch_up_bytes_per_s or 0
    return ReplicasWanted(config.replicas, config.min_isr, *where)


class Bootstrap(GroupCreation):
    """See the rules at the head of this file."""

    _nodes: NodeWatch
    _homing: HomeController
    _moving: BufferMoves
    _may_begin: bool
    _leads_over: Generation
    _replicating: ReplicaController | None = None

    async def _check_begun(self) -> None:
        """Raise RegistryNotHere unless the registry knows the topology, or may be begun."""
        name = self._config.name
        try:
            if await self._thread.call_until_known(self._store.documents, name):
                return
        except RegistryNotHere:
            pass  # no registry at all
        if self._config.store_url.startswith(IN_MEMORY):
            return
        places = await self._all_places()
        if may_begin_again(noted_in(self._config.topology_dir)):
            self._leads_over = newest_on_disks(places)
            return
        self._shown = ShownRegistry()
        check_may_begin(name, places, self._here(places), may_begin=self._may_begin)

    def _here(self, places: list[SurveyedNode]) -> RegistryHome | None:
        """Where the registry should be, when that is a file."""
        if not self._config.store_url.startswith(FILE):
            return None
        here = node_watch.node_here()
        found = [place for place in places if place.node == here]
        return RegistryHome(found[0].looked.disk, here, found[0].host) if found else None

    async def _all_places(self) -> list[SurveyedNode]:
        """What every living node tells. Raises DeadlineExceeded when one does not."""
        for _ in range(LOOKS_MAX):
            nodes = await self._living()
            await self._nodes.looked(nodes)
            places = self._nodes.places(nodes)
            mute = [place for place in places if not self._nodes.has_looked(place.node)]
            if not mute:
                return places
        raise DeadlineExceeded(
            f"host {mute[0].host} does not tell whether the registry of {self._config.name} is "
            f"there ({mute[0].looked.problem or 'no answer'}): it is asked again"
        )

    async def _living(self) -> list[NodeSeen]:
        nodes = await self._nodes.living()
        if nodes is None:
            raise DeadlineExceeded(self._nodes.problem)
        return nodes

    async def _make_topology_id(self) -> str:
        """Names are used again, this is not: it tells what is kept outside whose it is."""
        made = self._high_water.topology_id or uuid.uuid4().hex
        await self._put_document("topology_id", made)
        return made

    # --- homes ------------------------------------------------------------------------------------

    async def _find_homes(self, document: str, placements: str) -> None:
        """Know where every slot is at home, and bring up those whose home is there."""
        self._homing = HomeController(
            homes_as_placed(homes_from(document), placements_from(placements).slots),
            self._pool,
            self._nodes,
            self._put_document,
            self._keeps_nothing,
            lambda: self._config.replace_host_after_ms,
            lost=bool(self._accepted),
            replicated=self._config.replicas > 1,
        )
        self._moving = BufferMoves(self._homing, self._pool, str(self._config.topology_dir))
        await self._note_registry_home()
        # A registry that is begun again, or has lost writes, minds all that the disks tell.
        self._nodes.topology_id, self._nodes.minds_all = self.topology_id, self.accepts_loss
        if self.accepts_loss and self._homing.homes.slots:
            seen = await self._nodes.looked(await self._living())
            await self._homing.keep(lambda homes: above_terms(homes, seen))
        await self._homing.begin()
        if self._config.replicas > 1:
            await self._find_replicas(placements)

    async def _find_replicas(self, placements: str) -> None:
        """Start the replicas of every slot, and serve from those that lead."""
        config = self._config
        always = any(queue.durability == Durability.ALWAYS for queue in config.queues.values())
        wanted = replicas_wanted(config)
        how = Replicated(
            config.name,
            self._pool.count,
            str(config.topology_dir),
            config.lease_ttl_seconds,
            wanted.replicas,
            wanted.replace_after_ms,
            ReplicaRules(
                wanted.min_isr,
                synced_only=always,
                catch_up_bytes_per_s=wanted.catch_up_bytes_per_s,
            ),
            wanted.spread_by,
        )
        self._replicating = self._pool.replicas = ReplicaController(
            how,
            placements,
            self._pool,
            self._homing,
            self._put_document,
            self._spec_of,
            self._replica_returned,
        )
        self._homing.keep_on()
        await self._replicating.begin()
        await self._pool.meet(MEET_WAIT_S)

    def _follow_replicas(self, config: PxrsConfig) -> None:
        """So many replicas are wanted from now on."""
        if self._replicating is not None:
            self._replicating.follow(replicas_wanted(config))

    def _spec_of(self, queue: str) -> QueueSpec | None:
        prefix = self._config.prefix
        name = queue.removeprefix(f"{prefix}.") if prefix else queue
        return self._spec(name) if name in self._config.queues else None

    async def _replica_returned(self) -> None:
        """A replica has begun anew: what is being removed may wait for it."""
        if self._starting.done:
            async with self._changing:
                await self._try_to_finish()

    def _settle(self, index: int, term: int) -> None:
        """The buffer of this term knows all that it has to know to serve."""
        if self._replicating is not None:
            self._replicating.settle(index, term)

    async def _note_registry_home(self) -> None:
        known, here = self._homing.homes.registry, node_watch.node_here()
        if not self._config.store_url.startswith(FILE):
            await self._homing.registry_at(None)
        elif known is None or known.node != here:
            nodes = [node for node in await self._living() if node.node == here]
            for node in await self._nodes.looked(nodes):
                await self._homing.registry_at(RegistryHome(node.disk, node.node, node.host))

    def _registry_home(self) -> RegistryHome | None:
        return self._homing.homes.registry

    def _keeps_nothing(self) -> bool:
        """Whether nothing of the topology is on a disk: its slots have nothing to wait for."""
        specs = [queue_spec(self._config, name) for name in self._config.queues]
        kept = [spec for spec in specs if not spec.external]
        return bool(kept) and all(s.limits.durability is Durability.MEMORY for s in kept)

    @answers(AcceptBufferLoss)
    async def accept_buffer_loss(self, index: int) -> str:
        """Give up the disk of a slot that waits: it gets another home, once its lease is over.

        Answers what is known of what is lost.
        """
        await self._ready()
        told = await self.plan_buffer_loss(index)
        if self._replicating is not None:
            self._replicating.accept_loss(index)
        else:
            await self._homing.give_up(index)
        return told

    @answers(PlanBufferLoss)
    async def plan_buffer_loss(self, index: int) -> str:
        """What giving up the disk of a slot would lose, as far as it is known."""
        await self._ready()
        if self._replicating is not None:
            disk = self._replicating.check_loss(index)
            return (
                f"buffer {index} goes on with the replica on disk {disk}, with what that one has: "
                "what it lacks of what was acknowledged is gone"
            )
        home = self._homing.check_away(index)
        lost = []
        for name in self._config.queues:
            spec = self._spec(name)
            ends = self._pool.of_buffer(index, self._expected_ends(spec))
            if not spec.external and any(ends.values()):
                lost.append(f"{spec.queue}: {len(ends)} logs that had come to {sum(ends.values())}")
        what = "; ".join(lost) or "nothing that is known of"
        where = f"on disk {home.disk} of host {home.host}" if home.disk else "nobody knows where"
        return (
            f"buffer {index} had its logs {where}: {what}. What was not handled yet is gone, and "
            "what is kept for replay"
        )

    @answers(MoveBuffer)
    async def move_buffer(
        self, index: int, node: str | None = None, source: str | None = None
    ) -> Moved:
        """Take a buffer with its logs to another node, the emptiest one when none is named; where
        it has replicas, that of the node `source`, or the one that leads."""
        await self._ready()
        if self._replicating is not None:
            return await self._replicating.move(index, node, source)
        if source is not None:
            raise UsageError(f"buffer {index} has one home, and leaves that: name no source")
        return await self._moving.move(index, node)

    @answers(LeadElsewhere)
    async def hand_over(self, index: int) -> str:
        """Have another replica of a buffer lead; answers the name of the actor that led before."""
        await self._ready()
        if self._replicating is None:
            raise UsageError(f"buffer {index} has no replicas: nobody could lead in its place")
        disk = await self._replicating.hand_over(index)
        return names.replica(self._config.name, index, disk)

    @answers(PlanMove)
    async def plan_move(self, index: int, node: str | None, copy_per_s: float) -> Leaving:
        """What `move_buffer` would mean; changes nothing."""
        await self._ready()
        return await self._planner().plan_move(index, node, copy_per_s)

    @answers(PlanDrain)
    async def plan_drain(self, node: str, deadline_s: float, copy_per_s: float) -> Leaving:
        """What it means that a node is drained; changes nothing. Raises NotFound, UsageError."""
        await self._ready()
        return await self._planner().plan_drain(node, deadline_s, copy_per_s)

    def _planner(self) -> MovePlanner:
        replica_sets = [controller.replica_set for controller in self._groups.values()]
        where = self._homing, self._nodes, self._pool, replica_sets
        return MovePlanner(self._config, *where, self._replicating)

    def _leave_will(self, indexes: Iterable[int]) -> None:
        self._pool.leave(RecoveryPlan(self._config, self._pool.count), indexes)

    # --- queues -----------------------------------------------------------------------------------

    def _spec(self, name: str) -> QueueSpec:
        return self._homing.spec(queue_spec(self._config, name))

    async def _open_queues(self, config: PxrsConfig, names: Iterable[str] | None = None) -> None:
        """Open all that can be opened, or of these queues alone. What passes is tried again by
        itself, and shown till then.

        Raises what lasts, of a topology that runs: one that starts goes on with all the others.
        """
        specs = [queue_spec(config, name) for name in (config.queues if names is None else names)]
        kept = [spec.queue for spec in specs if not spec.external]
        is_new = any(queue not in self._homing.homes.queues for queue in kept)
        accepts = self.accepts_loss and (is_new or not self._starting.done)
        places = await self._all_places() if accepts else []
        known = ids_on_disks(places)
        to_name = queues_to_name(kept, self._homing.homes, known)
        if to_name:
            disks = {place.looked.disk for place in places}
            away = out_of_sight(self._homing.homes, disks) if accepts else ()
            await self._homing.has_queues(to_name, known, away)
        for error in await self._open_on(self._pool.hosted(), specs):
            if self._starting.done and not passes(error):
                raise error

    async def _open_on(
        self, indexes: Iterable[int], specs: Iterable[QueueSpec]
    ) -> list[BaseException]:
        """Make what was never made, have that durable, then open all; answers what failed."""
        specs = [self._homing.spec(spec) for spec in specs]
        return await carry(open_on(self._homing.homes, list(indexes), specs), self._carry)

    async def _carry(self, step: Do[Any]) -> dict[tuple[int, str], BaseException] | None:
        if isinstance(step, NoteMade):
            await self._homing.made((queue, index) for index, queue in step.places)
            return None
        assert isinstance(step, OpenAll)
        calls = (
            self._pool.open_on(index, spec, self._expected_ends(spec), make=step.make)
            for index, spec in step.pairs
        )
        answers = await asyncio.gather(*calls, return_exceptions=True)
        return {
            (index, spec.queue): answer
            for (index, spec), answer in zip(step.pairs, answers, strict=True)
            if isinstance(answer, BaseException)
        }

    async def _reopen(self, index: int) -> None:
        """A buffer came back: tell it what it must hold, and which epochs are over."""
        term, claim = self._pool.terms[index], self._claim()
        specs = [queue_spec(self._config, name) for name in self._config.queues]
        groups, adopt = list(self._groups.values()), self.accepts_loss
        if self._replicating is not None:
            opening = self._open_on([index], specs)
            failed = await take_lead(self._pool, index, claim, groups, opening, adopt=adopt)
            self._leave_will([index])
        else:
            await self._pool.belong_on(index, claim, adopt=adopt)
            for controller in groups:
                controller.tell_buffers()
            failed = await self._open_on([index], specs)
            # Now that it serves: to read it, it must import what coordinators are made of.
            self._leave_will([index])
            await asyncio.gather(*(controller.meet(index) for controller in groups))
        self._settle(index, term)
        async with self._changing:
            await self._try_to_finish()
        for error in failed:
            raise error
