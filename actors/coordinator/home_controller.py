"""`HomeController`: knows which nodes live and has the homes of slots in the registry, and starts
each buffer where its disk is.

Rules of this file. `pxrs_ray.topology.home_rounds` decides, step by step; each step is carried out
here, and nothing else. One round at a time, one write at a time.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from ray.exceptions import RayError

from pxrs_ray.actors.cluster.node_watch import FIRST_WAIT_S, NodeWatch
from pxrs_ray.actors.coordinator.buffer_pool import BufferPool
from pxrs_ray.actors.coordinator.known_ends import PutDocument
from pxrs_ray.clock import monotonic_ms, wall_ms
from pxrs_ray.data.protocol import QueueSpec
from pxrs_ray.errors import DeadlineExceeded, PxrsError
from pxrs_ray.status.problem import Kind, Report
from pxrs_ray.steps import Steps, carry
from pxrs_ray.supervision.restart_rules import told
from pxrs_ray.supervision.supervisor import Supervisor
from pxrs_ray.topology.away_time import AwayTime
from pxrs_ray.topology.home_rounds import (
    BeginPlacing,
    HomeRounds,
    HomesChange,
    KeepHomes,
    LivingNodes,
    LookAtDisks,
    TellWaits,
)
from pxrs_ray.topology.homes import (
    DOCUMENT,
    HOMES,
    Home,
    Homes,
    RegistryHome,
    SlotSeen,
)
from pxrs_ray.topology.node_seen import NodeSeen
from pxrs_ray.topology.openings import with_ids

logger = logging.getLogger(__name__)

ROUND_PAUSE_S = 0.5
MEET_WAIT_S = 10.0
DISKS_WAIT_S = 10.0


class HomeController:
    """The homes of one coordinator incarnation's topology.

    `in_memory` says whether everything that the topology keeps is in memory only. `replace_after`
    says after how many milliseconds a host that is away is given up; None means never. `lost` says
    that a registry which has lost writes is gone on with.
    """

    def __init__(
        self,
        homes: Homes,
        pool: BufferPool,
        watch: NodeWatch,
        put: PutDocument,
        in_memory: Callable[[], bool],
        replace_after: Callable[[], int | None],
        *,
        lost: bool = False,
        replicated: bool = False,
    ) -> None:
        self._kept_on = False
        self.nodes: list[NodeSeen] = []
        self._pool = pool
        self._watch = watch
        self._put = put
        self._in_memory = in_memory
        self._one_round = asyncio.Lock()
        self._writing = asyncio.Lock()
        self._supervisor = Supervisor("homes")
        self._placing: dict[int, asyncio.Task[None]] = {}

        def seen(slot: int) -> SlotSeen:
            return pool.seen(slot, in_memory=in_memory())

        away = AwayTime(monotonic_ms, replace_after)
        self.rounds = HomeRounds(homes, pool, seen, wall_ms, away, lost=lost, replicated=replicated)
        self.is_moving, self.release = self.rounds.is_moving, self.rounds.release
        self.check_away, self.at_home_on = self.rounds.check_away, self.rounds.at_home_on

    @property
    def homes(self) -> Homes:
        """Where everything is at home, as the registry has it."""
        return self.rounds.homes

    # --- the document -----------------------------------------------------------------------------

    async def keep(self, change: HomesChange) -> None:
        """Have a change durable; nobody acts on it before."""
        async with self._writing:
            homes = self.rounds.changed(change)
            if homes is not None:
                await self._put(DOCUMENT, HOMES.encode_text(homes))
                self.rounds.kept(homes)

    async def led(self, slot: int, home: Home) -> None:
        """A slot is at home where its leader is. Its placement says so in the registry already:
        nobody waits for the document, and who begins anew without it goes by the placement."""
        async with self._writing:
            self.rounds.kept(self.homes.with_slot(slot, home))
        self._supervisor.once("homes", self._write_down())

    async def _write_down(self) -> None:
        async with self._writing:
            await self._put(DOCUMENT, HOMES.encode_text(self.homes))

    async def has_queues(
        self, queues: Iterable[str], known: dict[str, str], away: Iterable[int]
    ) -> None:
        """Give each queue its id; see `with_ids`."""
        wanted = {queue: known.get(queue) or uuid.uuid4().hex for queue in queues}
        await self.keep(lambda homes: with_ids(homes, wanted, known, self._pool.count, away))

    async def forget_queue(self, queue: str) -> None:
        """A queue is gone."""
        await self.keep(lambda homes: homes.without_queue(queue))

    async def made(self, made: Iterable[tuple[str, int]]) -> None:
        """These (queue, slot) have their logs: what is not found there later is lost."""
        pairs = list(made)

        def change(homes: Homes) -> Homes:
            for queue, slot in pairs:
                homes = homes.with_made(queue, [slot])
            return homes

        await self.keep(change)

    async def registry_at(self, home: RegistryHome | None) -> None:
        """The registry is at home here."""
        await self.keep(lambda homes: replace(homes, registry=home))

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
        """From now on look, at most every half second; again is harmless."""
        if not self._kept_on:
            self._kept_on = True
            self._supervisor.keep("rounds", self._keep_looking)

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(ROUND_PAUSE_S)
            if self.rounds.is_due():
                await self.round()

    async def round(self) -> None:
        """Decide once, and begin what was decided."""
        async with self._one_round:
            went = self.rounds.registry_goes
            nodes = await carry(self.rounds.round(), self._carry)
            self.nodes = nodes if nodes is not None else self.nodes
        if self.rounds.registry_goes and not went:
            logger.error("%s", self.rounds.registry_goes)

    async def carry(self, steps: Steps[Any]) -> Any:
        """Carry out steps of these homes."""
        return await carry(steps, self._carry)

    async def _carry(self, step: Any) -> Any:
        match step:
            case LivingNodes():
                return await self._watch.living()
            case LookAtDisks(nodes, again, wait):
                for node in again:
                    self._watch.forget(node)
                return await self._watch.looked(list(nodes), FIRST_WAIT_S if wait else 0.0)
            case KeepHomes(change):
                await self.keep(change)
            case TellWaits(waits):
                self._pool.wait_for(waits)
            case BeginPlacing(slot, home):
                self._begin_placing(slot, home)
        return None

    def _begin_placing(self, slot: int, home: Home) -> None:
        task = self._supervisor.once(f"buffer {slot}", self._place(slot, home))
        self._placing[slot] = task
        task.add_done_callback(lambda _: self._is_placed(slot))

    def _is_placed(self, slot: int) -> None:
        self._placing.pop(slot, None)
        self.rounds.placed(slot)

    async def _place(self, slot: int, home: Home) -> None:
        try:
            await self._pool.place(slot, home)
        except (PxrsError, RayError) as error:
            self.rounds.troubles[slot] = told(error)
            logger.warning("buffer %d is not at home yet: %s", slot, told(error))
        else:
            self.rounds.troubles.pop(slot, None)

    async def looked(self) -> list[NodeSeen]:
        """The nodes that live, with what is on their disks; one that does not tell in time has
        none. Raises DeadlineExceeded when nobody tells which nodes live."""
        nodes = await self._watch.living()
        if nodes is None:
            raise DeadlineExceeded(self._watch.problem)
        self.nodes = await self._watch.looked(nodes, DISKS_WAIT_S)
        return self.nodes

    # --- moving -----------------------------------------------------------------------------------

    async def place_for(self, slot: int, wanted: str | None) -> NodeSeen:
        """Where a slot that leaves its home goes. Raises NotFound, UsageError, DeadlineExceeded."""
        try:
            found: NodeSeen = await self.carry(self.rounds.place_for(slot, wanted))
        except DeadlineExceeded:
            raise DeadlineExceeded(self._watch.problem) from None
        return found

    async def hold(self, slot: int) -> None:
        """Decide nothing about a slot while it moves. Raises AlreadyExists when it does.

        A round that is under way ends before: it may have decided about this slot already.
        """
        async with self._one_round:
            self.rounds.hold(slot)

    async def give_up(self, slot: int) -> None:
        """Accept the loss of what lies on the disk of a slot that waits. Raises UsageError,
        NotFound."""
        async with self._one_round:
            home: Home = await self.carry(self.rounds.give_up(slot))
        logger.error("the loss of disk %s, of buffer %d, is accepted", home.disk, slot)

    def reports(self) -> list[Report]:
        """What keeps buffers from being at home, except waiting."""
        watch, goes = self._watch.problem, self.rounds.registry_goes
        found = [Report(Kind.WORK_FAILED, watch)] if watch else []
        found += [Report(Kind.REGISTRY_GOES, goes)] if goes else []
        return found + [
            Report(Kind.WORK_FAILED, f"buffer {slot}: {why}", slot)
            for slot, why in sorted(self.rounds.troubles.items())
        ]

    async def close(self) -> None:
        """Look no more."""
        await self._supervisor.close()
        self._watch.close()
