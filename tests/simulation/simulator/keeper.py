"""Who keeps the buffer in service: grants its lease, and opens its logs in each of its lives.

An imitation of `BufferPool`, with the `LeaseGrants` that ship. It never ends, and there is one.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pxrs_ray.data.log_limits import Durability, LossPolicy
from pxrs_ray.data.protocol import QueueSpec
from pxrs_ray.log.lease_grants import LeaseGrants
from pxrs_ray.model import Offset, PartitionId
from tests.settings import log_limits
from tests.simulation.history import Harmed, Reported
from tests.simulation.simulator.buffer_lives import QUEUE
from tests.simulation.simulator.store import GROUP
from tests.simulation.simulator.world import Process, call

if TYPE_CHECKING:
    from tests.simulation.simulator.buffer import BufferProcess
    from tests.simulation.simulator.cluster import Cluster

PING_MS = 80
LEASE_MS = 400
TELL_MS = 300
SYNC_EVERY_MS = 30

Pong = tuple[str, int, dict[PartitionId, Offset]] | None


class KeeperProcess(Process):
    """See the module."""

    role = "keeper"

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster.world, "keeper")
        self.cluster = cluster
        scenario = self.world.scenario
        self.spec = QueueSpec(
            QUEUE,
            scenario.partitions,
            log_limits(
                durability=Durability(scenario.durability),
                lost_log_policy=LossPolicy.CONTINUE,
                segment_bytes_max=scenario.segment_bytes,
                tail_bytes_max=scenario.hot_bytes,
                index_interval_bytes=600,
                retention_passed=scenario.worn or scenario.retain,
                fsync_interval_ms=SYNC_EVERY_MS,
            ),
            queue_id=QUEUE,
        )
        self._grants = LeaseGrants(1, LEASE_MS, self.monotonic_ms())
        self._grants.generation = 1
        self._made = False
        self._moving = False
        self._opened = ""
        self._term, self._allowed_ms = 1, 0
        self._ends: dict[PartitionId, Offset] = {}
        self.every(PING_MS, self._ping)
        if scenario.worn or scenario.retain:
            self.every(TELL_MS, self._tell)

    def _ping(self) -> None:
        buffer, grant = self.cluster.log, self._grants.grant(0, self._term)
        heard = partial(self._heard, buffer)
        call(self, buffer, lambda respond: respond(buffer.ping(grant)), heard)

    def moved(self) -> None:
        """The buffer's name is on another disk from now on: nobody serves there before the lease
        that was granted for the one before is over."""
        self._grants.forbid(0)
        self._term += 1
        self._allowed_ms = self._grants.over_ms(0)
        self._moving = True

    def _heard(self, buffer: BufferProcess, pong: Pong) -> None:
        if pong is None or buffer is not self.cluster.log:
            return
        incarnation, clock_ms, ends = pong
        for partition, end in ends.items():
            if end > self._ends.get(partition, 0):
                self._ends[partition] = end
                self.world.record(Reported(self.world.now_ms, partition, end))
        self._grants.heard(0, incarnation, clock_ms, self.monotonic_ms())
        if self.monotonic_ms() < self._allowed_ms:
            return
        if self._moving:
            self._moving = False
            self.world.record(Harmed(self.world.now_ms, "an older disk in its place", True))
        self._grants.allow(0)
        self._grants.leading(self._grants.heard_so_far())
        if incarnation != self._opened:
            self._open(incarnation)

    def _open(self, incarnation: str) -> None:
        buffer, made = self.cluster.log, self._made
        ends = dict(self._ends)
        for partition, checkpoint in self._checkpoints().items():
            ends[partition] = max(checkpoint, ends.get(partition, 0))
        call(
            self,
            buffer,
            lambda respond: buffer.open(self.spec, ends, not made, respond),
            partial(self._is_open, incarnation, made=made),
        )

    def _is_open(self, incarnation: str, worked: bool, *, made: bool) -> None:
        """What was only made serves nobody before it is opened once more."""
        if worked and not made:
            self._made = True
            self._open(incarnation)
        elif worked:
            self._opened = incarnation

    def _checkpoints(self) -> dict[PartitionId, Offset]:
        snapshot = self.cluster.registry.load(GROUP)
        rows = snapshot.partitions if snapshot is not None else ()
        return {row.partition: row.checkpoint for row in rows}

    def _tell(self) -> None:
        """Say how far the group has come: what it has passed may be dropped."""
        buffer, checkpoints = self.cluster.log, self._checkpoints()
        if checkpoints:
            call(self, buffer, lambda _: buffer.passed(checkpoints), _nothing)


def _nothing(_: None) -> None:
    """Nobody answers."""
