"""`ReplicaFollowers`: calls of a coordinator to the replicas that lead nothing, about their logs.

Rules of this file. Every call has a deadline. A queue is made when all replicas in sync have made
its logs: each of those may lead next. What is removed is removed when every replica has removed it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any

from ray.exceptions import RayError

from pxrs_ray.actors import names
from pxrs_ray.actors.buffer.replica_client import ReplicaClient
from pxrs_ray.clock import monotonic_ms
from pxrs_ray.data.protocol import QueueSpec
from pxrs_ray.errors import BufferAway, PxrsError
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Slot
from pxrs_ray.replication.placement import Disk, Placement
from pxrs_ray.replication.placements import SlotPlacements
from pxrs_ray.replication.replica_calls import ReplicaRules
from pxrs_ray.status.places import ReplicaStatus
from pxrs_ray.status.problem import Report
from pxrs_ray.supervision.restart_rules import told
from pxrs_ray.supervision.supervisor import Supervisor
from pxrs_ray.topology.homes import SHOWN

logger = logging.getLogger(__name__)

CALL_WAIT_S = 30.0
TABLE_PAUSE_S = 0.05

Place = tuple[Slot, Disk]


@dataclass(frozen=True, slots=True)
class Replicated:
    """How a topology is replicated, and where its data are."""

    topology: str
    count: int
    folder: str
    lease_s: float
    replicas: int
    replace_after_ms: int
    rules: ReplicaRules
    spread_by: str = ""


@dataclass(frozen=True, slots=True)
class ReplicasWanted:
    """What a topology's configuration says of its replicas that may change while it runs. One that
    is away for so long is replaced."""

    replicas: int
    min_isr: int
    replace_after_ms: int
    spread_by: str = ""
    catch_up_bytes_per_s: int = 0


class NoReplicas:
    """The replicas of a topology whose logs have one home each: there is nothing to do."""

    are_there = False

    async def open_on(self, slot: Slot, spec: QueueSpec, *, make: bool) -> None:
        """See `ReplicaFollowers.open_on`."""

    async def drop_queue(self, queue: str) -> None:
        """See `ReplicaFollowers.drop_queue`."""

    async def drop_group(self, queue: str, group: str) -> None:
        """See `ReplicaFollowers.drop_group`."""

    async def forget(self, queues: Iterable[str]) -> None:
        """See `ReplicaFollowers.forget`."""

    async def stop(self) -> None:
        """See `ReplicaFollowers.stop`."""

    def reports(self) -> list[Report]:
        """What is wrong with replicas."""
        return []

    def statuses(self, slot: Slot) -> tuple[ReplicaStatus, ...]:
        """The replicas of a slot, as people see them; the one that leads comes first."""
        return ()

    def actor_names(self) -> list[str]:
        """What the replicas are called."""
        return []


class ReplicaFollowers(NoReplicas):
    """See the rules at the head of this file."""

    are_there = True

    def __init__(self, how: Replicated, table: SlotPlacements) -> None:
        self._how = how
        self._table = table
        self._clients: dict[Place, ReplicaClient] = {}
        self._supervisor = Supervisor(f"replicas of {how.topology}")

    @property
    def _placed(self) -> dict[Slot, Placement]:
        return self._table.placements.slots

    @staticmethod
    async def _until(check: Callable[[], bool], wait_s: float) -> bool:
        end_ms = monotonic_ms() + round(wait_s * 1_000)
        while not check():
            if monotonic_ms() > end_ms:
                return False
            await asyncio.sleep(TABLE_PAUSE_S)
        return True

    @staticmethod
    async def _open(client: ReplicaClient, spec: QueueSpec, *, make: bool) -> None:
        if make:
            await client.open(spec, {}, make=True, wait_s=CALL_WAIT_S)
        await client.open(spec, {}, make=False, wait_s=CALL_WAIT_S)

    async def open_on(self, slot: Slot, spec: QueueSpec, *, make: bool) -> None:
        """Have a queue's logs on the followers of a slot. To be made, they must be on all that are
        in sync, or this raises BufferAway: each of those may lead next. Nobody waits for others."""
        followers = self._table.followers(slot)
        if followers is None:
            raise BufferAway(f"slot {slot} is not placed yet")
        for disk, may_lead_next in followers.items():
            if make and may_lead_next:
                await self._open_on_one(slot, disk, spec, make=make)
            else:
                # Ray holds a call to a process that is being started until it has started: a leader
                # that was just elected would serve nobody until then.
                trying = self._try_to_open(slot, disk, spec, make=make)
                self._supervisor.once("a follower's logs", trying)

    async def _open_on_one(self, slot: Slot, disk: Disk, spec: QueueSpec, *, make: bool) -> None:
        client = self._clients.get((slot, disk))
        try:
            if client is None:
                raise BufferAway("it is away")
            await client.open(spec, {}, make=make, wait_s=CALL_WAIT_S)
        except (RayError, PxrsError, TimeoutError) as error:
            raise BufferAway(
                f"queue {spec.queue} cannot be made while replica {slot} on disk {disk[:SHOWN]} "
                f"does not answer: {told(error)}"
            ) from error

    async def _try_to_open(self, slot: Slot, disk: Disk, spec: QueueSpec, *, make: bool) -> None:
        try:
            await self._open_on_one(slot, disk, spec, make=make)
        except BufferAway as error:
            logger.info("%s; it tells what it lacks", error)

    async def of_followers(self, what: str, call: Callable[[ReplicaClient], Any]) -> None:
        """Make a call to each replica that leads nothing. Raises BufferAway where one is away."""
        for slot, placement in self._placed.items():
            for disk in placement.replicas:
                client = self._clients.get((slot, disk))
                if disk == placement.leader:
                    continue
                try:
                    if client is None:
                        raise BufferAway("it is away")
                    await call(client)
                except (RayError, TimeoutError, BufferAway) as error:
                    raise BufferAway(
                        f"replica {slot} on disk {disk[:SHOWN]} does not {what} now: {told(error)}"
                    ) from error

    async def drop_queue(self, queue: str) -> None:
        """Delete every log of a queue at the followers."""
        await self.of_followers("drop the queue", lambda to: to.drop_queue(queue, CALL_WAIT_S))

    async def drop_group(self, queue: str, group: str) -> None:
        """Let the followers' logs forget a group."""
        await self.of_followers(
            "forget the group", lambda to: to.drop_group(queue, group, CALL_WAIT_S)
        )

    async def forget(self, queues: Iterable[str]) -> None:
        """Delete everything that the followers keep."""
        kept = list(queues)
        await self.of_followers("drop its logs", lambda to: to.forget(kept, CALL_WAIT_S))

    async def stop(self) -> None:
        """Sync and close every log of the followers, and look at nobody any more."""
        followers = [
            client
            for (slot, disk), client in self._clients.items()
            if slot not in self._placed or disk != self._placed[slot].leader
        ]
        await self._supervisor.close()
        stops = (client.stop(CALL_WAIT_S) for client in followers)
        await asyncio.gather(*stops, return_exceptions=True)

    def check_loss(self, slot: Slot) -> Disk:
        """Whose logs a slot goes on with where its loss is accepted: see `SlotPlacements.heir`."""
        return self._table.heir(slot, monotonic_ms())

    def actor_names(self) -> list[str]:
        """What the replicas are called."""
        return [
            names.replica(self._how.topology, slot, disk)
            for slot, placement in sorted(self._placed.items())
            for disk in placement.replicas
        ]
