"""`LocalQueue`: one queue's logs, its producer, and the fence that stale readers meet.

Rules of this file: frames go through the real accumulator, sender and partition logs. A log is
made when its partition is first looked at; it keeps its messages in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pxrs_ray.clock import Clock
from pxrs_ray.config import PxrsConfig
from pxrs_ray.config.limits import producer_limits
from pxrs_ray.data.batch import Batch, Headers, batches
from pxrs_ray.data.frame import producer_id
from pxrs_ray.data.log_limits import Durability
from pxrs_ray.data.message_form import checked_headers, checked_payload
from pxrs_ray.data.protocol import Appended, Fetched, Refused
from pxrs_ray.data.reply import Reply, refuse_replies
from pxrs_ray.errors import PxrsError, SequenceConflict, SequenceGap
from pxrs_ray.files import Files
from pxrs_ray.log.partition_log import PartitionLog
from pxrs_ray.log.read_fence import ReadFence
from pxrs_ray.model import Epoch, Message, Offset, PartitionId
from pxrs_ray.partitioning import Partitioner
from pxrs_ray.producer.accumulator import Accumulator
from pxrs_ray.producer.sender import Sender


class UnsyncedFiles(Files):
    """Files that need not survive a power cut."""

    def sync(self, fd: int) -> None:
        """Nothing: a test's process is all that reads them."""

    def sync_folder(self, folder: Path) -> None:
        """Nothing, for the same reason."""


class LocalQueue:
    """See the rules at the head of this file."""

    def __init__(self, name: str, topology: PxrsConfig, folder: Path, clock: Clock) -> None:
        self.name = name
        self.config = config = topology.resolved_queue(name)
        self.partitions = config.partitions
        spread = config.spread()
        self.partitioner: Partitioner = spread.partitioner()
        self._limits = replace(config.log_limits(), durability=Durability.MEMORY)
        self._folder = folder
        self._clock = clock
        self._files = UnsyncedFiles()
        self._logs: dict[PartitionId, PartitionLog] = {}
        self._fence = ReadFence(folder / "fence.jsonl", self._files)
        limits = producer_limits(topology, config)
        self._sender = Sender(1, limits.sender)
        identity = producer_id(f"test topology, {name}")
        self.replies: dict[str, Reply] = {}
        self.accumulator = Accumulator(self.partitioner, self._sender, limits, identity)

    def log(self, partition: PartitionId) -> PartitionLog:
        """The log of a partition, made when it is first asked for."""
        found = self._logs.get(partition)
        if found is None:
            found = self._logs[partition] = PartitionLog.open(
                self._folder / str(partition),
                self.name,
                partition,
                self._limits,
                now_ms=self._clock.now().wall_ms,
                files=self._files,
            )
            found.confirm(0, self._clock.now().wall_ms)
        return found

    def flush(self) -> None:
        """Append what was sent; receipts know their places afterwards."""
        now_ms = self._clock.now().monotonic_ms
        self.accumulator.close_open(now_ms)
        self._sender.expire(now_ms)
        for call in list(self.accumulator.calls(now_ms)):
            answers = [self._answer(f.partition, f.header, f.body) for f in call.frames]
            self._sender.answered(call, answers, now_ms)

    def next_look_ms(self) -> int | None:
        """When a refused append is tried again, or given up."""
        return self._sender.next_look_ms()

    def _answer(self, partition: PartitionId, header: bytes, body: Any) -> Appended | Refused:
        log = self.log(partition)
        try:
            return log.append(header, body, self._clock.now().wall_ms)
        except SequenceGap as error:
            return Refused(partition, error, log.expected_sequence(header), heard=log.heard(header))
        except PxrsError as error:
            return Refused(partition, error)

    def append_once(self, partition: PartitionId, batch: Batch, identity: bytes) -> None:
        """Append under an identity that appends nothing else: a repeat adds nothing."""
        header, body = batch.to_wire(identity, 0, 0)
        try:
            self.log(partition).append(header, body, self._clock.now().wall_ms)
        except SequenceConflict:
            return  # it is there, from another time

    def reply(self, message_id: str, payload: bytes | str, headers: Headers) -> None:
        """Keep a handler's reply; the first one to a message counts."""
        if not self.config.replies:
            raise refuse_replies(self.name)
        own = tuple(checked_headers(headers)[0]) if headers else ()
        reply = Reply(checked_payload(payload), own, self._clock.now().wall_ms)
        self.replies.setdefault(message_id, reply)

    def end(self, partition: PartitionId) -> Offset:
        """The offset that the next message gets."""
        found = self._logs.get(partition)
        return 0 if found is None else found.end_offset

    def fence(self, group: str, epochs: Mapping[PartitionId, Epoch]) -> None:
        """Refuse readers below these epochs from now on."""
        self._fence.fence(self.name, group, epochs)

    def passed(self, group: str, partition: PartitionId, checkpoint: Offset) -> None:
        """The group will not read below `checkpoint` again."""
        if partition in self._logs:
            self._logs[partition].passed(group, checkpoint)

    def read(
        self, group: str, partition: PartitionId, epoch: Epoch, offset: Offset, bytes_max: int
    ) -> tuple[list[Batch], Offset]:
        """What lies from `offset` on, and where to read on. Raises Fenced."""
        self._fence.check(self.name, group, partition, epoch)
        if offset >= self.end(partition):
            return [], offset
        log = self.log(partition)
        run = log.read(max(offset, log.start_offset), bytes_max=bytes_max)
        ends = (log.start_offset, log.end_offset)
        fetched = Fetched(partition, tuple(run.chunks), run.next_offset, *ends)
        return batches(fetched, offset), run.next_offset

    def messages(self) -> Iterator[Message]:
        """Everything that is in the queue now, partition by partition."""
        for partition in sorted(self._logs):
            log = self._logs[partition]
            offset = log.start_offset
            while offset < log.end_offset:
                run = log.read(offset)
                ends = (log.start_offset, log.end_offset)
                fetched = Fetched(partition, tuple(run.chunks), run.next_offset, *ends)
                for batch in batches(fetched, offset):
                    yield from batch
                offset = run.next_offset

    def close(self) -> None:
        """Give files back."""
        self._fence.close()
        for log in self._logs.values():
            log.abandon()
