"""`Buffer`: the async actor that holds partition logs (Kafka: a broker). It wraps `pxrs_ray.log`.

Rules of this file. Partition p of every queue lives on buffer p % buffers. Nothing here decides
about order, duplicates or fences: the logs and `ReadFence` do. Calls of an async actor arrive in
any order, and Ray may repeat them; every method is idempotent, or harmless when repeated. One
partition's trouble is a `Refused` in the reply; an exception of the call means that nothing is
acknowledged. Every wait has a deadline that the caller gives.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from pxrs_ray.actors.buffer.coordinator_recovery import CoordinatorRecovery, RecoveryPlan
from pxrs_ray.actors.buffer.inspection import Inspection
from pxrs_ray.actors.buffer.log_ownership import LogOwnership
from pxrs_ray.actors.buffer.message_calls import MessageCalls
from pxrs_ray.actors.buffer.server_end import REPLIES_BYTES_MAX
from pxrs_ray.actors.buffer.serving_state import node_address
from pxrs_ray.actors.buffer.socket_server import Methods, SocketServer
from pxrs_ray.actors.buffer.start_notice import tell_started
from pxrs_ray.actors.cluster.priority import be_as_nice_as
from pxrs_ray.actors.cluster.process_memory import settle
from pxrs_ray.actors.cluster.watchdog import watched
from pxrs_ray.bounded_files import BoundedFiles
from pxrs_ray.clock import wall_ms
from pxrs_ray.data.link_door import LinkOffer
from pxrs_ray.data.link_ports import link_ports
from pxrs_ray.data.protocol import (
    BufferGrant,
    BufferInfo,
    LogEnds,
    QueueSpec,
    Refused,
)
from pxrs_ray.errors import PxrsError
from pxrs_ray.files import Files
from pxrs_ray.json_logging import start_journal
from pxrs_ray.log.held_calls import wake, wake_all
from pxrs_ray.log.log_copy import SLOTS
from pxrs_ray.log.partition_log import PartitionLog
from pxrs_ray.log.producer_fence import ProducerLife
from pxrs_ray.log.refusals import refused
from pxrs_ray.model import Offset, PartitionId

# How long a buffer may be missed before its node has ended it and Ray has started it anew.
LEASE_S = 10.0
# The file of all locks of all buffers' logs of a topology on a disk.
LOCKS = "locks"


class Buffer(MessageCalls, LogOwnership, Inspection):
    """One buffer of a topology: several (queue, partition) logs in one data folder.

    A restarted buffer opens what its folder holds. It serves that only once its coordinator has
    granted it a lease (`ping`) and has said how far each log should reach (`open`). Until then
    appends and reads wait: so offsets never start again at 0, and a replaced buffer serves nobody.
    A buffer whose disk (that of the folder above `folder`) is not `disk_id` opens and serves
    nothing until it is; '' accepts the disk that is there.
    """

    def __init__(
        self,
        topology: str,
        index: int,
        buffers: int,
        folder: str,
        files: Files | None = None,
        lease_s: float = LEASE_S,
        disk_id: str = "",
    ) -> None:
        settle()
        be_as_nice_as()
        start_journal(topology=topology, actor=f"buffer {index}")
        self._lease_s = lease_s
        self._closing = asyncio.Lock()
        # A log keeps two files open, and there may be more logs than files that we may open.
        files = files or BoundedFiles(Path(folder) / SLOTS / LOCKS)
        super().__init__(topology, index, buffers, Path(folder), files, disk_id)

    def _begin(self) -> None:
        """See `ServingState._begin`."""
        self._watched = watched(self._folder, f"buffer {self._index}", self._lease_s)
        super()._begin()
        little, much = (partial(self._fetched_up_to, most) for most in REPLIES_BYTES_MAX)
        methods: Methods = {"append": self._appended, "fetch": little, "fetch_much": much}
        self._line = SocketServer({**methods, **self._heard_by_line()}, node_address, self._counts)
        self._heir = CoordinatorRecovery(self._topology, self._index, self._lease_s)
        tell_started(self._topology, self._index)

    def _heard_by_line(self) -> Methods:
        """What else may be called past Ray."""
        return {}

    async def ping(self, grant: BufferGrant | None = None) -> BufferInfo:
        """See `ServingState.ping`."""
        self._heir.heard()
        info = await super().ping(grant)
        if grant is not None and grant.generation >= info.generation:
            self._line.allow(link_ports(grant.link_ports))
        return info

    async def inherit(self, will: RecoveryPlan) -> None:
        """Have another coordinator made of this, should this one go and not come back."""
        self._heir.remember(will)

    async def line(self, network: bool = False, much: bool = False) -> LinkOffer | None:
        """Leave for a process of this node, or of another (`network`), to connect once, to call
        past Ray; None where there is no such way."""
        self._tending.begin()
        opened = self._line.open_network if network else self._line.open
        return await opened(much=much)

    async def open(
        self, spec: QueueSpec, expected_ends: Mapping[PartitionId, Offset], make: bool
    ) -> dict[PartitionId, LogEnds]:
        """Open this buffer's logs of a queue; the coordinator calls it after each start.

        `expected_ends` is, per partition, the highest offset known to have been reached (a missing
        entry is 0). A log that ends below it has lost data: the gap is recorded, and its
        `lost_log_policy` decides. So has one that is not here, or has another id than the queue,
        whatever was reached: it is made only with `make`, which is true while the queue's logs on
        this buffer are known to be nowhere yet. Calling it again changes limits live, and
        nothing else. Partitions of other buffers are ignored.

        Raises UsageError when the queue exists here with more partitions than `spec` has.
        """
        self._tending.begin()
        await self._writer.do(
            partial(self._manager.open, spec, expected_ends, wall_ms(), make=make), ()
        )
        self._watched.begin()
        wake_all(self._waiting)
        return self._manager.ends(spec.queue)

    async def begin_producer(
        self, queue: str, producer: str, number: int, token: str
    ) -> ProducerLife | None:
        """Begin a life of a producer that comes back, and refuse its former ones for ever; see
        `ProducerFence.begin`. What was given before it has its answer already, or never gets in.
        """
        begin = self._manager.producers.begin
        self._gate.check()
        found: ProducerLife | None = await self._writer.do(
            partial(begin, queue, producer, number, token), ()
        )
        self._gate.check()
        return found

    async def passed(
        self, queue: str, group: str, checkpoints: Mapping[PartitionId, Offset]
    ) -> None:
        """Note how far `group` has come: it needs nothing below. The first call registers it.

        Retention keeps what a registered group has not passed, so register a group (with its
        first checkpoints) before it reads. Checkpoints may also go down (a seek). Raises
        LeaseOver.
        """
        logs = {self._manager.log(queue, p): offset for p, offset in checkpoints.items()}
        self._gate.check_lease()

        def run() -> None:
            for log, offset in logs.items():
                log.passed(group, offset)

        await self._writer.do(run, logs)

    async def truncate(
        self, queue: str, offsets: Mapping[PartitionId, Offset], force: bool = False
    ) -> dict[PartitionId, LogEnds | Refused]:
        """Drop messages below these offsets, in whole segments on disk.

        Refused with RetentionBlocked while a registered group has not passed them, unless
        `force`; with OffsetOutOfRange behind the end. Raises LeaseOver.
        """
        found: dict[PartitionId, LogEnds | Refused] = {}

        def run() -> None:
            for partition, offset in offsets.items():
                log: PartitionLog | None = None
                try:
                    log = self._manager.log(queue, partition)
                    log.truncate_before(offset, wall_ms(), force=force)
                    found[partition] = log.ends()
                except PxrsError as error:
                    found[partition] = refused(partition, error, log)

        logs = [log for log in self._manager.all_logs() if log.queue == queue]
        self._gate.check()
        await self._writer.do(run, logs)
        self._gate.check()
        return found

    async def accept_loss(self, queue: str, partition: PartitionId) -> LogEnds:
        """Resume a log that halted after a loss, above its recorded gap."""
        accept = partial(self._manager.accept_loss, queue, partition, wall_ms())
        await self._writer.do(accept, ())
        log = self._manager.log(queue, partition)
        wake(self._waiting, (queue, partition))
        return log.ends()

    async def close(self) -> None:
        """Sync and close every log; once more is no harm. Kill the actor after it, or `ping` it
        with a grant: then it begins anew. Raises BufferAway when an earlier call has failed.

        Whoever asks again, as the next coordinator does, hears of it when all is closed too: it
        copies the files then.
        """
        async with self._closing:
            await self._close()

    async def _close(self) -> None:
        if not self.life.closes():
            return
        self._heir.close()
        self._gate.shut()
        self._gate.close()
        if self._parts is not None:
            await self._parts.tending.close()
        self._watched.close()
        self._line.close()
        await self._writer.close()
        if self._parts is not None:
            try:
                self._manager.close()
            finally:
                self._fence.close()
                self._reader.close()
        self.life.is_at_rest()
