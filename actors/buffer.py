"""`Buffer`: the async actor that hosts partition logs. A thin shell around `pxrs_ray.log`.

Rules of this file. Partition p of every queue lives on buffer p % buffers. Nothing here decides
about order, duplicates or fences: the logs and `ReadFence` do. Calls of an async actor come in
any order and may be repeated by Ray; every method is idempotent, or harmless when repeated. A
partition's trouble is a `Refused` in the reply; an exception of the call means that nothing at
all was done. Every wait has a deadline given by the caller.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
from pxrs_ray.model import Epoch, Message, Offset, PartitionId


class Buffer:
    """One buffer of a topology: several (queue, partition) logs under one data folder.

    A restarted buffer opens what its folder holds and serves it at once. A log whose data is
    missing (new node, lost disk, power cut) waits for `open`, which tells how far it should
    reach: until then its appends and reads wait, so that offsets can never start again at 0.
    """

    def __init__(self, topology: str, index: int, buffers: int, folder: str) -> None:
        raise NotImplementedError

    async def ping(self) -> BufferInfo:
        """Say who this is; another `incarnation` than before means: restarted, call `open`."""
        raise NotImplementedError

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
        raise NotImplementedError

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
        raise NotImplementedError

    async def fetch(
        self,
        queue: str,
        group: str,
        positions: Mapping[PartitionId, Position],
        bytes_max: int = 8 << 20,
        wait_ms: int = 1_000,
    ) -> list[Fetched | Refused]:
        """Read several partitions at once; wait up to `wait_ms` for the first message.

        `positions` gives per partition the reader's epoch and the offset to read from; the order
        of the mapping is the order of service. Only partitions with messages or a refusal are in
        the reply, so a time-out is an empty list. At least one frame a partition is given until
        `bytes_max` is reached. An append wakes waiting readers; nothing polls. Refusals: Fenced
        (an epoch below the highest seen of that group and partition, also while waiting),
        OffsetOutOfRange, LogLost, LogCorrupted, NotFound.
        """
        raise NotImplementedError

    async def fence(self, queue: str, group: str, epochs: Mapping[PartitionId, Epoch]) -> None:
        """From now on refuse readers of `group` below these epochs, waiting ones included."""
        raise NotImplementedError

    async def ends(self, queue: str) -> dict[PartitionId, LogEnds]:
        """Where each log of `queue` on this buffer stands."""
        raise NotImplementedError

    async def offset_at(
        self, queue: str, timestamp_ms: int, partitions: Sequence[PartitionId] | None = None
    ) -> dict[PartitionId, Offset]:
        """The first offset with a timestamp of at least `timestamp_ms`; the end when none has."""
        raise NotImplementedError

    async def passed(
        self, queue: str, group: str, checkpoints: Mapping[PartitionId, Offset]
    ) -> None:
        """Note how far `group` has come: it needs nothing below. The first call registers it.

        Retention keeps what a registered group has not passed, so register a group (with its
        first checkpoints) before it reads. Checkpoints may also go down (a seek).
        """
        raise NotImplementedError

    async def drop_group(self, queue: str, group: str) -> None:
        """Forget a group: retention no longer waits for it, and its fences are gone."""
        raise NotImplementedError

    async def truncate(
        self, queue: str, offsets: Mapping[PartitionId, Offset], force: bool = False
    ) -> dict[PartitionId, LogEnds | Refused]:
        """Drop messages below these offsets, in whole segments on disk.

        Refused with RetentionBlocked while a registered group has not passed them, unless
        `force`; with OffsetOutOfRange behind the end.
        """
        raise NotImplementedError

    async def accept_loss(self, queue: str, partition: PartitionId) -> LogEnds:
        """Let a log that stands still after a loss go on above its recorded gap."""
        raise NotImplementedError

    async def get_message(self, queue: str, partition: PartitionId, offset: Offset) -> Message:
        """Read one message, for inspection. Raises OffsetOutOfRange, NotFound, LogCorrupted."""
        raise NotImplementedError

    async def drop_queue(self, queue: str) -> None:
        """Delete every log of `queue` on this buffer; an absent queue is success."""
        raise NotImplementedError

    async def stats(self) -> BufferStats:
        """What it did and holds, for `status`, metrics and benchmarks."""
        raise NotImplementedError

    async def close(self) -> None:
        """Sync and close every log; afterwards every call is refused. Kill the actor after it."""
        raise NotImplementedError
