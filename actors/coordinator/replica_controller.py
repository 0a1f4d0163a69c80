"""`ReplicaController`: the replicas of a topology's slots: it starts them where their disks are,
looks at them, and has who leads and who is in sync in the registry.

Rules of this file. `SlotPlacements` decides; its decision is durable before a replica hears of it.
The home of a slot is the disk of its leader, under the leader epoch as its term. All that a leader
serves by is prepared while it learns that it leads; it serves nobody by itself before all that it
had is on every replica in sync. A leader that is silent when another one is elected is ended by
Ray's GCS: so its callers look for the other. A replica is started again where its disk is, and
nowhere else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from ray.exceptions import RayError

from pxrs_ray.actors.buffer.replica_client import ReplicaClient, make_replica
from pxrs_ray.actors.cluster import gcs
from pxrs_ray.actors.cluster.ray_errors import is_away, is_gone
from pxrs_ray.actors.coordinator.buffer_pool import BufferPool
from pxrs_ray.actors.coordinator.home_controller import HomeController
from pxrs_ray.actors.coordinator.known_ends import PutDocument
from pxrs_ray.actors.coordinator.replica_followers import TABLE_PAUSE_S, Place, Replicated
from pxrs_ray.actors.coordinator.replica_placing import ReplicaPlacing
from pxrs_ray.backoff import Backoff
from pxrs_ray.clock import monotonic_ms
from pxrs_ray.data.protocol import QueueSpec
from pxrs_ray.errors import DeadlineExceeded, PxrsError, UsageError
from pxrs_ray.model import Slot
from pxrs_ray.replication.placement import Disk, LeaderEpoch, Placement
from pxrs_ray.replication.placements import (
    DOCUMENT,
    PLACEMENTS,
    AskReplicas,
    KeepPlacements,
    PlacementRules,
    SlotPlacements,
    TellReplicas,
    placements_from,
)
from pxrs_ray.replication.replica_calls import ReplicaAnswer, ReplicaTold
from pxrs_ray.status.problem import Kind, Report
from pxrs_ray.supervision.restart_rules import told
from pxrs_ray.topology.homes import SHOWN
from pxrs_ray.topology.node_seen import NodeSeen
from pxrs_ray.topology.replica_spread import led_home, spread_replicas

logger = logging.getLogger(__name__)

# A look is held for a part of the lease at most, and no longer than that.
HOLD_MS = 500
LOOK_WAIT_S = 2.0
PAUSE_S = 0.1
OPEN_PAUSE_S = 0.3
# A process that ends soon, on a full disk for one, is not started again at once, and ever more
# seldom where that goes on.
SHORT_LIFE_MS, AGAIN_S, AGAIN_MOST_S = 5_000, 1.0, 30.0
# For how long who starts again leaves the processors to who was elected in its place.
ROOM_S = 1.0
BEGIN_WAIT_S = 60.0
SERVE_WAIT_S = 20.0


class ReplicaController(ReplicaPlacing):
    """See the rules at the head of this file. For one coordinator incarnation; close it.

    `document` is what the registry has, `spec_of` answers a queue by its full name, and `returned`
    is called when a replica has begun anew.
    """

    def __init__(
        self,
        how: Replicated,
        document: str,
        pool: BufferPool,
        homing: HomeController,
        put: PutDocument,
        spec_of: Callable[[str], QueueSpec | None],
        returned: Callable[[], Coroutine[Any, Any, None]],
        make: Callable[..., Any] = make_replica,
    ) -> None:
        heard_ms = round(how.lease_s * 1_000)
        every_ms = round(TABLE_PAUSE_S * 1_000)
        rules = PlacementRules(heard_ms, how.rules.synced_only, every_ms=every_ms)
        table = SlotPlacements(placements_from(document), rules, monotonic_ms())
        super().__init__(how, table, pool, homing)
        self._put = put
        self._spec_of, self._returned, self._make = spec_of, returned, make
        self._lives: dict[Place, int] = {}
        self._watched: set[Place] = set()
        self._opening: set[Place] = set()
        # The epoch under which each slot's leader is to serve, is ready to, and is settled.
        self._served: dict[Slot, LeaderEpoch] = {}
        self._ready: dict[Slot, LeaderEpoch] = {}
        self._settled: dict[Slot, LeaderEpoch] = {}
        self._serving: dict[Slot, asyncio.Lock] = {}
        self._to_keep = ""
        self._decided = asyncio.Event()

    # --- the beginning ----------------------------------------------------------------------------

    async def begin(self) -> None:
        """Start and meet all replicas that can be, and serve from those that lead.

        Places the slots of a topology that has none placed. Raises UsageError where there are not
        enough hosts, DeadlineExceeded.
        """
        chosen = {s: one.replicas for s, one in self._placed.items()} or await self._chosen()
        for slot, disks in chosen.items():
            for disk in disks:
                self._watch(slot, disk)
        self.keep_on()
        if not self._placed:
            await self._place_first(chosen)
        there, count = (self._served, self._ready), len(chosen)
        await self._until(lambda: all(len(one) == count for one in there), SERVE_WAIT_S)

    def keep_on(self) -> None:
        """From now on look who lives, and keep what is decided."""
        self._supervisor.keep("placing", self._look_for_ever)
        self._supervisor.keep("keeping placements", self._keep_for_ever)

    async def _chosen(self) -> dict[Slot, tuple[Disk, ...]]:
        nodes = await self._homing.looked()
        has = sorted({node.host for node in nodes if node.slots})
        if has:
            raise UsageError(
                f"host {', '.join(has)} has logs of {self._how.topology}, and this registry does "
                "not know which replicas of them are in sync: restore the registry that does. They "
                "cannot be begun again from the disks alone"
            )
        how = self._how
        return spread_replicas(range(how.count), nodes, how.replicas, how.spread_by)

    async def _place_first(self, chosen: dict[Slot, tuple[Disk, ...]]) -> None:
        def all_seen() -> bool:
            now_ms = monotonic_ms()
            return all(set(d) <= self._table.living(s, now_ms).keys() for s, d in chosen.items())

        if not await self._until(all_seen, BEGIN_WAIT_S):
            raise DeadlineExceeded(
                f"the replicas of {self._how.topology} did not all start in {BEGIN_WAIT_S:g} s: "
                "see that all its hosts live"
            )
        for slot, disks in chosen.items():
            self._table.begin(slot, disks, monotonic_ms())
        self._carry()

    # --- the replicas' processes ------------------------------------------------------------------

    def _watch(self, slot: Slot, disk: Disk) -> None:
        if (slot, disk) not in self._watched:
            self._watched.add((slot, disk))
            self._supervisor.keep(f"replica {slot}", partial(self._watch_for_ever, slot, disk))

    async def _watch_for_ever(self, slot: Slot, disk: Disk) -> None:
        pauses = Backoff(AGAIN_S, AGAIN_MOST_S)
        while self._is_wanted(slot, disk):
            node = self._node_of(disk)
            if node is None:
                await asyncio.sleep(PAUSE_S)
                continue
            try:
                handle = await self._made(slot, disk, node)
            except (PxrsError, RayError, ValueError) as error:
                logger.warning("replica %d on host %s: %s", slot, node.host, told(error))
                await asyncio.sleep(PAUSE_S)
                continue
            client, began_ms = ReplicaClient(handle), monotonic_ms()
            self._clients[slot, disk] = client
            try:
                await self._look_while_there(slot, disk, client)
            finally:
                self._clients.pop((slot, disk), None)
            if not self._is_wanted(slot, disk):
                await self._dismiss(slot, disk, client)
            await self._until(lambda: self._may_begin_again(slot, disk), ROOM_S)
            if monotonic_ms() - began_ms < SHORT_LIFE_MS:
                await asyncio.sleep(pauses.failed())
            else:
                pauses.worked()
        self._watched.discard((slot, disk))

    async def _made(self, slot: Slot, disk: Disk, node: NodeSeen) -> Any:
        how = self._how
        where = (how.topology, slot, how.count, how.folder, how.rules, disk, node.node)
        return await gcs.ask("make", partial(self._make, *where, how.lease_s), gcs.MAKE_S)

    def _may_begin_again(self, slot: Slot, disk: Disk) -> bool:
        """Whether a process may start on a disk: it takes the time of all that are on its node, and
        who was elected in its place serves before."""
        placement = self._placed.get(slot)
        if placement is None or not self._is_wanted(slot, disk):
            return True
        living = self._table.living(slot, monotonic_ms())
        others = [m.disk for m in placement.isr if m.disk != disk and m.disk in living]
        is_served = placement.leader != disk and self._settled.get(slot) == placement.epoch
        return is_served or not others

    async def _look_while_there(self, slot: Slot, disk: Disk, client: ReplicaClient) -> None:
        hold_ms = min(HOLD_MS, round(self._how.lease_s * 1_000 / 5))
        while self._is_wanted(slot, disk):
            try:
                await self._look(slot, disk, client, hold_ms)
            except (RayError, PxrsError, TimeoutError) as error:
                logger.info("replica %d on disk %s: %s", slot, disk[:SHOWN], told(error))
                if is_away(error):
                    self._table.died(slot, disk, self._lives.get((slot, disk), 0), monotonic_ms())
                    self._carry()
                if is_gone(error):
                    return
                await asyncio.sleep(PAUSE_S / 2)

    async def _look(self, slot: Slot, disk: Disk, client: ReplicaClient, hold_ms: int = 0) -> None:
        now_ms = monotonic_ms()
        answer = await client.look(self._told(slot, hold_ms), LOOK_WAIT_S)
        if self._clients.get((slot, disk)) is client:
            self._answered(slot, disk, now_ms, answer)

    def _told(self, slot: Slot, hold_ms: int) -> ReplicaTold:
        placement, homes = self._placed.get(slot), self._homing.homes.queues
        # Of these, those that are being removed have no spec any more.
        made = [(queue, home) for queue, home in homes.items() if slot in home.made]
        replicas = placement.replicas if placement is not None else ()
        peers = {d: self._clients[slot, d].handle for d in replicas if (slot, d) in self._clients}
        return ReplicaTold(
            self._pool.grants.generation,
            placement,
            self._table.absent(slot, monotonic_ms()),
            peers,
            {queue: home.queue_id for queue, home in made if self._spec_of(queue) is not None},
            self._settled.get(slot, 0),
            hold_ms,
            monotonic_ms(),
            self._how.rules.min_isr,
            self._how.rules.catch_up_bytes_per_s,
        )

    def _answered(self, slot: Slot, disk: Disk, asked_ms: int, answer: ReplicaAnswer) -> None:
        now_ms, life = monotonic_ms(), answer.seen.life
        if life < self._lives.get((slot, disk), 0):
            return
        if life != self._lives.get((slot, disk)):
            self._lives[slot, disk] = life
            self._supervisor.once("a replica's return", self._returned())
        self._table.heard(slot, disk, asked_ms, answer.seen, now_ms)
        if answer.asks is not None:
            self._table.isr_asked(slot, answer.asks, now_ms)
        self._carry()
        placement = self._placed.get(slot)
        if placement is None:
            return
        if answer.missing and (slot, disk) not in self._opening:
            self._opening.add((slot, disk))
            self._supervisor.once("a replica's logs", self._open_missing(slot, disk, answer))
        if (placement.leader, placement.life, placement.epoch) == (disk, life, answer.leads):
            self._ready[slot] = answer.leads
            if self._served.get(slot) != answer.leads:
                self._supervisor.once(f"slot {slot}", self._serve(slot, answer.leads))

    # --- who leads --------------------------------------------------------------------------------

    async def _look_for_ever(self) -> None:
        while True:
            await asyncio.sleep(TABLE_PAUSE_S)
            self._table.tick(monotonic_ms())
            self._place_replicas()
            self._carry()

    def _carry(self) -> None:
        while (effect := self._table.take_effect()) is not None:
            match effect:
                case KeepPlacements(placements):
                    self._to_keep = PLACEMENTS.encode_text(placements)
                    self._decided.set()
                case TellReplicas(slot, placement):
                    self._tell(slot, placement)
                case AskReplicas(slot):
                    for disk in self._placed[slot].replicas:
                        self._tell_one(slot, disk)

    async def _keep_for_ever(self) -> None:
        while True:
            await self._decided.wait()
            # Whoever was replaced ends by this. What fails is written again.
            await self._put(DOCUMENT, self._to_keep)
            self._decided.clear()
            self._table.kept(True, monotonic_ms())
            self._carry()

    def _tell(self, slot: Slot, placement: Placement) -> None:
        """It stands in the registry: every replica of the slot hears of it."""
        home = self._homing.homes.slots.get(slot)
        living = self._table.living(slot, monotonic_ms())
        if home is not None and home.disk not in ("", placement.leader, *living):
            self._end(slot, home.disk)
        for disk in placement.replicas:
            self._tell_one(slot, disk)
        if placement.leader in living and self._served.get(slot) != placement.epoch:
            self._supervisor.once(f"slot {slot}", self._serve(slot, placement.epoch))

    def _tell_one(self, slot: Slot, disk: Disk) -> None:
        client = self._clients.get((slot, disk))
        if client is not None:
            self._supervisor.once("telling a replica", self._look_once(slot, disk, client))

    async def _look_once(self, slot: Slot, disk: Disk, client: ReplicaClient) -> None:
        try:
            await self._look(slot, disk, client)
        except (RayError, PxrsError, TimeoutError) as error:
            logger.info("replica %d on disk %s hears later: %s", slot, disk[:SHOWN], told(error))

    def _end(self, slot: Slot, disk: Disk) -> None:
        """Have Ray's GCS end a leader that was replaced: its callers hear of that."""
        client = self._clients.get((slot, disk))
        if client is not None:
            logger.warning("replica %d on disk %s is ended: another leads", slot, disk[:SHOWN])
            self._supervisor.once("ending a replica", gcs.kill(client.handle))

    async def _serve(self, slot: Slot, epoch: LeaderEpoch) -> None:
        """Have the slot at home where its leader is, and served from there."""
        async with self._serving.setdefault(slot, asyncio.Lock()):
            placement = self._placed[slot]
            client = self._clients.get((slot, placement.leader))
            node = self._node_of(placement.leader)
            if placement.epoch != epoch or self._served.get(slot) == epoch:
                return
            if client is None or node is None:
                return
            home = led_home(self._homing.homes.slots.get(slot), placement, node)
            await self._homing.led(slot, home)
            self._served[slot] = epoch
            self._pool.begins_at(slot, home)
            self._pool.placed(slot, home, client.handle)
            self._pool.look_soon(slot)
            logger.warning("slot %d is served from host %s, epoch %d", slot, node.host, epoch)

    def settle(self, slot: Slot, epoch: LeaderEpoch) -> None:
        """The leader of this epoch knows of every group what it has to know."""
        if self._served.get(slot) == epoch and self._settled.get(slot) != epoch:
            self._settled[slot] = epoch
            self._tell_one(slot, self._placed[slot].leader)

    # --- their logs -------------------------------------------------------------------------------

    async def _open_missing(self, slot: Slot, disk: Disk, answer: ReplicaAnswer) -> None:
        try:
            for queue in answer.missing:
                spec, client = self._spec_of(queue), self._clients.get((slot, disk))
                if spec is not None and client is not None:
                    placement = self._placed[slot]
                    make = placement.in_sync(disk) is None
                    await self._open(client, spec, make=make)
            self._tell_one(slot, disk)
        except (RayError, PxrsError, TimeoutError) as error:
            logger.info("replica %d on disk %s opens later: %s", slot, disk[:SHOWN], told(error))
        finally:
            # What it lacks now it may lack until it is in sync no longer.
            await asyncio.sleep(OPEN_PAUSE_S)
            self._opening.discard((slot, disk))

    # --- what people are told, and do -------------------------------------------------------------

    def reports(self) -> list[Report]:
        """Which slots have nobody to lead them, and which have fewer replicas in sync than they
        should."""
        now_ms, found = monotonic_ms(), super().reports()
        hosts = {node.disk: node.host for node in self._homing.nodes}
        for slot, placement in sorted(self._placed.items()):
            waits = self._table.waits(slot, now_ms)
            if waits:
                why = "; ".join(f"disk {d[:SHOWN]} {text}" for d, text in sorted(waits.items()))
                found.append(
                    Report(Kind.BUFFER_WAITS, f"buffer {slot} waits for a leader: {why}", slot)
                )
                continue
            behind = [d for d in placement.replicas if placement.in_sync(d) is None]
            if behind:
                where = ", ".join(f"{hosts.get(d, 'away')} (disk {d[:SHOWN]})" for d in behind)
                count = f"{len(placement.isr)} of {len(placement.replicas)}"
                text = f"buffer {slot} has {count} replicas in sync: not on host {where}"
                found.append(Report(Kind.REPLICAS_BEHIND, text, slot))
        return found

    def accept_loss(self, slot: Slot) -> None:
        """Go on with the replica that `check_loss` names, whatever it has lost."""
        self._table.accept_loss(slot, self.check_loss(slot), monotonic_ms())
        self._carry()

    async def close(self) -> None:
        """Look at nobody any more."""
        await self._supervisor.close()
