"""Replicas of one slot in one event loop: real buffers, a real `ReplicaController`, no Ray."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

from ray.exceptions import ActorDiedError

from pxrs_ray.actors.buffer import replica_buffer, replica_host
from pxrs_ray.actors.buffer.replica_buffer import ReplicaBuffer
from pxrs_ray.actors.cluster import gcs
from pxrs_ray.actors.coordinator.buffer_pool import BufferPool
from pxrs_ray.actors.coordinator.home_controller import HomeController
from pxrs_ray.actors.coordinator.replica_controller import ReplicaController
from pxrs_ray.actors.coordinator.replica_followers import Replicated
from pxrs_ray.data.batch import Batch, batches
from pxrs_ray.data.frame import producer_id
from pxrs_ray.data.log_limits import LogLimits
from pxrs_ray.data.protocol import Appended, BufferGrant, Fetched, QueueSpec, Refused
from pxrs_ray.files import Files
from pxrs_ray.log.disk_id import make_disk_id
from pxrs_ray.replication.placement import Placement
from pxrs_ray.replication.replica_calls import ReplicaRules
from pxrs_ray.topology.homes import Home, Homes
from pxrs_ray.topology.node_seen import NodeSeen
from tests.settings import log_limits

WAIT_S = 20.0
LEASE_S = 3.0
QUEUE, QUEUE_ID = "q", "id-of-q"
SLOT = 0


class Handle:
    """A replica's process as others call it."""

    def __init__(self, group: Group, disk: str) -> None:
        self._group, self._disk = group, disk
        self.buffer: ReplicaBuffer | None = None
        self.under_way: set[asyncio.Future[Any]] = set()

    def __getattr__(self, name: str) -> Any:
        def remote(*arguments: Any) -> Any:
            return asyncio.ensure_future(self._call(name, arguments))

        return SimpleNamespace(remote=remote)

    async def _call(self, name: str, arguments: Sequence[Any]) -> Any:
        if self._disk in self._group.mute:
            await asyncio.sleep(3_600)
        if name == "hear" and self._disk in self._group.deaf:
            return None
        if self.buffer is None:
            raise ActorDiedError()
        buffer = self.buffer
        call = asyncio.ensure_future(getattr(buffer, name)(*arguments))
        self.under_way.add(call)
        try:
            return await call
        except asyncio.CancelledError:
            if self.buffer is buffer:
                raise
            raise ActorDiedError() from None
        finally:
            self.under_way.discard(call)


