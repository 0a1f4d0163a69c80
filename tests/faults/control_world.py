"""A topology in one process: the real coordinator and buffers, and a fault at any step between.

Rules of this file. Only Ray is replaced: an actor is its object, a call a task. A *step* is a call
to the store or to a buffer. `Fault` says at which step what happens: the step fails before or
after it was done, once; or the coordinator dies there, as by SIGKILL: whatever is left of it does
nothing more. Store and buffers live on, and the next coordinator is made as Ray would make it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from ray.exceptions import RayActorError

from pxrs_ray.actors.buffer import buffer_actor as buffer_module
from pxrs_ray.actors.buffer.buffer_actor import Buffer
from pxrs_ray.actors.cluster import node_watch
from pxrs_ray.actors.cluster.coordinator_request import Request
from pxrs_ray.actors.cluster.watchdog import Unwatched
from pxrs_ray.actors.coordinator import (
    buffer_calls,
    buffer_slots,
    consumer_replicas,
    coordinator,
    replicas_document,
)
from pxrs_ray.actors.coordinator.coordinator import Coordinator
from pxrs_ray.actors.coordinator.store_thread import StoreThread
from pxrs_ray.config import PxrsConfig
from pxrs_ray.data.batch import Batch
from pxrs_ray.data.protocol import Appended
from pxrs_ray.errors import BufferAway, StoreUnavailable
from pxrs_ray.store.memory import MemoryRegistry, MemoryStore
from pxrs_ray.store.registry import RegistryStore
from pxrs_ray.topology.homes import Home
from pxrs_ray.topology.node_seen import NodeSeen

KINDS = ("failed before", "failed after", "killed before", "killed after")
BUFFERS = 2
CALL_WAIT_S = 3.0
# A queue that a buffer could not open at first is opened by itself, within about a second.
APPEND_WAIT_MS = 5_000
# Reads and lease keep-alives change nothing: that they fail is for the tests of stores.
READS = frozenset(("load", "groups", "expired", "changes", "documents", "describe", "close"))
QUIET = frozenset(("ping", "stats", "timestamps", "renew", "line"))


class Killed(BaseException):
    """The coordinator's process died at this step."""


@dataclass
class Fault:
    """What happens at step `at`, counted from the moment when it is armed."""

    at: int = -1
    kind: str = ""
    reached: str = ""


@dataclass
class Life:
    """One life of a coordinator; a dead one makes no step."""

    fault: Fault
    alive: bool = True
    armed: bool = False
    steps: int = 0
    names: list[str] = field(default_factory=list)

    def step(self, name: str) -> str:
        """Count a step; answers what befalls it. Raises Killed where the process is dead."""
        if not self.alive:
            raise Killed(name)
        if not self.armed:
            return ""
        number = self.steps
        self.steps += 1
        self.names.append(name)
        if number != self.fault.at:
            return ""
        self.fault.reached = name
        if self.fault.kind == "killed before":
            self.alive = False
            raise Killed(name)
        return self.fault.kind

    def done(self, name: str, befalls: str) -> None:
        """After the step: a process that dies here has done it, and nobody heard."""
        if befalls == "killed after":
            self.alive = False
            raise Killed(name)


