"""`Coordinator`: the one detached actor of a topology. It holds the core's `GroupCoordinator`s.

Rules of this file. The store is the truth: what the topology is made of (its configuration, its
groups, their consumers) is kept there as documents. So an actor that Ray restarts, on this node or
another, goes on with exactly the same. It finds buffers and consumers again by name and causes no
ownership change. Every method that members call is idempotent.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from pxrs_ray.actors.cluster.coordinator_request import GroupRequest, Request
from pxrs_ray.actors.cluster.node_watch import NodeWatch, asked_of
from pxrs_ray.actors.cluster.priority import be_as_nice_as
from pxrs_ray.actors.cluster.process_memory import keep_what_is_loaded
from pxrs_ray.actors.cluster.watchdog import watched
from pxrs_ray.actors.coordinator.buffer_pool import BufferPool
from pxrs_ray.actors.coordinator.commands import Commands
from pxrs_ray.actors.coordinator.drain_watch import DrainWatch
from pxrs_ray.actors.coordinator.group_controller import GroupController
from pxrs_ray.actors.coordinator.known_ends import DOCUMENT as KNOWN_ENDS_DOCUMENT
from pxrs_ray.actors.coordinator.metrics import Sources, TopologyMetrics
from pxrs_ray.actors.coordinator.questions import Questions
from pxrs_ray.actors.coordinator.registry_actor import open_store_for
from pxrs_ray.actors.coordinator.request_handlers import RequestHandlers, answers
from pxrs_ray.actors.coordinator.startup import Startup, patiently
from pxrs_ray.actors.coordinator.store_thread import StoreThread
from pxrs_ray.actors.coordinator.topology_documents import TopologyDocuments
from pxrs_ray.actors.coordinator.topology_requests import (
    ApplyConfig,
    Ping,
    ShutDown,
)
from pxrs_ray.clock import SystemClock, wall_ms
from pxrs_ray.config import Difference, PxrsConfig
from pxrs_ray.config.declare import Effect
from pxrs_ray.config.document import CONFIG, decode
from pxrs_ray.config.withheld import with_what_stays, without
from pxrs_ray.errors import NotFound, StoreError, UsageError
from pxrs_ray.group.custom_assignor import check_assignor
from pxrs_ray.json_logging import start_journal
from pxrs_ray.model import Outcome
from pxrs_ray.replication.placements import DOCUMENT as PLACEMENTS_DOCUMENT
from pxrs_ray.status.past import Past
from pxrs_ray.steps import Do, carry
from pxrs_ray.store.registry import RegistryStore
from pxrs_ray.supervision.supervisor import Supervisor, within
from pxrs_ray.topology import coordinator_start as beginning
from pxrs_ray.topology.applying import Applying, KeepWanted, OpenWanted, ReconfigureGroup
from pxrs_ray.topology.homes import DOCUMENT as HOMES_DOCUMENT
from pxrs_ray.topology.registry_witness import ACCEPTING, RegistryWitness, ShownRegistry
from pxrs_ray.topology.seal import Seal, new_key, seal_of
from pxrs_ray.topology.tombstones import DOCUMENT as ENDS_DOCUMENT
from pxrs_ray.topology.tombstones import Tombstones, ends_from

A = TypeVar("A")

logger = logging.getLogger(__name__)

# The store's thread and the event loop want the interpreter in turns, many times a commit; at
# Python's usual 5 ms a turn each would wait for the other.
SWITCH_S = 0.000_5

# Less than callers wait: the error says what the start waits for.
START_WAIT_S = 50.0
UNDO_WAIT_S = 5.0


class Coordinator(TopologyDocuments, Questions):
    """The coordinator of one topology. Use it through
    `pxrs_ray.actors.client.topology.Topology`."""

    def __init__(self, config: PxrsConfig, buffers: int, seal_key: bytes | None = None) -> None:
        self._config = config
        self._seal_key = seal_key or new_key()
        self._buffer_count = buffers
        self._started_s = wall_ms() / 1_000
        self._starting = Startup(f"topology {config.name}", self._start, self._undo)
        self._clock = SystemClock()
        self._groups: dict[str, GroupController] = {}
        self._past = Past()
        self._store: RegistryStore
        self._thread: StoreThread
        self._pool: BufferPool
        self._high_water: RegistryWitness
        self._drains: DrainWatch
        self._reporting: asyncio.Task[None]
        self._keeping: list[asyncio.Task[None]]
        start_journal(topology=config.name, actor="coordinator")
        sys.setswitchinterval(SWITCH_S)
        keep_what_is_loaded()
        be_as_nice_as()
        self._closing = False
        self._changing = asyncio.Lock()
        self._turns: dict[str, asyncio.Lock] = {}
        self._ends = Tombstones()
        self._applying = Applying()
        self._documents: Mapping[str, str] = {}
        self._may_begin = False
        self._deployed = self._accepted = ""
        self._shown = ShownRegistry()
        self._leads_over = 0
        self.accepts_loss = False
        self._watched = watched(config.topology_dir, "coordinator", config.lease_ttl_seconds)
        self._handlers = RequestHandlers(self)
        self.changes = Commands(self.registry_away_ms, lambda: self._thread.health.problem)
        self.topology_id = ""
        self.seal: Seal

    async def answer(self, request: Request[A]) -> A:
        """Answer a request: by the method that is marked for its type, here or of its group."""
        if not isinstance(request, GroupRequest):
            return await self._handlers.answer(request)
        await self._ready()
        return await self._controller(request.group).handlers.answer(request)

    # --- life -------------------------------------------------------------------------------------

    def registry_away_ms(self) -> int | None:
        """For how long the registry has been away; None while it is not known to be."""
        return self._thread.away_ms() if hasattr(self, "_thread") else None

    async def _ready(self) -> None:
        """Return when this incarnation has recovered; the first caller makes it begin."""
        if self._closing:
            raise NotFound(f"topology {self._config.name} is being shut down")
        await self._starting.wait(START_WAIT_S)

    async def _undo(self) -> None:
        """Take back what a start that failed has left: the next one begins from nothing."""
        for controller in self._groups.values():
            controller.autoscale.close()
            controller.replica_set.let_go()
            await controller.let_go()
        self._groups.clear()
        if self._replicating is not None:
            await self._replicating.close()
        if hasattr(self, "_homing"):
            await self._moving.close()
            await self._homing.close()
        if hasattr(self, "_pool"):
            self._pool.stop_watching()
        if hasattr(self, "_thread"):
            with suppress(TimeoutError, StoreError):
                await within(UNDO_WAIT_S, self._thread.close())

    async def _start(self) -> None:
        self._watched.begin()
        await carry(beginning.begin_coordinator(self._config.name), self._do)

    async def _do(self, what: Do[Any]) -> Any:
        match what:
            case beginning.OpenRegistry():
                await self._open_registry()
                return self._leads_over
            case beginning.LeadTopology(over):
                await self._lead(over)
                self._shown = replace(self._shown, generation=self._generation)
            case beginning.ReadTopology():
                return await self._recover()
            case beginning.FindHomes():
                documents = self._documents
                placements = documents.get(PLACEMENTS_DOCUMENT, "")
                await self._find_homes(documents.get(HOMES_DOCUMENT, ""), placements)
            case beginning.CheckIdentity():
                await self._check_identity()
            case beginning.GrantLeases():
                await self._pool.grant()
                self._pool.keep_granting()
            case beginning.LeadListed(group):
                self._groups[group] = controller = self._new_shell(group, self._config)
                await controller.lead()
            case beginning.OpenQueues():
                await self._open_queues(self._config)
            case beginning.GoOnWith(group):
                await self._groups[group].go_on()
            case beginning.SettleStart():
                for index in self._pool.met():
                    self._settle(index, self._pool.terms[index])
                await self._forget_old_keys()
                await self._try_to_finish()
            case beginning.SettleAcceptance():
                await self._settle_acceptance()
                self.accepts_loss = self._config.store_url.startswith("memory:")
            case beginning.KeepWatch():
                self._nodes.minds_all = False
                self._keep_watch()
            case _:
                raise AssertionError(what)
        return None

    async def _open_registry(self) -> None:
        """Open the registry, and what is known of it beside it: its witness, and the seal."""
        config = self._config
        self._thread = StoreThread(lambda: open_store_for(config))
        self._store = await self._thread.open()
        self._thread.look_by(partial(self._store.documents, config.name))
        self._nodes = NodeWatch(asked_of(config, make=True))
        await self._check_begun()
        registry_id = await self._thread.call_until_known(self._store.create)
        self._shown = ShownRegistry(registry_id)
        kept = not config.store_url.startswith("memory:")
        folder = config.topology_dir
        self._high_water = await patiently(
            lambda strict: RegistryWitness(folder, registry_id, kept=kept, strict=strict)
        )
        self.seal, self._seal_problem = await patiently(
            lambda strict: seal_of(folder, self._seal_key, strict=strict)
        )

    async def _recover(self) -> beginning.FoundTopology:
        """Go on with the configuration that the registry has, less what is being removed, and
        with a pool of the buffers that are known."""
        config = self._config
        self._documents = documents = await self._thread.call_until_known(
            self._store.documents, config.name
        )
        await self._note_acceptance(documents)
        self.topology_id = documents.get("topology_id", "") or await self._make_topology_id()
        self._high_water.note_topology(self.topology_id)
        self._deployed = documents.get("deployed", "")
        self._ends = going = ends_from(documents.get(ENDS_DOCUMENT, ""))
        if "config" in documents:
            self._config = config = decode(documents["config"].encode(), config.store)
        short = tuple(self._short(name) for name in going.groups)
        config = without(config, short, tuple(self._short(name) for name in going.queues))
        await self._keep_config(config)
        where, lease_s = str(config.topology_dir), config.lease_ttl_seconds
        self._pool = BufferPool(config.name, self._buffer_count, where, lease_s, config.link_ports)
        self._pool.grants.generation = self._generation
        self._pool.confirm = self._confirm_leading
        self._pool.known_ends.read(documents.get(KNOWN_ENDS_DOCUMENT, ""))
        known = {name for name in documents.get("groups", "").split("\n") if name}
        return beginning.FoundTopology(known, going.groups, is_going=bool(going.topology))

    def _keep_watch(self) -> None:
        """From here on, by itself: what is away comes back, what drains is left, all is told."""
        self._pool.watch(self._reopen)
        self._homing.keep_on()
        self._leave_will(self._pool.met())
        self._keeping = self._keep_up()
        replica_sets = partial(
            map, lambda controller: controller.replica_set, self._groups.values()
        )
        self._drains = DrainWatch(replica_sets, self._moving.leave_nodes)
        metrics = TopologyMetrics(self._config.name)
        report = partial(metrics.report_for_ever, self._metric_sources)
        self._reporting = Supervisor(self._config.name).keep("metrics", report)

    async def _note_acceptance(self, documents: Mapping[str, str]) -> None:
        """Have it in the registry that its loss was accepted, until a start has gone on with it.

        One that was cut off may have been on another node, which had the note. A registry in memory
        is another each time: nothing that it knew is missed. Raises StoreCorrupted.
        """
        noted = documents.get(ACCEPTING, "")
        self._high_water.led(self._generation, knows=bool(documents) and not noted)
        self._accepted = self._high_water.accepted or noted
        in_memory = self._config.store_url.startswith("memory:")
        self.accepts_loss = in_memory or bool(self._accepted)
        if self._accepted:
            await self._put_document(ACCEPTING, self._accepted)
            self._high_water.registry_says_so()

    async def _settle_acceptance(self) -> None:
        """What was accepted is dealt with."""
        if self._accepted:
            await self._put_document(ACCEPTING, "")
        self._high_water.settled()

    async def _metric_sources(self) -> Sources:
        recent_ms = list(self._thread.recent_ms)
        self._thread.recent_ms.clear()
        tallies = {name: controller.host.tally for name, controller in self._groups.items()}
        status = await self.status()
        self._past.note(wall_ms(), status)
        return Sources(status, tallies, await self._pool.stats(), recent_ms)

    @answers(Ping)
    async def ping(self, begin: bool = False) -> tuple[str, int, float]:
        """Fingerprint, process id, and when this incarnation began.

        With `begin`, a registry that is nowhere is begun here: `deploy` says so, and nobody else.
        """
        self._may_begin = self._may_begin or begin
        await self._ready()
        return self._config.fingerprint(), os.getpid(), self._started_s

    @answers(ShutDown)
    async def shutdown(self) -> list[str]:
        """Stop everything gracefully where it can be, and name the actors that must be killed."""
        await self._ready()
        async with self._changing:
            await self._shut_down()
        actors = [name for controller in self._groups.values() for name in controller.actor_names()]
        return [*actors, *self._pool.actor_names()]

    async def _shut_down(self) -> None:
        if self._closing:
            return
        for controller in self._groups.values():
            await controller.close(graceful=True)
        self._closing = True
        self._drains.close()
        await self._moving.close()
        await self._homing.close()
        self._reporting.cancel()
        for task in self._keeping:
            task.cancel()
        await self._pool.close()
        await self._thread.close()

    # --- configuration ----------------------------------------------------------------------------

    @answers(ApplyConfig)
    async def apply(self, wanted: PxrsConfig, dry_run: bool = False) -> tuple[Difference, ...]:
        """Change what may be changed live, one caller after the other; answer what differed.

        Groups and queues stay though `wanted` does not name them: commands of their own remove
        them. Raises UsageError naming what cannot be had live, and then nothing has changed.
        """
        await self._ready()
        async with self._changing:
            return await self._apply(wanted, dry_run)

    async def _apply(self, wanted: PxrsConfig, dry_run: bool) -> tuple[Difference, ...]:
        if not dry_run:
            names = [*wanted.queues, *wanted.groups]
            await self._try_to_finish([wanted.full_name(name) for name in names])
        wanted = with_what_stays(wanted, self._config)
        found = self._config.diff(wanted)
        fixed = [str(difference) for difference in found if not difference.allowed]
        if fixed:
            raise UsageError(
                f"topology {self._config.name} runs with another configuration, and this cannot "
                f"change while it holds messages: {'; '.join(fixed)}. Deploy under another name, "
                "or with the options it has"
            )
        for group in wanted.groups.values():
            check_assignor(group.assignor)
        if dry_run or not self._applying.has_to(differs=bool(found)):
            return found
        groups = [
            name for each in wanted.groups if (name := wanted.full_name(each)) in self._groups
        ]
        of_buffers = any(Effect.BUFFERS in one.changes for one in found)
        steps = self._applying.apply(groups, of_buffers=of_buffers)
        await carry(steps, partial(self._do_apply, wanted))
        return found

    async def _do_apply(self, wanted: PxrsConfig, what: Do[Any]) -> None:
        match what:
            case KeepWanted():
                await self._keep_config(wanted)
                self._follow_replicas(wanted)
            case OpenWanted():
                self._pool.follow(wanted.link_ports)
                await self._open_queues(wanted)
            case ReconfigureGroup(group):
                controller = self._groups[group]
                controller.follow(wanted)
                await controller.reconfigure(wanted.groups[self._short(group)])
            case _:
                raise AssertionError(what)

    async def _keep_config(self, config: PxrsConfig) -> None:
        """Make `config` what is in force; nobody sees it before it is durable."""
        await self._put_document("config", CONFIG.encode_text(config))
        self._config = config

    async def _put_document(self, name: str, text: str) -> None:
        outcome = await self._thread.call_until_known(
            self._store.put_document, self._config.name, self._generation, name, text
        )
        if outcome is not Outcome.APPLIED:
            self.deposed(self._config.name, RuntimeError("a newer coordinator leads"))

    # --- Owner: called by group shells ------------------------------------------------------------

    def deposed(self, group: str, error: BaseException) -> None:
        """Another coordinator leads, or we are broken: end. Ray restarts the one that it knows."""
        logger.error("coordinator of %s ends (%s): %s", self._config.name, group, error)
        os._exit(1)

    def led(self, group: str, generation: int, version: int) -> None:
        """Remember on this node's disk how far the registry had come."""
        self._high_water.note(group, generation, version)

    def check_led(self, group: str, generation: int, version: int) -> None:
        """Raise StoreCorrupted when the registry is behind what it had accepted before."""
        self._high_water.check(group, generation, version)