class Group:
    """Replicas on disks of their own, a coordinator of them, and its registry: `document`."""

    def __init__(
        self,
        folder: Path,
        disks: int = 2,
        limits: LogLimits | None = None,
        replicas: int = 2,
        **rules: Any,
    ) -> None:
        self.document = ""
        self.deaf: set[str] = set()
        self.mute: set[str] = set()
        self.ended: list[str] = []
        # Those whose disks have no replica any more.
        self.gone: list[str] = []
        self._dying: list[asyncio.Future[None]] = []
        self.is_removed = False
        self.replicas = replicas
        self.draining: set[str] = set()
        self._rules = ReplicaRules(**rules)
        self.spec = QueueSpec(QUEUE, 1, limits or log_limits(), queue_id=QUEUE_ID)
        self.folders = {}
        for number in range(disks):
            where = folder / f"host{number}"
            self.folders[make_disk_id(Files(), where)] = where / "t"
        self.disks = list(self.folders)
        self.handles = {disk: Handle(self, disk) for disk in self.disks}
        self.homing = SimpleNamespace(
            homes=Homes().with_queue(QUEUE, QUEUE_ID), nodes=self.nodes(), keep=self._keep_homes
        )
        self.homing.looked, self.homing.led = self._looked, self._led
        self.grants = SimpleNamespace(generation=1)
        self.pool = SimpleNamespace(
            grants=self.grants,
            begins_at=lambda *_: False,
            placed=self._is_placed,
            look_soon=lambda _: None,
        )
        self.serves: Handle | None = None
        self.controller: ReplicaController
        self._patches = [
            patch.object(gcs, "kill", self._kill),
            patch.object(replica_host, "end_process", self._ends),
            patch.object(replica_buffer, "end_process", self._ends),
        ]

    def nodes(self) -> list[NodeSeen]:
        return [
            NodeSeen(f"n{disk}", f"h{disk}", disk, "boot", draining=disk in self.draining)
            for disk in self.disks
        ]

    async def _looked(self) -> list[NodeSeen]:
        return list(self.homing.nodes)

    async def _keep_homes(self, change: Callable[[Homes], Homes]) -> None:
        self.homing.homes = change(self.homing.homes)

    async def _led(self, slot: int, home: Home) -> None:
        self.homing.homes = self.homing.homes.with_slot(slot, home)

    async def _put(self, _: str, text: str) -> None:
        await asyncio.sleep(0)
        self.document = text

    def _ends(self) -> None:
        """A process has ended itself, by the timer of its buffer."""
        for disk, handle in self.handles.items():
            host = handle.buffer._host if handle.buffer is not None else None
            if host is not None and "no replica of the slot" in host.over:
                self.gone.append(disk)
                self._dying.append(asyncio.ensure_future(self._go(disk)))
        traceback.print_stack()

    async def _go(self, disk: str) -> None:
        """It ends, and another one may start there when it is placed again."""
        await self.kill(disk)
        self.ended.remove(disk)

    async def _kill(self, handle: Handle) -> None:
        if handle.buffer is not None:
            await self.kill(handle._disk)

    def _is_placed(self, _: int, home: Home, handle: Handle) -> None:
        self.serves = handle
        self.homing.homes = self.homing.homes.with_slot(SLOT, home)

    def _make(self, *where: Any) -> Handle:
        handle = self.handles[where[5]]
        self.loop.call_soon_threadsafe(self.start, where[5])
        return handle

    def start(self, disk: str) -> None:
        """Start its process, unless it runs."""
        handle = self.handles[disk]
        if handle.buffer is None and disk not in self.ended:
            handle.buffer = ReplicaBuffer("t", SLOT, 1, str(self.folders[disk]), self._rules, disk)

    async def begin(self) -> None:
        """Place the slot, and make its log."""
        self.loop = asyncio.get_running_loop()
        for each in self._patches:
            each.start()
        self.lead()
        await self.controller.begin()
        await self.open()

    def lead(self) -> None:
        """A coordinator begins: it goes on with what the registry has."""

        async def returned() -> None: ...

        how = Replicated("t", 1, "", LEASE_S, self.replicas, 1_000, self._rules)
        self.controller = ReplicaController(
            how,
            self.document,
            cast(BufferPool, self.pool),
            cast(HomeController, self.homing),
            self._put,
            lambda _: None if self.is_removed else self.spec,
            returned,
            self._make,
        )

    async def open(self) -> None:
        """What a coordinator does with a leader that it serves from."""
        assert self.serves is not None and self.serves.buffer is not None
        leader, made = self.serves.buffer, self.homing.homes.is_made(QUEUE, SLOT)
        if not made:
            await self.controller.open_on(SLOT, self.spec, make=True)
            await leader.open(self.spec, {}, make=True)
            self.homing.homes = self.homing.homes.with_made(QUEUE, [SLOT])
        await leader.open(self.spec, {}, make=False)
        self.controller.settle(SLOT, await self.grant())
        await self.until(lambda: leader._gate.is_open(), "it serves")

    async def grant(self) -> int:
        """Give whoever leads a lease; answers its term."""
        assert self.serves is not None and self.serves.buffer is not None
        leader, term = self.serves.buffer, self.homing.homes.slots[SLOT].term
        info = await leader.ping(BufferGrant(1, term, 1 << 40))
        await leader.ping(BufferGrant(1, term, 1 << 40, info.monotonic_ms, info.incarnation))
        return term

    async def until(self, check: Callable[[], Any], what: str) -> None:
        end_s = time.monotonic() + WAIT_S
        while not check():
            assert time.monotonic() < end_s, f"not in time: {what}"
            await asyncio.sleep(0.01)

    @property
    def leading(self) -> str:
        """The disk that serves."""
        assert self.serves is not None
        return self.serves._disk

    @property
    def following(self) -> str:
        """The disk of another one."""
        return next(disk for disk in self.disks if disk != self.leading)

    def following_in_sync(self) -> str:
        return (self.isr() - {self.leading}).pop()

    @property
    def placement(self) -> Placement:
        return self.controller._placed[SLOT]

    def isr(self) -> set[str]:
        return {member.disk for member in self.placement.isr}

    async def kill(self, disk: str) -> None:
        """As SIGKILL does; it stays dead."""
        handle = self.handles[disk]
        buffer, handle.buffer = handle.buffer, None
        if disk not in self.ended:
            self.ended.append(disk)
        for call in list(handle.under_way):
            call.cancel()
        if buffer is not None:
            assert buffer._host is not None
            await buffer._host.close()
            for log in buffer._manager.all_logs():
                log.abandon()
            await buffer.close()

    async def again(self, disk: str) -> None:
        """Its process starts again."""
        self.ended.remove(disk)
        self.start(disk)

    async def append(self, number: int, wait_ms: int = 15_000) -> Appended | Refused:
        """Append message `number` to the log of whoever serves."""
        assert self.serves is not None and self.serves.buffer is not None
        frame = Batch.of([b"k"], [b"%d" % number], timestamp_ms=1).to_wire(
            producer_id("p"), 0, number
        )
        [answer] = await self.serves.buffer.append(QUEUE, [(0, *frame)], wait_ms)
        return answer

    async def read(self, wait_ms: int = 0) -> list[int]:
        """All that may be read of whoever serves."""
        assert self.serves is not None and self.serves.buffer is not None
        at = 0
        found: list[int] = []
        while True:
            parts = await self.serves.buffer.fetch(QUEUE, "g", {0: (1, at)}, wait_ms=wait_ms)
            if not parts:
                return found
            [part] = parts
            assert isinstance(part, Fetched), part
            found += [int(message.payload) for batch in batches(part, at) for message in batch]
            at = part.next_offset

    async def close(self) -> None:
        await self.controller.close()
        await asyncio.gather(*self._dying)
        for disk in self.disks:
            await self.kill(disk)
        for each in self._patches:
            each.stop()

    def lies_on(self, disk: str) -> bool:
        """Whether a disk has a log of the queue."""
        return any((self.folders[disk] / QUEUE).rglob("*.seg"))


def played(scene: Callable[[Group], Any], folder: Path, **given: Any) -> None:
    """Play a scene on replicas that are placed, and end them."""

    async def play() -> None:
        group = Group(folder, **given)
        try:
            await group.begin()
            await group.until(lambda: len(group.isr()) == group.replicas, "all are in sync")
            await scene(group)
        finally:
            await group.close()

    asyncio.run(play())
