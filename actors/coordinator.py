"""`Coordinator`: the one detached actor of a topology. Hosts the core's `GroupCoordinator`s.

Rules of this file. The store is the truth: what the topology is made of (its configuration, its
groups, their consumers) is kept there as documents, so that an actor that Ray restarts, on this
node or another, goes on with the very same. It re-attaches to buffers and consumers by name and
causes no ownership change. Every method that members call is idempotent.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pxrs_ray.actors.buffers import BufferPool
from pxrs_ray.actors.draining import DrainWatch
from pxrs_ray.actors.group_shell import GroupShell
from pxrs_ray.actors.group_view import queue_status
from pxrs_ray.actors.handler import HandlerRef
from pxrs_ray.actors.high_water import HighWater
from pxrs_ray.actors.memory import keep_what_is_loaded
from pxrs_ray.actors.memory_store import open_store_for
from pxrs_ray.actors.metrics import Sources, TopologyMetrics
from pxrs_ray.actors.specs import GroupSpec
from pxrs_ray.actors.store_thread import StoreThread
from pxrs_ray.clock import SystemClock
from pxrs_ray.config import Difference, PxrsConfig
from pxrs_ray.config.reading import given
from pxrs_ray.errors import AlreadyExists, NotFound, StoreUnavailable, UsageError
from pxrs_ray.journal import start_journal
from pxrs_ray.log.wire import BufferStats, QueueSpec
from pxrs_ray.model import Offset, Outcome, PartitionId
from pxrs_ray.stats import GroupStatus, History, TopologyStatus
from pxrs_ray.store.base import RegistryStore

logger = logging.getLogger(__name__)

# The topology's own documents live in a group of the registry, and a group has a row at least.
DOCUMENT_ROWS = 1

# The store's thread and the event loop want the interpreter in turns, many times a commit; at
# Python's usual 5 ms a turn each would wait for the other.
SWITCH_S = 0.000_5


class Coordinator:
    """The coordinator of one topology. Use it through `pxrs_ray.actors.topology.Topology`."""

    def __init__(self, config: PxrsConfig, buffers: int) -> None:
        self._config = config
        self._buffer_count = buffers
        self._started_s = time.time()
        self._starting: asyncio.Task[None] | None = None
        self._clock = SystemClock()
        self._groups: dict[str, GroupShell] = {}
        self._store: RegistryStore
        self._thread: StoreThread
        self._pool: BufferPool
        self._high_water: HighWater
        self._drains: DrainWatch
        self._reporting: asyncio.Task[None]
        start_journal(topology=config.name, actor="coordinator")
        sys.setswitchinterval(SWITCH_S)
        keep_what_is_loaded()
        self._closing = False
        self._deployed = ""

    # --- life -------------------------------------------------------------------------------------

    async def _ready(self) -> None:
        """Return when this incarnation has recovered; the first caller makes it begin."""
        if self._closing:
            raise NotFound(f"topology {self._config.name} is being shut down")
        if self._starting is None:
            self._starting = asyncio.ensure_future(self._start())
        try:
            await asyncio.shield(self._starting)
        except StoreUnavailable:
            # Whoever asks next tries again: the store may be back by then.
            self._starting = None
            raise

    async def _start(self) -> None:
        config = self._config
        self._thread = StoreThread(lambda: open_store_for(config))
        self._store = await self._thread.open()
        registry_id = await self._thread.call_until_known(self._store.create)
        self._high_water = HighWater(
            config.topology_dir, registry_id, kept=not config.store_url.startswith("memory:")
        )
        snapshot = await self._thread.call_until_known(
            self._store.lead, config.name, DOCUMENT_ROWS, f"pid {os.getpid()}"
        )
        self._generation = snapshot.generation
        documents = await self._thread.call_until_known(self._store.documents, config.name)
        self._deployed = documents.get("deployed", "")
        if "config" in documents:
            self._config = config = _config_from(documents["config"], config.store)
        await self._keep_config()
        self._pool = BufferPool(config.name, self._buffer_count, str(config.topology_dir))
        await self._pool.start()
        known = {name for name in documents.get("groups", "").split("\n") if name}
        for name in sorted(known):
            await self._open_group(name, recovering=True)
        for name in config.queues:
            await self._open_queue(name)
        for shell in self._groups.values():
            await shell.go_on()
        self._pool.watch(self._reopen)
        self._drains = DrainWatch(lambda: [shell.staff for shell in self._groups.values()])
        metrics = TopologyMetrics(config.name)
        self._reporting = asyncio.ensure_future(metrics.report_for_ever(self._metric_sources))

    async def _metric_sources(self) -> Sources:
        recent_ms = list(self._thread.recent_ms)
        self._thread.recent_ms.clear()
        tallies = {name: shell.host.tally for name, shell in self._groups.items()}
        return Sources(await self.status(), tallies, await self._pool.stats(), recent_ms)

    async def ping(self) -> tuple[str, int, float]:
        """Fingerprint, process id, and when this incarnation began."""
        await self._ready()
        return self._config.fingerprint(), os.getpid(), self._started_s

    async def shutdown(self, keep_data: bool = True) -> list[str]:
        """Stop everything gracefully where it can be, and name the actors that must be killed."""
        await self._ready()
        for shell in self._groups.values():
            await shell.close(graceful=True)
        self._closing = True
        self._drains.close()
        self._reporting.cancel()
        actors = [name for shell in self._groups.values() for name in shell.actor_names()]
        await self._pool.close()
        await self._thread.close()
        return [*actors, *self._pool.actor_names()]

    # --- configuration ----------------------------------------------------------------------------

    async def config(self) -> PxrsConfig:
        """What is in force."""
        await self._ready()
        return self._config

    async def apply(self, wanted: PxrsConfig, dry_run: bool = False) -> tuple[Difference, ...]:
        """Change what may be changed live; answer what differed.

        Groups that were made while running stay, though `wanted` does not name them. Raises
        UsageError naming every difference that cannot be had live, and changes nothing.
        """
        await self._ready()
        unnamed = self._config.groups.keys() - wanted.groups.keys()
        if unnamed:
            wanted = wanted.changed(
                groups={name: given(self._config.groups[name]) for name in unnamed}
            )
        found = self._config.diff(wanted)
        fixed = [str(difference) for difference in found if not difference.allowed]
        if fixed:
            raise UsageError(
                f"topology {self._config.name} runs with another configuration, and these "
                "options cannot change while it holds messages:\n  "
                + "\n  ".join(fixed)
                + "\nDeploy under another name, or with the options it has"
            )
        if dry_run or not found:
            return found
        self._config = wanted
        await self._keep_config()
        for name in wanted.queues:
            await self._open_queue(name)
        for name, group in wanted.groups.items():
            shell = self._groups.get(wanted.full_name(name))
            if shell is not None:
                await shell.reconfigure(group)
        return found

    async def _keep_config(self) -> None:
        plain = self._config.model_dump_json(exclude={"store"}, exclude_defaults=True)
        await self._put_document("config", plain)

    async def document(self, name: str) -> str:
        """What `keep_document` kept last; '' when nothing was."""
        await self._ready()
        documents = await self._thread.call(self._store.documents, self._config.name)
        return documents.get(name, "")

    async def keep_document(self, name: str, text: str) -> None:
        """Keep a text of the topology's own under a name with a slash, which nobody else uses."""
        await self._ready()
        assert "/" in name
        await self._put_document(name, text)

    async def deployed(self) -> str:
        """What `note_deployed` kept last; '' when nothing was."""
        await self._ready()
        return self._deployed

    async def note_deployed(self, text: str) -> None:
        """Keep which file was deployed, beside the configuration."""
        await self._ready()
        await self._put_document("deployed", text)
        self._deployed = text

    async def _put_document(self, name: str, text: str) -> None:
        outcome = await self._thread.call_until_known(
            self._store.put_document, self._config.name, self._generation, name, text
        )
        if outcome is not Outcome.APPLIED:
            self.deposed(self._config.name, RuntimeError("a newer coordinator leads"))

    # --- queues -----------------------------------------------------------------------------------

    async def queue(self, name: str) -> tuple[QueueSpec, PxrsConfig, int]:
        """The queue as buffers and producers know it, the configuration, and how many buffers."""
        await self._ready()
        return self._queue_spec(name), self._config, self._buffer_count

    def _queue_spec(self, name: str) -> QueueSpec:
        queue = self._config.resolved_queue(name)
        limits, external = queue.log_limits(), queue.source is not None
        return QueueSpec(self._config.full_name(name), queue.partitions, limits, external)

    async def _open_queue(self, name: str) -> None:
        spec = self._queue_spec(name)
        await self._pool.open(spec, self._expected_ends(spec))

    async def _reopen(self, index: int) -> None:
        """A buffer came back: tell it what it must hold, and which epochs are over."""
        for name in self._config.queues:
            spec = self._queue_spec(name)
            await self._pool.open_on(index, spec, self._expected_ends(spec))
        for shell in self._groups.values():
            shell.tell_buffers()

    def _expected_ends(self, spec: QueueSpec) -> dict[PartitionId, Offset]:
        ends: dict[PartitionId, Offset] = {}
        for shell in self._groups.values():
            if shell.spec.queue == spec.queue:
                for row in shell.host.core.state.rows:
                    ends[row.partition] = max(ends.get(row.partition, 0), row.checkpoint)
        return ends

    # --- groups -----------------------------------------------------------------------------------

    async def _open_group(self, full_name: str, *, recovering: bool) -> GroupShell:
        shell = GroupShell(
            full_name, self._config, self._store, self._thread, self._clock, self._pool, self
        )
        await shell.lead(recovering=recovering)
        self._groups[full_name] = shell
        return shell

    async def group(self, name: str, queue: str | None, options: Mapping[str, Any]) -> str:
        """Make sure that the group exists; answer its full name. Options are for a new group."""
        await self._ready()
        full_name = self._config.full_name(name)
        shell = self._groups.get(full_name)
        if shell is not None:
            declared = self._config.resolved_group(name)
            if queue is not None and queue != declared.queue:
                raise AlreadyExists(
                    f"group {name!r} reads queue {declared.queue!r}, not {queue!r}: "
                    "use another name"
                )
            return full_name
        if name not in self._config.groups:
            if queue is None:
                self._config.resolved_group(name)
            self._config.resolved_queue(str(queue))
            self._config = self._config.changed(groups={name: {"queue": queue, **options}})
            await self._keep_config()
            for queue_name in self._config.queues:
                await self._open_queue(queue_name)
        shell = await self._open_group(full_name, recovering=False)
        await self._put_document("groups", "\n".join(sorted(self._groups)))
        await shell.go_on()
        return full_name

    def _shell(self, group: str) -> GroupShell:
        try:
            return self._groups[group]
        except KeyError:
            known = ", ".join(sorted(self._groups)) or "none"
            raise NotFound(
                f"no group {group!r} in topology {self._config.name}; there are: {known}"
            ) from None

    async def group_spec(self, group: str) -> GroupSpec:
        """A group as its members must know it."""
        await self._ready()
        return self._shell(group).spec

    async def handler(self, group: str) -> HandlerRef | None:
        """What a group's consumers call; None when it was not started."""
        await self._ready()
        crew = self._shell(group).staff.crew
        return crew.handler if crew is not None else None

    async def command(self, group: str, name: str, *arguments: Any) -> Any:
        """Carry out a command on a group; see `GroupShell.command`."""
        await self._ready()
        return await self._shell(group).command(name, *arguments)

    async def member(self, group: str, name: str, *arguments: Any) -> Any:
        """Answer a member of a group; see `MemberDesk`."""
        await self._ready()
        return await self._shell(group).members.call(name, *arguments)

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

    # --- asking -----------------------------------------------------------------------------------

    async def status(self) -> TopologyStatus:
        """Everything, at this moment."""
        await self._ready()
        # Before the ends, which are asked later: lag is never told as less than it was.
        stood = {shell: shell.checkpoints() for shell in self._groups.values()}
        queues = {name: self._config.full_name(name) for name in self._config.queues}
        found = await asyncio.gather(*(self._pool.ends(queue) for queue in queues.values()))
        ends = dict(zip(queues.values(), found, strict=True))
        groups = await asyncio.gather(
            *(shell.status(at, ends[shell.spec.queue]) for shell, at in stood.items())
        )
        problems = [*self._pool.problems(), *self._high_water.problems]
        return TopologyStatus(
            self._config.name,
            self._config.fingerprint(),
            os.getpid(),
            self._started_s,
            self._buffer_count,
            self._thread.status(self._store.describe()),
            tuple(queue_status(name, ends[queue]) for name, queue in queues.items()),
            tuple(groups),
            tuple(problems),
        )

    async def group_status(self, group: str) -> GroupStatus:
        """One group, at this moment."""
        await self._ready()
        shell = self._shell(group)
        checkpoints = shell.checkpoints()
        return await shell.status(checkpoints, await self._pool.ends(shell.spec.queue))

    async def buffer_stats(self) -> dict[int, BufferStats]:
        """What each buffer has done and holds; those that are away are missing."""
        await self._ready()
        return await self._pool.stats()

    async def history(self, group: str, after_version: int, limit: int) -> History:
        """The newest `limit` changes of a group after `after_version`."""
        await self._ready()
        self._shell(group)
        changes = await self._thread.call(
            self._store.changes, self._shell(group).key, after_version, limit
        )
        return History(group, tuple(changes))


def _config_from(text: str, store: str) -> PxrsConfig:
    options = json.loads(text)
    options["store"] = store
    options["data_dir"] = Path(options["data_dir"]) if "data_dir" in options else Path("~/.pxrs")
    return PxrsConfig(**options)
