"""`ReplicaPlacing`: brings replicas to the disks where they are to be, and lets go of others.

Rules of this file. `ReplicaMoves` decides each step, and `SlotPlacements` whether it stands; both
go by what is durable. A process begins on a disk before a replica is placed there. One whose disk
is no replica any more drops its logs, and ends: it is told so until it has, and it goes by the
newest word of a coordinator (`Retirement`).
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from ray.exceptions import RayError

from pxrs_ray.actors.buffer.replica_client import ReplicaClient
from pxrs_ray.actors.cluster.ray_errors import is_gone
from pxrs_ray.actors.coordinator.buffer_pool import BufferPool
from pxrs_ray.actors.coordinator.home_controller import HomeController
from pxrs_ray.actors.coordinator.replica_followers import (
    CALL_WAIT_S,
    ReplicaFollowers,
    ReplicasWanted,
    Replicated,
)
from pxrs_ray.clock import monotonic_ms
from pxrs_ray.errors import DeadlineExceeded, NotFound, PxrsError, UsageError
from pxrs_ray.model import Slot
from pxrs_ray.replication.placement import Disk
from pxrs_ray.replication.placements import SlotPlacements
from pxrs_ray.status.places import ReplicaStatus
from pxrs_ray.status.problem import Kind, Report
from pxrs_ray.supervision.restart_rules import told
from pxrs_ray.topology.away_disks import AwayDisks
from pxrs_ray.topology.homes import SHOWN
from pxrs_ray.topology.move_plan import Kept, Leaving, find_node, plan_replicas
from pxrs_ray.topology.move_steps import Moved
from pxrs_ray.topology.node_seen import NodeSeen
from pxrs_ray.topology.replica_moves import (
    BeginOn,
    BeOn,
    LeadFrom,
    ReplicaMoves,
    ReplicaStep,
    Wanted,
    left_behind,
)
from pxrs_ray.topology.replica_spread import another_disk, shared_places

logger = logging.getLogger(__name__)

DISMISS_PAUSE_S = 0.5
HAND_OVER_WAIT_S = 10.0
MOVE_WAIT_S = 3_500.0


class ReplicaPlacing(ReplicaFollowers, ABC):
    """See the rules at the head of this file."""

    def __init__(
        self, how: Replicated, table: SlotPlacements, pool: BufferPool, homing: HomeController
    ) -> None:
        super().__init__(how, table)
        self._pool, self._homing = pool, homing
        self._moves = ReplicaMoves()
        self._away = AwayDisks(table.placements.away_ms)
        # The disk that is about to have a replica of each slot.
        self._coming: dict[Slot, Disk] = {}
        # Where logs that were left behind were looked for.
        self._swept: set[tuple[Slot, Disk]] = set()

    @abstractmethod
    def _watch(self, slot: Slot, disk: Disk) -> None:
        """Have a process of a slot on a disk, and look at it, as long as it is wanted."""

    @abstractmethod
    async def _made(self, slot: Slot, disk: Disk, node: NodeSeen) -> Any:
        """The handle of a slot's process on a disk, which is started where none runs."""

    @abstractmethod
    def _carry(self) -> None:
        """Carry out what the placements want done."""

    def _node_of(self, disk: Disk) -> NodeSeen | None:
        """The living node that has a disk; one that stays, where several have it."""
        found = [node for node in self._homing.nodes if node.disk == disk]
        return min(found, key=lambda node: node.draining, default=None)

    def _is_wanted(self, slot: Slot, disk: Disk) -> bool:
        placement = self._placed.get(slot)
        return placement is None or disk in (*placement.replicas, self._coming.get(slot))

    def follow(self, wanted: ReplicasWanted) -> None:
        """From now on so many replicas are wanted, and so many must be in sync."""
        catch_up = wanted.catch_up_bytes_per_s
        rules = replace(self._how.rules, min_isr=wanted.min_isr, catch_up_bytes_per_s=catch_up)
        self._how = replace(
            self._how,
            replicas=wanted.replicas,
            replace_after_ms=wanted.replace_after_ms,
            rules=rules,
            spread_by=wanted.spread_by,
        )

    # --- where they are to be ---------------------------------------------------------------------

    def _wanted(self) -> Wanted:
        overdue = self._away.overdue(self._how.replace_after_ms)
        return Wanted(self._how.replicas, self._homing.nodes, overdue, self._how.spread_by)

    def _place_replicas(self) -> None:
        """Take the next step of each slot to where its replicas are to be."""
        now_ms, nodes = monotonic_ms(), self._homing.nodes
        if not nodes:
            return  # nobody has told yet which there are
        here = {node.disk for node in nodes}
        are_on = {disk for one in self._placed.values() for disk in one.replicas}
        self._away.see(are_on - here, now_ms)
        noted = self._away.to_note(self._how.replace_after_ms)
        if noted is not None:
            self._table.note_away(noted, now_ms)
        wanted, placed = self._wanted(), dict(self._placed)
        for slot, placement in placed.items():
            living = self._table.living(slot, now_ms)
            self._take_step(slot, self._moves.step(slot, placed, living, wanted), now_ms)
            for disk in placement.replicas:
                self._watch(slot, disk)
        for slot, disk in left_behind(placed, nodes, self._how.replicas):
            if (slot, disk) not in self._swept and not self._is_wanted(slot, disk):
                self._swept.add((slot, disk))
                self._supervisor.once("logs left behind", self._sweep(slot, disk))

    async def _sweep(self, slot: Slot, disk: Disk) -> None:
        """Have the logs dropped that a disk has of a slot, of which it has no replica any more."""
        node = self._node_of(disk)
        if node is not None:
            logger.warning("host %s has logs of buffer %d that were replaced", node.host, slot)
            await self._dismiss(slot, disk, ReplicaClient(await self._made(slot, disk, node)))

    def _take_step(self, slot: Slot, step: ReplicaStep | None, now_ms: int) -> None:
        coming, replicas = self._coming.pop(slot, None), self._placed[slot].replicas
        match step:
            case BeginOn(disk):
                self._coming[slot] = disk
                self._watch(slot, disk)
            case LeadFrom(disk):
                logger.warning("replica %d on disk %s is to lead", slot, disk[:SHOWN])
                self._table.hand_over(slot, disk, now_ms)
            case BeOn(version, wanted):
                if coming in wanted and coming not in replicas:
                    self._coming[slot] = str(coming)
                elif new := set(wanted) - set(replicas):
                    self._coming[slot] = new.pop()
                self._table.change_disks(slot, version, wanted, now_ms)

    # --- who is not needed any more ---------------------------------------------------------------

    async def _dismiss(self, slot: Slot, disk: Disk, client: ReplicaClient) -> None:
        """Have the logs of a disk that is no replica any more dropped, and its process ended."""
        while not self._is_wanted(slot, disk):
            now_ms = monotonic_ms()
            self._table.dismissed(slot, disk, now_ms)
            queues = list(self._homing.homes.queues)
            try:
                went = await client.dismiss(
                    self._pool.grants.generation, now_ms, queues, CALL_WAIT_S
                )
            except (RayError, PxrsError, TimeoutError) as error:
                if is_gone(error):
                    return
                logger.info("replica %d on disk %s goes later: %s", slot, disk[:SHOWN], told(error))
            else:
                logger.warning("replica %d on disk %s has gone: %s", slot, disk[:SHOWN], went)
                if went:
                    return
            await asyncio.sleep(DISMISS_PAUSE_S)

    # --- what an operator wants -------------------------------------------------------------------

    async def hand_over(self, slot: Slot) -> Disk:
        """Have another replica lead that is in sync; answers the disk of the one that led. Raises
        NotFound, UsageError where there is none, DeadlineExceeded."""
        before = self._placed.get(slot)
        if before is None:
            raise NotFound(f"there is no buffer {slot}: there are {sorted(self._placed)}")
        living = self._table.living(slot, monotonic_ms())
        able = [m.disk for m in before.isr if m.disk != before.leader and m.disk in living]
        if not able:
            raise UsageError(f"no other replica of buffer {slot} is in sync: it leads alone")
        self._table.hand_over(slot, able[0], monotonic_ms())
        self._carry()
        led = before.leader
        if not await self._until(lambda: self._placed[slot].leader != led, HAND_OVER_WAIT_S):
            raise DeadlineExceeded(
                f"buffer {slot} is led from disk {led[:SHOWN]} yet, after {HAND_OVER_WAIT_S:g} s: "
                "the registry may be away"
            )
        return led

    def target_of(self, slot: Slot, source: Disk, wanted: str | None) -> NodeSeen:
        """The node to which a replica goes from a disk: the one that is `wanted`, or the emptiest.
        Raises NotFound, UsageError."""
        if wanted is not None:
            return find_node(self._homing.nodes, wanted)
        placed = {each: one.replicas for each, one in self._placed.items()}
        by = self._how.spread_by
        disk = another_disk(slot, placed, [source], self._homing.nodes, spread_by=by)
        node = self._node_of(disk) if disk is not None else None
        if node is None:
            raise UsageError(
                f"buffer {slot} has a replica on every host that stays and has a disk, or none has "
                "room for one: add a host"
            )
        return node

    def source_of(self, slot: Slot, wanted: str | None) -> Disk:
        """The disk that a replica leaves: that of the node that is named, or of the leader. Raises
        NotFound, UsageError."""
        placement = self._placed.get(slot)
        if placement is None:
            raise NotFound(f"there is no buffer {slot}: there are {sorted(self._placed)}")
        if wanted is None:
            return placement.leader
        node = find_node(self._homing.nodes, wanted)
        if node.disk not in placement.replicas:
            raise UsageError(f"buffer {slot} has no replica on host {node.host}")
        return node.disk

    async def move(self, slot: Slot, wanted: str | None, source_node: str | None) -> Moved:
        """Take a replica to another disk, and return when it is in sync there and gone from the
        other. Raises NotFound, UsageError, DeadlineExceeded."""
        source = self.source_of(slot, source_node)
        target = self.target_of(slot, source, wanted)
        left = self._node_of(source)
        self._moves.ask(slot, self._placed[slot], source, target)
        if not await self._until(lambda: slot not in self._moves.asked, MOVE_WAIT_S):
            raise DeadlineExceeded(
                f"a replica of buffer {slot} is being moved to host {target.host} yet: it goes on"
            )
        if target.disk not in self._placed[slot].replicas:
            raise DeadlineExceeded(
                f"host {target.host} went before it had a replica of buffer {slot} in sync"
            )
        return Moved(slot, left.host if left is not None else "", target.host, 0, 0)

    def slots_on(self, disk: Disk) -> list[Slot]:
        """The slots that have a replica on a disk."""
        return [slot for slot, one in sorted(self._placed.items()) if disk in one.replicas]

    def plan(
        self,
        leaving: Sequence[tuple[Slot, Disk | None]],
        wanted: str | None,
        kept: Mapping[Slot, Kept],
        copy_per_s: float,
        deadline_s: float | None = None,
    ) -> Leaving:
        """What it means that these replicas leave their disks (None: the leader's). Raises
        NotFound, UsageError."""
        replicas = []
        for slot, disk in leaving:
            source = disk or self.source_of(slot, None)
            node, target = self._node_of(source), None
            if wanted is not None or disk is None:
                target = self.target_of(slot, source, wanted)
            else:
                with suppress(UsageError):
                    target = self.target_of(slot, source, None)
            replicas.append((slot, node.host if node is not None else "", target))
        return plan_replicas(self._how.topology, replicas, kept, copy_per_s, deadline_s)

    def statuses(self, slot: Slot) -> tuple[ReplicaStatus, ...]:
        """The replicas of a slot, as people see them; the one that leads comes first."""
        placement = self._placed.get(slot)
        if placement is None:
            return ()
        found = []
        for disk in sorted(placement.replicas, key=lambda each: each != placement.leader):
            node, in_sync = self._node_of(disk), placement.in_sync(disk) is not None
            where = (node.host, node.node) if node is not None else ("", "")
            place = node.labels.get(self._how.spread_by, "") if node is not None else ""
            found.append(ReplicaStatus(*where, disk, in_sync, disk == placement.leader, place))
        return tuple(found)

    # --- what people are told ---------------------------------------------------------------------

    def reports(self) -> list[Report]:
        """Which slots cannot be where they are to be, and which are on their way."""
        found = [
            Report(Kind.BUFFER_CANNOT_MOVE, why, slot)
            for slot, why in sorted(self._moves.stuck.items())
        ]
        for slot, disk in sorted(self._coming.items()):
            node = self._node_of(disk)
            where = node.host if node is not None else "that is away"
            text = f"buffer {slot} is about to have a replica on host {where}"
            found.append(Report(Kind.BUFFER_MOVES, text, slot))
        by = self._how.spread_by
        for slot, placement in sorted(self._placed.items()):
            for place, on in shared_places(placement.replicas, self._homing.nodes, by).items():
                text = f"buffer {slot} has replicas on hosts {', '.join(on)} of one {by}, {place}"
                found.append(Report(Kind.REPLICAS_TOGETHER, text, slot))
        return found
