"""`Buffer`: the async actor that hosts partition logs. A thin shell around `pxrs_ray.log`.

Rules of this file. Partition p of every queue lives on buffer p % buffers. Nothing here decides
about order, duplicates or fences: the logs and `ReadFence` do. Calls of an async actor come in
any order and may be repeated by Ray; every method is idempotent, or harmless when repeated. A
partition's trouble is a `Refused` in the reply; an exception of the call means that nothing is
acknowledged. Every wait has a deadline given by the caller.
"""

from __future__ import annotations

import os
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import ray

from pxrs_ray.actors import names
from pxrs_ray.actors.belongings import Belongings
from pxrs_ray.actors.buffer_stats import stats_of
from pxrs_ray.actors.line import REPLY_BYTES_MAX, LineServer, reply_bytes
from pxrs_ray.actors.memory import settle
from pxrs_ray.actors.patience import Patience, Waiting, wake
from pxrs_ray.actors.reader import Reader, append_frame, may_pass, message_at, refused
from pxrs_ray.actors.tending import Tending, patiently
from pxrs_ray.actors.watchdog import watched
from pxrs_ray.actors.writer import Writer
from pxrs_ray.clock import wall_ms
from pxrs_ray.errors import PxrsError
from pxrs_ray.journal import start_journal
from pxrs_ray.log.fence import ReadFence
from pxrs_ray.log.files import Files
from pxrs_ray.log.library import LogLibrary
from pxrs_ray.log.partition_log import PartitionLog
from pxrs_ray.log.producer_fence import Generation
from pxrs_ray.log.wire import (
    Appended,
    BufferInfo,
    BufferStats,
    Fetched,
    LogEnds,
    OutFrame,
    Position,
    QueueSpec,
    Refused,
)
from pxrs_ray.model import Message, Offset, PartitionId
from pxrs_ray.supervisor import problems_here

# How long a buffer may be missed before its node has ended it and Ray has started it anew.
LEASE_S = 10.0
CALLS_MAX = 10_000


