"""`Buffer`: the async actor that holds partition logs (Kafka: a broker). It wraps `pxrs_ray.log`.

Rules of this file. Partition p of every queue lives on buffer p % buffers. Nothing here decides
about order, duplicates or fences: the logs and `ReadFence` do. Calls of an async actor arrive in
any order, and Ray may repeat them; every method is idempotent, or harmless when repeated. One
partition's trouble is a `Refused` in the reply; an exception of the call means that nothing is
acknowledged. Every wait has a deadline that the caller gives.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from pxrs_ray.actors import names
from pxrs_ray.actors.buffer.coordinator_recovery import CoordinatorRecovery, RecoveryPlan
from pxrs_ray.actors.buffer.inspection import Inspection
from pxrs_ray.actors.buffer.local_socket import REPLY_BYTES_MAX, SocketServer, reply_bytes
from pxrs_ray.actors.buffer.log_ownership import LogOwnership
from pxrs_ray.actors.buffer.log_reader import append_frame, may_pass, refused
from pxrs_ray.actors.buffer.long_poll import LongPoll, wake
from pxrs_ray.actors.buffer.start_notice import tell_started
from pxrs_ray.actors.cluster.named_actors import make_actor
from pxrs_ray.actors.cluster.process_memory import settle
from pxrs_ray.actors.cluster.watchdog import watched
from pxrs_ray.clock import wall_ms
from pxrs_ray.data.protocol import (
    Appended,
    BufferGrant,
    BufferInfo,
    Fetched,
    LogEnds,
    OutFrame,
    Position,
    QueueSpec,
    Refused,
)
from pxrs_ray.errors import PxrsError
from pxrs_ray.files import Files
from pxrs_ray.json_logging import start_journal
from pxrs_ray.log.partition_log import PartitionLog
from pxrs_ray.log.producer_fence import Generation
from pxrs_ray.model import Offset, PartitionId

# How long a buffer may be missed before its node has ended it and Ray has started it anew.
LEASE_S = 10.0
CALLS_MAX = 10_000


class Buffer(LogOwnership, Inspection):
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
        start_journal(topology=topology, actor=f"buffer {index}")
        self._lease_s = lease_s
        super().__init__(topology, index, buffers, Path(folder), files or Files(), disk_id)

    def _begin(self) -> None:
        """See `Standing._begin`."""
        self._watched = watched(self._folder, f"buffer {self._index}", self._lease_s)
        self._newest_wait: dict[str, LongPoll] = {}
        self._line = SocketServer({"append": self.append, "fetch": self._fetch_little})
        super()._begin()
        self._heir = CoordinatorRecovery(self._topology, self._index, self._lease_s)
        tell_started(self._topology, self._index)

    async def ping(self, grant: BufferGrant | None = None) -> BufferInfo:
        """See `Standing.ping`."""
        self._heir.heard()
        return await super().ping(grant)

    async def inherit(self, will: RecoveryPlan) -> None:
        """Have another coordinator made of this, should this one go and not come back."""
        self._heir.remember(will)

    async def line(self) -> str:
        """How processes of this node `connect` to call past Ray; '' where they cannot."""
        self._tending.begin()
        return await self._line.open()

    async def open(
        self, spec: QueueSpec, expected_ends: Mapping[PartitionId, Offset], make: bool
    ) -> dict[PartitionId, LogEnds]:
        """Open this buffer's logs of a queue; the coordinator calls it after each start.

        `expected_ends` is, per partition, the highest offset known to have been reached (a missing
        entry is 0). A log that ends below it has lost data: the gap is recorded, and its `on_loss`
        decides. So has one that is not here, or has another id than the queue, whatever was
        reached: only with `make`, which is true while the queue's logs on this buffer are known to
        be nowhere yet, it is made. Calling it again changes limits live, and nothing else.
        Partitions of other buffers are ignored.

        Raises UsageError when the queue exists here with more partitions than `spec` has.
        """
        self._tending.begin()
        await self._writer.do(
            partial(self._manager.open, spec, expected_ends, wall_ms(), make=make), ()
        )
        self._watched.begin()
        for place in list(self._waiting):
            wake(self._waiting, place)
        return self._manager.ends(spec.queue)

    async def append(
        self, queue: str, frames: Sequence[OutFrame], wait_ms: int = 0
    ) -> list[Appended | Refused]:
        """Append each frame to its partition, and answer one by one, in the order given.

        Acknowledged according to the queue's durability. Idempotent under (producer id, epoch,
        sequence) in the frame's header: a repeat gets the first answer. A frame that comes
        before its predecessor, or to a full partition, or without a lease, waits up to `wait_ms`;
        then SequenceGap, PartitionFull or LeaseOver. Further refusals: ProducerFenced,
        SequenceConflict, MessageTooLarge, DiskFull, LogLost, LogCorrupted, NotFound (no such queue
        here).
        """
        self._tending.begin()
        self._counts["appends"] += 1
        places = {(queue, partition) for partition, _, _ in frames}
        answers: dict[int, Appended | Refused] = {}
        todo: Iterable[int] = range(len(frames))
        with LongPoll(self._waiting, places, wait_ms) as poll:
            while True:
                final = poll.over
                todo = await self._append_in_lease(queue, frames, todo, answers)
                if final or not todo:
                    return [answers[at] for at in range(len(frames))]
                self._counts["appends_waiting"] += 1
                await poll.wait()
                self._counts["appends_waiting"] -= 1

    async def _append_in_lease(
        self,
        queue: str,
        frames: Sequence[OutFrame],
        todo: Iterable[int],
        answers: dict[int, Appended | Refused],
    ) -> list[int]:
        """As `_append_once`, while a lease lasts: also at the end nothing else is acknowledged."""
        again, term = list(todo), self._gate.tenure.term
        if self._gate.is_open():
            left = await self._append_once(queue, frames, again, answers)
            if self._gate.is_open() and term == self._gate.tenure.term:
                return left
        for at in again:
            answers[at] = Refused(frames[at][0], self._gate.over())
        return again

    async def _append_once(
        self,
        queue: str,
        frames: Sequence[OutFrame],
        todo: Iterable[int],
        answers: dict[int, Appended | Refused],
    ) -> list[int]:
        """Try the frames at the places `todo`; answer which of them are worth another try."""
        logs: dict[int, PartitionLog] = {}
        for at in todo:
            partition = frames[at][0]
            try:
                logs[at] = self._manager.log(queue, partition)
            except PxrsError as error:
                answers[at] = Refused(partition, error)

        def run() -> None:
            now_ms = wall_ms()
            for at, log in logs.items():
                answers[at] = append_frame(log, self._manager.producers, now_ms, *frames[at])

        if logs:
            size_bytes = sum(len(frames[at][2]) for at in logs)
            of_logs = set(logs.values())
            _, unsynced = await self._writer.do_each(run, of_logs, size_bytes)
            for at, log in logs.items() if unsynced else ():
                if log in unsynced and isinstance(answers[at], Appended):
                    answers[at] = Refused(log.partition, unsynced[log])
        again = []
        for at in todo:
            answer = answers[at]
            if isinstance(answer, Appended):
                self._count_appended(answer, len(frames[at][2]))
            elif may_pass(answer.error, logs.get(at)):
                again.append(at)
            else:
                self._counts["refused"] += 1
        return again

    async def begin_producer(
        self, queue: str, producer: str, number: int, token: str
    ) -> Generation | None:
        """Begin a life of a producer that comes back, and refuse its former ones for ever; see
        `ProducerFence.begin`. What was given before it has its answer already, or never gets in.
        """
        begin = self._manager.producers.begin
        self._gate.check()
        found: Generation | None = await self._writer.do(
            partial(begin, queue, producer, number, token), ()
        )
        self._gate.check()
        return found

    def _count_appended(self, answer: Appended, size_bytes: int) -> None:
        if answer.repeated:
            self._counts["repeats"] += 1
        else:
            self._counts["frames"] += 1
            self._counts["messages"] += answer.count
            self._counts["bytes_in"] += size_bytes

    async def fetch(
        self,
        queue: str,
        group: str,
        positions: Mapping[PartitionId, Position],
        bytes_max: int = 8 << 20,
        wait_ms: int = 1_000,
        reader: str = "",
    ) -> list[Fetched | Refused]:
        """Read several partitions at once; wait up to `wait_ms` for the first message.

        A newer call of a `reader` that is named ends its older one at once: what it reads can
        change without leaving waits behind.

        `positions` gives per partition the reader's epoch and the offset to read from. Each gets
        its share of `bytes_max`, but at least one frame. Only partitions with messages or a
        refusal are in the reply, so a time-out is an empty list. An append wakes waiting readers;
        nothing polls. Refusals: Fenced (an epoch below the highest seen of that group and
        partition, also while waiting), OffsetOutOfRange, LogLost, LogCorrupted, NotFound; LeaseOver
        for all, at once when the lease ends while it waits.
        """
        self._tending.begin()
        self._counts["fetches"] += 1
        with LongPoll(self._waiting, {(queue, p) for p in positions}, wait_ms) as poll:
            older = self._newest_wait.pop(reader, None)
            if older is not None:
                older.end()
            if reader:
                self._newest_wait[reader] = poll
            try:
                look, was_open = positions, False
                while True:
                    final = poll.over
                    look = positions if final else look
                    found: list[Fetched | Refused] = []
                    if self._gate.is_open():
                        found = await self._reader.fetch(queue, group, look, bytes_max, final)
                    if self._gate.is_open():
                        was_open = True
                    elif was_open or final:  # what was read is not handed on
                        return [Refused(partition, self._gate.over()) for partition in positions]
                    else:
                        found = []
                    if final or found:
                        return found
                    self._counts["fetches_waiting"] += 1
                    changed = await poll.wait()
                    self._counts["fetches_waiting"] -= 1
                    if self._gate.is_open():
                        look = {p: positions[p] for _, p in changed} if was_open else positions
            finally:
                if self._newest_wait.get(reader) is poll:
                    del self._newest_wait[reader]

    async def _fetch_little(self, *arguments: Any) -> list[Fetched | Refused] | None:
        """As `fetch`; None for what Ray carries better."""
        found = await self.fetch(*arguments)
        return found if reply_bytes(found) <= REPLY_BYTES_MAX else None

    async def passed(
        self, queue: str, group: str, checkpoints: Mapping[PartitionId, Offset]
    ) -> None:
        """Note how far `group` has come: it needs nothing below. The first call registers it.

        Retention keeps what a registered group has not passed, so register a group (with its
        first checkpoints) before it reads. Checkpoints may also go down (a seek). Raises
        LeaseOver.
        """
        logs = {self._manager.log(queue, p): offset for p, offset in checkpoints.items()}
        self._gate.check()

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
        with a grant: then it begins anew."""
        if self.closed:
            return
        self.closed = True
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
        self._rests = True


def make_buffer(
    topology: str,
    index: int,
    buffers: int,
    folder: str,
    lease_s: float = LEASE_S,
    disk_id: str = "",
    node: str = "",
) -> Any:
    """Start the buffer actor, or find it when it runs; answers its handle.

    On the `node` it stays: it is started again there, and nowhere else. '' is any node.

    Detached and restarted for ever; calls that a restart cut off are made again by Ray, which is
    safe for they are idempotent.
    """
    options = {
        "get_if_exists": True,
        "max_restarts": -1,
        "max_task_retries": -1,
        "max_concurrency": CALLS_MAX,
        "scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False) if node else None,
        "enable_task_events": False,
    }
    return make_actor(
        Buffer,
        names.buffer(topology, index),
        options,
        *(topology, index, buffers, folder),
        lease_s=lease_s,
        disk_id=disk_id,
    )
