"""`HomeController`: keeps the homes of a topology's slots, and starts each buffer where its disk
is.

Rules of this file. `pxrs_ray.topology.homes` decides; its decision is made durable, and then
carried out: in this order, one round after the other. A slot that waits holds up nothing: not the
start, not the other slots, not the round. While the GCS is away nothing is decided.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace

from ray.exceptions import RayError

from pxrs_ray.actors.cluster.node_watch import NodeWatch
from pxrs_ray.actors.coordinator.buffer_pool import BufferPool
from pxrs_ray.clock import wall_ms
from pxrs_ray.data.protocol import QueueSpec
from pxrs_ray.errors import AlreadyExists, DeadlineExceeded, NotFound, PxrsError, UsageError
from pxrs_ray.status.problem import Kind, Report
from pxrs_ray.supervision.restart_rules import told
from pxrs_ray.supervision.supervisor import Supervisor
from pxrs_ray.topology.homes import (
    DOCUMENT,
    HOMES,
    Home,
    Homes,
    NodeSeen,
    RegistryHome,
    Settled,
    moved_to,
    place_to_move_to,
    settle,
)
from pxrs_ray.topology.move_plan import REGISTRY_REMEDY, registry_stays_behind

logger = logging.getLogger(__name__)

ROUND_PAUSE_S = 0.5
MEET_WAIT_S = 10.0

Put = Callable[[str, str], Awaitable[None]]


class HomeController:
    """The homes of one coordinator incarnation's topology.

    `in_memory` says whether everything that the topology keeps is in memory only. `replace_after`
    says after how many milliseconds a host that is away is given up; None means never.
    """

    def __init__(
        self,
        homes: Homes,
        pool: BufferPool,
        watch: NodeWatch,
        put: Put,
        in_memory: Callable[[], bool],
        replace_after: Callable[[], int | None],
    ) -> None:
        self.homes = homes
        self.nodes: list[NodeSeen] = []
        self._pool = pool
        self._watch = watch
        self._put = put
        self._in_memory = in_memory
        self._replace_after = replace_after
        self._one_round = asyncio.Lock()
        self._writing = asyncio.Lock()
        self._supervisor = Supervisor("homes")
        self._troubles: dict[int, str] = {}
        self._registry_goes = ""
        self._placing: dict[int, asyncio.Task[None]] = {}
        self._moving: set[int] = set()

    # --- the document -----------------------------------------------------------------------------

    async def _keep(self, change: Callable[[Homes], Homes]) -> None:
        """Have a change durable; nobody acts on it before."""
        async with self._writing:
            homes = change(self.homes)
            if homes != self.homes:
                await self._put(DOCUMENT, HOMES.encode_text(homes))
                self.homes = homes

    async def has_queues(self, queues: Iterable[str], known: dict[str, str]) -> None:
        """Give each queue its id: the one that its logs bear, where that is `known`."""
        wanted = {queue: known.get(queue) or uuid.uuid4().hex for queue in queues}

        def change(homes: Homes) -> Homes:
            for queue, queue_id in wanted.items():
                if known.get(queue):
                    homes = homes.without_queue(queue)
                homes = homes.with_queue(queue, queue_id)
                if known.get(queue):
                    homes = homes.with_made(queue, range(self._pool.count))
            return homes

        await self._keep(change)

    async def forget_queue(self, queue: str) -> None:
        """A queue is gone."""
        await self._keep(lambda homes: homes.without_queue(queue))

    async def made(self, made: Iterable[tuple[str, int]]) -> None:
        """These (queue, slot) have their logs: what is not found there later is lost."""
        pairs = list(made)

        def change(homes: Homes) -> Homes:
            for queue, slot in pairs:
                homes = homes.with_made(queue, [slot])
            return homes

        await self._keep(change)

    async def registry_at(self, home: RegistryHome | None) -> None:
        """The registry is at home here."""
        await self._keep(lambda homes: replace(homes, registry=home))

    def spec(self, spec: QueueSpec) -> QueueSpec:
        """A queue with its id."""
        home = self.homes.queues.get(spec.queue)
        return spec if home is None else replace(spec, queue_id=home.queue_id)

    # --- rounds -----------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Start and meet every buffer that can be started; the others come later by themselves."""
        await self.round()
        if self._placing:
            await asyncio.wait(set(self._placing.values()), timeout=MEET_WAIT_S)
        await self._pool.meet(MEET_WAIT_S)

    def keep_on(self) -> None:
        """From now on look, every half second."""
        self._supervisor.keep("rounds", self._rounds)

    async def _rounds(self) -> None:
        while True:
            await asyncio.sleep(ROUND_PAUSE_S)
            await self.round()

    async def round(self) -> None:
        """Decide once, and begin what was decided."""
        async with self._one_round:
            nodes = await self._watch.living()
            if nodes is None:
                return
            self.nodes = nodes
            for node in self._pool.missed_disks():
                self._watch.forget(node)
            if any(slot not in self.homes.slots for slot in range(self._pool.count)):
                nodes = await self._watch.looked(nodes)
            found = self._settled(nodes)
            if found.waits or self._has_to_look(nodes):
                nodes = await self._watch.looked(nodes)
                found = self._settled(nodes)
            await self._look_at_registry(nodes)
            # And no other slot: a move that ends meanwhile has written a home, which holds.
            before = self.homes.slots
            new = {s: home for s, home in found.homes.slots.items() if before.get(s) != home}
            await self._keep(lambda homes: replace(homes, slots={**homes.slots, **new}))
            self._pool.wait_for(found.waits)
            for slot in found.starts:
                self._begin_placing(slot, found.homes.slots[slot])

    async def _look_at_registry(self, nodes: list[NodeSeen]) -> None:
        """Report a registry that is a file on a host that goes: nobody moves it."""
        home = self.homes.registry
        going = [n for n in nodes if home is not None and n.node == home.node and n.draining]
        if not going:
            self._registry_goes = ""
            return
        nodes = await self._watch.looked(nodes)  # another node may have the same disk
        if not registry_stays_behind(self.homes, going[0], nodes):
            self._registry_goes = ""
        elif not self._registry_goes:
            self._registry_goes = (
                f"the registry is a file on {home}, which is drained, and its coordinator stays "
                "with it: once the host is gone nothing is committed or taken over until it is "
                f"back. {REGISTRY_REMEDY}"
            )
            logger.error("%s", self._registry_goes)

    def _settled(self, nodes: list[NodeSeen]) -> Settled:
        in_memory = self._in_memory()
        seen = {
            slot: self._pool.seen(slot, in_memory=in_memory)
            for slot in range(self._pool.count)
            if slot not in self._placing and slot not in self._moving
        }
        return settle(self.homes, seen, nodes, wall_ms(), self._replace_after())

    def _has_to_look(self, nodes: list[NodeSeen]) -> bool:
        """Whether the disks matter: nobody looks at them while everything is where it was.

        A buffer that has its host and does not answer may be one whose disk is elsewhere now.
        """
        living = {node.node: node for node in nodes}
        for slot in range(self._pool.count):
            home = self.homes.slots.get(slot)
            if home is None or (self._pool.is_missed(slot) and home.node in living):
                return True
        return False

    def _begin_placing(self, slot: int, home: Home) -> None:
        if slot in self._placing:
            return
        task = self._supervisor.once(f"buffer {slot}", self._place(slot, home))
        self._placing[slot] = task
        task.add_done_callback(lambda _: self._placing.pop(slot, None))

    async def _place(self, slot: int, home: Home) -> None:
        try:
            await self._pool.place(slot, home)
        except (PxrsError, RayError) as error:
            self._troubles[slot] = told(error)
            logger.warning("buffer %d is not at home yet: %s", slot, told(error))
        else:
            self._troubles.pop(slot, None)

    # --- moving -----------------------------------------------------------------------------------

    async def place_for(self, slot: int, wanted: str | None) -> NodeSeen:
        """Where a slot that leaves its home goes. Raises NotFound, UsageError, DeadlineExceeded."""
        nodes = await self._watch.living()
        if nodes is None:
            raise DeadlineExceeded(self._watch.problem)
        return place_to_move_to(self.homes, slot, await self._watch.looked(nodes), wanted)

    async def hold(self, slot: int) -> None:
        """Decide nothing about a slot while it moves. Raises AlreadyExists when it does.

        A round that is under way ends before: it may have decided about this slot already.
        """
        async with self._one_round:
            if slot in self._moving or slot in self._placing:
                raise AlreadyExists(f"buffer {slot} is being moved, or started, already")
            self._moving.add(slot)

    def is_moving(self, slot: int) -> bool:
        """Whether somebody brings a slot to another home now."""
        return slot in self._moving

    def release(self, slot: int) -> None:
        """Decide about it again."""
        self._moving.discard(slot)

    async def moved(self, slot: int, node: NodeSeen) -> Home:
        """The logs of a slot are on another disk: have that durable, and answer its home."""
        await self._keep(lambda homes: moved_to(homes, slot, node))
        return self.homes.slots[slot]

    def at_home_on(self, nodes: Iterable[str]) -> list[int]:
        """The slots whose home is one of these nodes."""
        wanted = set(nodes)
        return [s for s, home in sorted(self.homes.slots.items()) if home.node in wanted]

    # --- giving up --------------------------------------------------------------------------------

    async def give_up(self, slot: int) -> None:
        """Accept the loss of what lies on the disk of a slot that waits. Raises UsageError,
        NotFound."""
        async with self._one_round:
            home = self.check_away(slot)
            await self._keep(lambda homes: homes.with_given_up(slot))
        logger.error("the loss of disk %s, of buffer %d, is accepted", home.disk, slot)

    def check_away(self, slot: int) -> Home:
        """The home of a slot, which is away. Raises UsageError when it is not, NotFound."""
        home = self.homes.slots.get(slot)
        if home is None:
            raise NotFound(f"there is no buffer {slot}: there are {self._pool.count}, from 0 on")
        if home.away_since_ms is None:
            raise UsageError(
                f"buffer {slot} is at home on host {home.host}, and nothing of it is to be given "
                "up: `pxrs accept-loss QUEUE` is for logs that are halted"
            )
        return home

    def reports(self) -> list[Report]:
        """What keeps buffers from being at home, except waiting."""
        watch, goes = self._watch.problem, self._registry_goes
        found = [Report(Kind.WORK_FAILED, watch)] if watch else []
        found += [Report(Kind.REGISTRY_GOES, goes)] if goes else []
        return found + [
            Report(Kind.WORK_FAILED, f"buffer {slot}: {why}", slot)
            for slot, why in sorted(self._troubles.items())
        ]

    async def close(self) -> None:
        """Look no more."""
        await self._supervisor.close()
        self._watch.close()