def faulty_store(registry: MemoryRegistry, life: Life) -> RegistryStore:
    """A store on `registry`, whose calls are steps of `life`."""

    def faulty(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def made(*arguments: Any, **options: Any) -> Any:
            if name in READS or name in QUIET:
                if not life.alive:
                    raise Killed(name)
                return call(*arguments, **options)
            what = f"store.{name}"
            befalls = life.step(what)
            if befalls == "failed before":
                raise StoreUnavailable(f"{what}: not done, and not known")
            answer = call(*arguments, **options)
            life.done(what, befalls)
            if befalls == "failed after":
                raise StoreUnavailable(f"{what}: done, and not known")
            return answer

        made.__name__ = name
        return made

    store = MemoryStore(registry)
    for name in RegistryStore.__abstractmethods__:
        setattr(store, name, faulty(name, getattr(store, name)))
    return store


class Handle:
    """A buffer as an actor handle has it, for one coordinator."""

    def __init__(self, buffer: Callable[[], Buffer], renew: Callable[[], None], life: Life) -> None:
        self._buffer = buffer
        self._renew = renew
        self._life = life

    def __getattr__(self, name: str) -> Any:
        def remote(*arguments: Any) -> asyncio.Future[Any]:
            return asyncio.ensure_future(self._call(name, arguments))

        return mock.Mock(remote=remote)

    async def _call(self, name: str, arguments: tuple[Any, ...]) -> Any:
        what = f"buffer.{name}"
        if name in QUIET:
            if not self._life.alive:
                raise Killed(what)
            if name == "ping" and self._buffer().life.is_closed:
                self._renew()  # its process ends, and Ray makes it anew
            return await getattr(self._buffer(), name)(*arguments)
        befalls = self._life.step(what)
        if befalls == "failed before":
            raise RayActorError
        answer = await getattr(self._buffer(), name)(*arguments)
        self._life.done(what, befalls)
        if befalls == "failed after":
            raise RayActorError
        return answer


class Still:
    """In place of what the coordinator does on the side."""

    def __init__(self, *_: Any) -> None:
        pass

    def close(self) -> None:
        """Nothing to give back."""

    async def report_for_ever(self, *_: Any) -> None:
        """Never report."""
        await asyncio.Event().wait()


class ControlWorld:
    """One topology; use it with `async with` inside one event loop."""

    def __init__(self, config: PxrsConfig, fault: Fault | None = None) -> None:
        self.config = config
        self.registry = MemoryRegistry()
        self.fault = fault or Fault()
        self.buffers: dict[int, Buffer] = {}
        self.lives: list[Life] = []
        self.coordinator: Coordinator
        self._stores: list[StoreThread] = []
        self._produced: dict[tuple[str, int], int] = {}
        self._patches = contextlib.ExitStack()

    @property
    def life(self) -> Life:
        """The newest coordinator's."""
        return self.lives[-1]

    async def __aenter__(self) -> ControlWorld:
        patch = self._patches.enter_context
        patch(mock.patch.object(buffer_slots, "buffer_at_home", self._at_home))
        here = [NodeSeen("here", "10.0.0.1")]
        patch(mock.patch.object(node_watch, "node_here", lambda: "here"))
        patch(mock.patch.object(node_watch, "living_nodes", lambda: (here, "here")))
        patch(mock.patch.object(buffer_calls, "CALL_WAIT_S", CALL_WAIT_S))
        patch(mock.patch.object(coordinator, "DrainWatch", Still))
        patch(mock.patch.object(coordinator, "TopologyMetrics", Still))
        # One process plays them all: nobody of it may be ended for being frozen.
        patch(mock.patch.object(coordinator, "watched", lambda *_: Unwatched()))
        patch(mock.patch.object(buffer_module, "watched", lambda *_: Unwatched()))
        patch(mock.patch.object(coordinator, "open_store_for", self._open_store))
        patch(mock.patch.object(coordinator, "StoreThread", self._store_thread))
        patch(mock.patch.object(coordinator, "start_journal", lambda **_: None))
        patch(mock.patch.object(coordinator, "keep_what_is_loaded", lambda: None))
        patch(mock.patch.object(consumer_replicas, "kill_orphans", mock.AsyncMock()))
        patch(mock.patch.object(replicas_document, "kill_orphans", mock.AsyncMock()))
        patch(mock.patch("os._exit", self._exit))
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for life in self.lives:
            life.alive = False
        for thread in self._stores:
            thread._pool.shutdown(wait=False)
        for buffer in self.buffers.values():
            with contextlib.suppress(Exception):
                await buffer.close()
        self._patches.close()

    def _exit(self, _: int) -> None:
        self.life.alive = False

    def _store_thread(self, make: Callable[[], RegistryStore]) -> StoreThread:
        thread = StoreThread(make)
        self._stores.append(thread)
        return thread

    def _open_store(self, _: PxrsConfig) -> RegistryStore:
        return faulty_store(self.registry, self.life)

    def _at_home(
        self,
        topology: str,
        index: int,
        count: int,
        folder: str,
        lease_s: float,
        anew: bool,
        home: Home,
    ) -> Any:
        return self._handle(topology, index, count, folder, lease_s, home.disk)

    def _handle(
        self, topology: str, index: int, count: int, folder: str, lease_s: float, disk_id: str
    ) -> Any:
        def make() -> None:
            old = self.buffers.get(index)
            for log in old._manager.all_logs() if old is not None else ():
                log.abandon()  # as the end of its process lets go of it
            self.buffers[index] = Buffer(
                topology, index, count, folder, lease_s=lease_s, disk_id=disk_id
            )

        if index not in self.buffers:
            make()
        return Handle(lambda: self.buffers[index], make, self.life)

    def start(self) -> Coordinator:
        """A coordinator as Ray makes it, the first or the next."""
        self.lives.append(Life(self.fault))
        self.coordinator = Coordinator(self.config, BUFFERS)
        # As `deploy` says; a life that is not the first finds the registry, or is told.
        self.coordinator._may_begin = True
        return self.coordinator

    async def call(self, asked_for: str | Request[Any], *arguments: Any) -> Any:
        """Call the coordinator as a driver does: made again, of the next one, until it answers.

        It is asked for a request, or with a method of its own.
        """
        for _ in range(20):
            made, life = self.coordinator, self.life
            if isinstance(asked_for, Request):
                asked = asyncio.ensure_future(made.answer(asked_for))
            else:
                asked = asyncio.ensure_future(getattr(made, asked_for)(*arguments))
            while not asked.done() and life.alive:
                await asyncio.wait([asked], timeout=0.01)
            if asked.done() and life.alive:
                return asked.result()
            asked.cancel()
            with contextlib.suppress(BaseException):
                await asked
            self.start()
        raise AssertionError("no coordinator answers")

    async def again(self, asked_for: str | Request[Any], *arguments: Any) -> Any:
        """As `call`, once more where it fails for a passing reason."""
        try:
            return await self.call(asked_for, *arguments)
        except (BufferAway, StoreUnavailable, TimeoutError):
            return await self.call(asked_for, *arguments)

    @property
    def folder(self) -> Path:
        """Where the logs are."""
        return self.config.topology_dir

    async def restart_buffers(self) -> None:
        """End every buffer as its actor ends, and let the next call make it anew."""
        for buffer in self.buffers.values():
            await buffer.close()
        self.buffers.clear()

    async def settled(self) -> None:
        """Return when the logs have been told how far each group is."""
        await asyncio.sleep(1.2)

    async def produce(self, queue: str, partition: int, count: int) -> None:
        """Append `count` messages, one a frame."""
        for _ in range(count):
            number = self._produced.get((queue, partition), 0)
            self._produced[queue, partition] = number + 1
            payload = b"%d" % number
            producer = f"{queue}/{partition}".encode().ljust(16, b".")[:16]
            wire = Batch.of([payload], [payload], timestamp_ms=1).to_wire(producer, 0, number)
            buffer = self.buffers[partition % BUFFERS]
            [answer] = await buffer.append(queue, [(partition, *wire)], APPEND_WAIT_MS)
            assert isinstance(answer, Appended), answer

    def checkpoints(self, group: str) -> dict[int, int]:
        """What the registry holds, whatever any coordinator thinks."""
        found = MemoryStore(self.registry).load(f"{self.config.name}/{group}")
        assert found is not None, f"the registry has no group {group}"
        return {row.partition: row.checkpoint for row in found.partitions}


@contextlib.asynccontextmanager
async def control_world(
    folder: Path, fault: Fault | None = None, **options: Any
) -> AsyncIterator[ControlWorld]:
    """A world with a kept registry, in `folder`."""
    config = PxrsConfig(name="t", store="sqlite:///never-opened.db", data_dir=folder, **options)
    async with ControlWorld(config, fault) as world:
        yield world


def every_fault(steps: int) -> Iterator[Fault]:
    """Each kind of fault at each of so many steps."""
    for at in range(steps):
        for kind in KINDS:
            yield Fault(at, kind)
