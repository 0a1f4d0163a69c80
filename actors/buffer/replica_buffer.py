"""`ReplicaBuffer`: a buffer that is one of several replicas of its slot.

Rules of this file. It is a `Buffer` in all that it does for producers and consumers, while it leads
its slot and knows all that a leader has to know; before, and after, it serves nobody. What is
appended is acknowledged once it is on every replica in sync. `ReplicaHost` hosts the replica.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pxrs_ray.actors.buffer.buffer_actor import LEASE_S, Buffer
from pxrs_ray.actors.buffer.lease_gate import BufferLeaseGate
from pxrs_ray.actors.buffer.log_writer import in_threads
from pxrs_ray.actors.buffer.replica_host import ReplicaHost, end_process
from pxrs_ray.actors.buffer.socket_server import Methods
from pxrs_ray.clock import lease_clock_ms, wall_ms
from pxrs_ray.data.log_limits import LossPolicy
from pxrs_ray.data.protocol import (
    BufferGrant,
    BufferInfo,
    ChangedEnds,
    LogEnds,
    QueueSpec,
    Refused,
)
from pxrs_ray.errors import NotLeading, UsageError
from pxrs_ray.files import Files
from pxrs_ray.log.buffer_calls import AppendCall
from pxrs_ray.log.disk_life import DiskLife
from pxrs_ray.log.identity import Identity
from pxrs_ray.log.log_manager import LogManager
from pxrs_ray.log.producer_fence import ProducerLife
from pxrs_ray.log.replica_logs import ReplicaLogs
from pxrs_ray.model import Generation, Message, Offset, PartitionId
from pxrs_ray.replication.peer_messages import Follower
from pxrs_ray.replication.placement import LeaderEpoch
from pxrs_ray.replication.replica_calls import (
    GroupKnown,
    LeadFound,
    ReplicaAnswer,
    ReplicaRules,
    ReplicaTold,
)

logger = logging.getLogger(__name__)


class ReplicaGate(BufferLeaseGate):
    """A gate that is open while the buffer leads its slot under the term of its lease."""

    host: ReplicaHost | None = None

    def is_open(self) -> bool:
        """See `BufferLeaseGate.is_open`."""
        host, term = self.host, self.tenure.term
        return self.tenure.holds(lease_clock_ms()) and host is not None and host.serves(term)


class ReplicaBuffer(Buffer):
    """See the rules at the head of this file. The logs of the slot are in `folder`, on the disk
    `disk_id`."""

    # What is done to any log goes through the one machine of the replica.
    logs_apart = False

    def __init__(
        self,
        topology: str,
        index: int,
        buffers: int,
        folder: str,
        rules: ReplicaRules,
        disk_id: str,
        lease_s: float = LEASE_S,
        files: Files | None = None,
    ) -> None:
        self._rules = rules
        self._host: ReplicaHost | None = None
        self._its_life: DiskLife | None = None
        super().__init__(topology, index, buffers, folder, files, lease_s, disk_id)

    # --- its parts --------------------------------------------------------------------------------

    def _new_gate(self, what: str) -> BufferLeaseGate:
        return ReplicaGate(what, self._incarnation, self._waiting)

    def _new_manager(self) -> LogManager:
        folder = Path(self._folder, ".buffers", str(self._index))
        if self._its_life is None:
            self._its_life = DiskLife(self._files, folder, lock_wait_ms=0)
        args = (self._folder, self._index, self._buffers)
        logs = ReplicaLogs(*args, wall_ms(), files=self._files, each=in_threads)
        who = Follower(self.life.here, self._files.boot_id(), self._its_life.number)
        gate = self._gate
        assert isinstance(gate, ReplicaGate)
        what = f"replica {self._index} of {self._topology}"
        self._host = gate.host = ReplicaHost(
            what, who, logs, self._writer, self._rules, self._waiting, gate.look
        )
        return logs

    @property
    def _replica(self) -> ReplicaHost:
        self._found()
        assert self._host is not None
        return self._host

    def _heard_by_line(self) -> Methods:
        return {"hear": self.hear}

    # --- replication ------------------------------------------------------------------------------

    async def look(self, told: ReplicaTold) -> ReplicaAnswer:
        """Take in what the coordinator tells, and answer; see `ReplicaHost.look`. Raises LeaseOver
        while its disk is not here."""
        if self.life.is_closed:
            end_process()
        self._heir.heard()
        if self._parts is None:
            self._look_for_disk()
        self._tending.begin()
        return await self._replica.look(told)

    async def hear(self, messages: list[bytes]) -> None:
        """Other replicas say something."""
        await self._replica.heard(messages)

    async def learn(self, lives: Sequence[ProducerLife]) -> None:
        """Know of these lives of producers, durably, before this replica may lead."""
        begin = self._manager.producers.begin

        def learn() -> None:
            for life in lives:
                begin(life.queue, life.producer, life.number, life.token)

        await self._writer.do(learn, ())

    async def dismiss(self, generation: Generation, asked_ms: int, queues: Sequence[str]) -> bool:
        """Drop all logs and end, for this disk has no replica of the slot any more; False where a
        coordinator has looked here since that was asked. Raises LogAway where it cannot be now."""
        if not self._replica.dismissed(generation, asked_ms):
            return False
        logger.warning("replica %d on disk %s goes", self._index, self.life.here)
        for queue in {*queues, *self._manager.queues}:
            await self.drop_queue(queue)
        self._replica.end()
        return True

    async def leads(self, wait_ms: int = 0) -> LeaderEpoch:
        """The epoch under which it leads its slot, as soon as it does; 0: another replica does, or
        none, when `wait_ms` have passed."""
        return await self._host.leads_within(wait_ms) if self._host is not None else 0

    def _check_leads(self) -> None:
        """Raise NotLeading where another replica is to be asked."""
        if not self._replica.leads:
            raise NotLeading(f"another replica of buffer {self._index} leads, or is about to")

    def _check_knows(self) -> None:
        """Raise NotLeading, also of a leader that does not know yet what is safe."""
        if not self._replica.is_ready:
            raise NotLeading(f"buffer {self._index} has no leader yet that knows all that is safe")

    # --- what it serves by ------------------------------------------------------------------------

    async def take_lead(
        self, claim: Identity, adopt: bool, groups: Sequence[tuple[str, str]]
    ) -> LeadFound:
        """Say all that a coordinator has to know before this serves; `groups` are queues and groups
        of which it wants to know. See `Buffer.belong`."""
        noted = await self.belong(claim, adopt)
        fences = {(queue, group): self._fence.epochs(queue, group) for queue, group in groups}
        return LeadFound(noted, await self.ping(), fences)

    async def serve(
        self, grant: BufferGrant, epoch: LeaderEpoch, groups: Sequence[GroupKnown]
    ) -> BufferInfo:
        """Serve by this grant as soon as it leads under `epoch`: `groups` is all that a leader has
        to know. Raises LeaseOver where the grant gives no lease."""
        info = await self.ping(grant)
        self._gate.check_lease()
        for each in groups:
            await self.fence(each.queue, each.group, each.epochs)
            await self.passed(each.queue, each.group, each.checkpoints)
        if self._gate.tenure.generation == grant.generation and self._replica.settle(epoch):
            self._gate.look()
        return info

    # --- what a buffer does -----------------------------------------------------------------------

    async def ping(self, grant: BufferGrant | None = None) -> BufferInfo:
        """As `Buffer.ping`; one that has closed begins anew as another process."""
        if self.life.is_closed and grant is not None:
            end_process()
        return await super().ping(grant)

    async def open(
        self, spec: QueueSpec, expected_ends: Mapping[PartitionId, Offset], make: bool
    ) -> dict[PartitionId, LogEnds]:
        """As `Buffer.open`. How far a log should reach is said to whoever leads alone."""
        if not spec.queue_id:
            raise UsageError(
                f"{spec.queue} is kept beside the queues, for exactly-once feeds, and cannot have "
                "replicas yet: feed a topology with replicas = 1, or send with a Producer"
            )
        # What none of the replicas has was accepted to be lost when one of them was let to lead.
        limits = replace(spec.limits, lost_log_policy=LossPolicy.CONTINUE)
        found = await super().open(replace(spec, limits=limits), expected_ends, make)
        await self._replica.adopt()
        return found

    async def begin_producer(
        self, queue: str, producer: str, number: int, token: str
    ) -> ProducerLife | None:
        """As `Buffer.begin_producer`; every replica that may lead next knows of it as well."""
        self._check_leads()
        found = await super().begin_producer(queue, producer, number, token)
        if found is not None:
            await self._replica.spread(found)
            self._gate.check()
        return found

    async def drop_queue(self, queue: str) -> None:
        """As `Buffer.drop_queue`."""
        self._replica.forget(queue)
        await super().drop_queue(queue)

    def _appended(self, *arguments: Any) -> Any:
        self._check_leads()
        return super()._appended(*arguments)

    def _fetched(self, *arguments: Any) -> Any:
        self._check_leads()
        return super()._fetched(*arguments)

    async def truncate(
        self, queue: str, offsets: Mapping[PartitionId, Offset], force: bool = False
    ) -> dict[PartitionId, LogEnds | Refused]:
        """As `Buffer.truncate`."""
        self._check_leads()
        return await super().truncate(queue, offsets, force)

    async def ends(self, queue: str) -> dict[PartitionId, LogEnds]:
        """As `Buffer.ends`, of what is on every replica in sync."""
        self._check_knows()
        return await super().ends(queue)

    async def changed_ends(self, heard: tuple[str, int]) -> ChangedEnds:
        """The same."""
        self._check_knows()
        return await super().changed_ends(heard)

    async def offset_at(
        self, queue: str, timestamp_ms: int, partitions: Sequence[PartitionId] | None = None
    ) -> dict[PartitionId, Offset]:
        """As `Buffer.offset_at`."""
        self._check_knows()
        return await super().offset_at(queue, timestamp_ms, partitions)

    async def timestamps(
        self, queue: str, offsets: Mapping[PartitionId, Offset]
    ) -> dict[PartitionId, int]:
        """As `Buffer.timestamps`."""
        self._check_knows()
        return await super().timestamps(queue, offsets)

    async def get_message(self, queue: str, partition: PartitionId, offset: Offset) -> Message:
        """As `Buffer.get_message`."""
        self._check_knows()
        return await super().get_message(queue, partition, offset)

    def _may_append(self) -> bool:
        return self._gate.is_open() and self._replica.takes

    def _run(self, call: AppendCall) -> None:
        self._replica.run_append(call)

    async def _append_round(self, call: AppendCall) -> None:
        # One that waits at a leader that was replaced asks the other: here it is known no more.
        self._check_leads()
        await super()._append_round(call)
        self._replica.synced(set(call.logs.values()))

    async def close(self) -> None:
        """As `Buffer.close`."""
        if self._host is not None:
            await self._host.close()
        await super().close()
        if self._its_life is not None:
            self._its_life.close()
            self._its_life = None