class Buffer(Belongings):
    """One buffer of a topology: several (queue, partition) logs under one data folder.

    A restarted buffer opens what its folder holds and serves it at once. A log whose data is
    missing (new node, lost disk, power cut) waits for `open`, which tells how far it should
    reach: until then its appends and reads wait, so that offsets can never start again at 0.
    """

    def __init__(
        self,
        topology: str,
        index: int,
        buffers: int,
        folder: str,
        files: Files | None = None,
        lease_s: float = LEASE_S,
    ) -> None:
        settle()
        self._watched = watched(Path(folder), f"buffer {index}", lease_s)
        start_journal(topology=topology, actor=f"buffer {index}")
        self.closed = False
        self._topology, self._index, self._buffers = topology, index, buffers
        self._incarnation = uuid.uuid4().hex
        place = Path(folder)
        self._library = patiently(lambda: LogLibrary(place, index, buffers, wall_ms(), files=files))
        self._fence = patiently(lambda: ReadFence(self._library.folder / "fence.jsonl", files))
        self._writer = Writer(lambda log: wake(self._waiting, (log.queue, log.partition)))
        self._waiting: Waiting = {}
        self._newest_wait: dict[str, Patience] = {}
        self._counts: Counter[str] = Counter()
        self._reader = Reader(self._library, self._fence, self._counts)
        self._tending = Tending(self._library, self._fence, self._writer, self._waiting)
        self._line = LineServer({"append": self.append, "fetch": self._fetch_little})

    async def line(self) -> str:
        """How processes of this node `connect` to call past Ray; '' where they cannot."""
        self._tending.begin()
        return await self._line.open()

    async def ping(self) -> BufferInfo:
        """Say who this is; another `incarnation` than before means: restarted, call `open`."""
        if self.closed:
            # Its coordinator died while it shut down; the next one goes on: Ray makes it anew.
            os._exit(1)
        self._tending.begin()
        node = ray.get_runtime_context().get_node_id() if ray.is_initialized() else ""
        return BufferInfo(
            self._topology,
            self._index,
            self._incarnation,
            os.getpid(),
            node,
            self._library.queues,
            problems_here(),
        )

    async def open(
        self, spec: QueueSpec, expected_ends: Mapping[PartitionId, Offset]
    ) -> dict[PartitionId, LogEnds]:
        """Make, or open, this buffer's logs of a queue; the coordinator calls it after each start.

        `expected_ends` is, per partition, the highest offset known to have been reached (the
        highest checkpoint of any group; a missing entry is 0). A log that ends below it has lost
        data: the gap is recorded, and its `on_loss` decides. Calling it again changes limits
        live, and nothing else. Partitions of other buffers are ignored.

        Raises UsageError when the queue exists here with more partitions than `spec` has.
        """
        self._tending.begin()
        await self._writer.do(lambda: self._library.open(spec, expected_ends, wall_ms()), ())
        self._watched.begin()
        for place in list(self._waiting):
            wake(self._waiting, place)
        return self._library.ends(spec.queue)

    async def append(
        self, queue: str, frames: Sequence[OutFrame], wait_ms: int = 0
    ) -> list[Appended | Refused]:
        """Append each frame to its partition, and answer one by one, in the order given.

        Acknowledged according to the queue's durability. Idempotent under (producer id, epoch,
        sequence) in the frame's header: a repeat gets the first answer. A frame that comes
        before its predecessor, or to a full partition, waits up to `wait_ms`; then SequenceGap or
        PartitionFull. Further refusals: ProducerFenced, SequenceConflict, MessageTooLarge,
        DiskFull, LogLost, LogCorrupted, NotFound (no such queue here).
        """
        self._tending.begin()
        self._counts["appends"] += 1
        places = {(queue, partition) for partition, _, _ in frames}
        answers: dict[int, Appended | Refused] = {}
        todo: Iterable[int] = range(len(frames))
        with Patience(self._waiting, places, wait_ms) as patience:
            while True:
                final = patience.over
                todo = await self._append_once(queue, frames, todo, answers)
                if final or not todo:
                    return [answers[at] for at in range(len(frames))]
                self._counts["appends_waiting"] += 1
                await patience.wait()
                self._counts["appends_waiting"] -= 1

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
                logs[at] = self._library.log(queue, partition)
            except PxrsError as error:
                answers[at] = Refused(partition, error)

        def run() -> None:
            now_ms = wall_ms()
            for at, log in logs.items():
                answers[at] = append_frame(log, self._library.producers, now_ms, *frames[at])

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
        begin = self._library.producers.begin
        found: Generation | None = await self._writer.do(
            partial(begin, queue, producer, number, token), ()
        )
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
        partition, also while waiting), OffsetOutOfRange, LogLost, LogCorrupted, NotFound.
        """
        self._tending.begin()
        self._counts["fetches"] += 1
        with Patience(self._waiting, {(queue, p) for p in positions}, wait_ms) as patience:
            older = self._newest_wait.pop(reader, None)
            if older is not None:
                older.end()
            if reader:
                self._newest_wait[reader] = patience
            try:
                look = positions
                while True:
                    final = patience.over
                    look = positions if final else look
                    found = await self._reader.fetch(queue, group, look, bytes_max, final)
                    if final or found:
                        return found
                    self._counts["fetches_waiting"] += 1
                    changed = await patience.wait()
                    self._counts["fetches_waiting"] -= 1
                    look = {partition: positions[partition] for _, partition in changed}
            finally:
                if self._newest_wait.get(reader) is patience:
                    del self._newest_wait[reader]

    async def _fetch_little(self, *arguments: Any) -> list[Fetched | Refused] | None:
        """As `fetch`; None for what Ray carries better."""
        found = await self.fetch(*arguments)
        return found if reply_bytes(found) <= REPLY_BYTES_MAX else None

    async def ends(self, queue: str) -> dict[PartitionId, LogEnds]:
        """Where each log of `queue` on this buffer stands."""
        return self._library.ends(queue)

    async def offset_at(
        self, queue: str, timestamp_ms: int, partitions: Sequence[PartitionId] | None = None
    ) -> dict[PartitionId, Offset]:
        """The first offset with a timestamp of at least `timestamp_ms`; the end when none has."""
        if partitions is None:
            partitions = list(self._library.ends(queue))
        logs = [self._library.log(queue, partition) for partition in partitions]
        return await self._reader.run(
            lambda: {log.partition: log.offset_at(timestamp_ms) for log in logs}
        )

    async def passed(
        self, queue: str, group: str, checkpoints: Mapping[PartitionId, Offset]
    ) -> None:
        """Note how far `group` has come: it needs nothing below. The first call registers it.

        Retention keeps what a registered group has not passed, so register a group (with its
        first checkpoints) before it reads. Checkpoints may also go down (a seek).
        """
        logs = {self._library.log(queue, p): offset for p, offset in checkpoints.items()}

        def run() -> None:
            for log, offset in logs.items():
                log.passed(group, offset)

        await self._writer.do(run, logs)

    async def truncate(
        self, queue: str, offsets: Mapping[PartitionId, Offset], force: bool = False
    ) -> dict[PartitionId, LogEnds | Refused]:
        """Drop messages below these offsets, in whole segments on disk.

        Refused with RetentionBlocked while a registered group has not passed them, unless
        `force`; with OffsetOutOfRange behind the end.
        """
        found: dict[PartitionId, LogEnds | Refused] = {}

        def run() -> None:
            for partition, offset in offsets.items():
                log: PartitionLog | None = None
                try:
                    log = self._library.log(queue, partition)
                    log.truncate_before(offset, wall_ms(), force=force)
                    found[partition] = log.ends()
                except PxrsError as error:
                    found[partition] = refused(partition, error, log)

        logs = [log for log in self._library.all_logs() if log.queue == queue]
        await self._writer.do(run, logs)
        return found

    async def accept_loss(self, queue: str, partition: PartitionId) -> LogEnds:
        """Let a log that stands still after a loss go on above its recorded gap."""
        log = self._library.log(queue, partition)
        await self._writer.do(log.accept_loss, (log,))
        return log.ends()

    async def timestamps(
        self, queue: str, offsets: Mapping[PartitionId, Offset]
    ) -> dict[PartitionId, int]:
        """The timestamp of the message at each offset; what is not there is left out."""

        def run() -> dict[PartitionId, int]:
            found = {}
            for partition, offset in offsets.items():
                try:
                    message = message_at(self._library.log(queue, partition), offset)
                    found[partition] = message.timestamp_ms
                except PxrsError:
                    continue
            return found

        return await self._reader.run(run)

    async def get_message(self, queue: str, partition: PartitionId, offset: Offset) -> Message:
        """Read one message, for inspection. Raises OffsetOutOfRange, NotFound, LogCorrupted."""
        log = self._library.log(queue, partition)
        return await self._reader.run(lambda: message_at(log, offset))

    async def stats(self) -> BufferStats:
        """What it did and holds, for `status`, metrics and benchmarks."""
        return stats_of(self._counts, self._library.all_logs(), self._writer)

    async def close(self) -> None:
        """Sync and close every log; once more is no harm. Kill the actor after it."""
        if self.closed:
            return
        self.closed = True
        await self._tending.close()
        self._watched.close()
        self._line.close()
        await self._writer.close()
        try:
            self._library.close()
        finally:
            self._fence.close()
            self._reader.close()


def make_buffer(
    topology: str, index: int, buffers: int, folder: str, lease_s: float = LEASE_S
) -> Any:
    """Start the buffer actor, or find it when it runs; answers its handle.

    Detached and restarted for ever; calls that a restart cut off are made again by Ray, which is
    safe for they are idempotent.
    """
    return (
        ray.remote(Buffer)
        .options(
            name=names.buffer(topology, index),
            namespace=names.NAMESPACE,
            lifetime="detached",
            get_if_exists=True,
            max_restarts=-1,
            max_task_retries=-1,
            max_concurrency=CALLS_MAX,
            num_cpus=0,
            scheduling_strategy="SPREAD",
            enable_task_events=False,
        )
        .remote(topology, index, buffers, folder, lease_s=lease_s)
    )
