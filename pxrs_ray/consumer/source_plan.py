"""`SourcePlan`: what a member reads next of an external queue, and who gets what came. Pure.

Rules of this file. The source is read from the lowest position of any partition that has room. Each
record belongs to the virtual partition that its key hashes to, for every reader alike; it is given
on if we hold that partition and the record is not behind its position. What lies between belongs
to others, or to nobody, and is passed. Nothing is read, nor handed on, when the lease is over. A
source that fails is opened anew, with growing pauses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pxrs_ray.backoff import Backoff
from pxrs_ray.consumer.session import ConsumerSession
from pxrs_ray.data.batch import Batch
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Epoch, Offset, PartitionId
from pxrs_ray.partitioning import PartitioningSpec
from pxrs_ray.sources.soundness import runs
from pxrs_ray.sources.source import SourceRecord

RECORDS_MAX = 1_000
WAIT_MS = 200
RETRY_FIRST_S = 0.1
RETRY_MOST_S = 5.0


@dataclass(frozen=True, slots=True)
class SourceRead:
    """Read the source from `lowest` on: these partitions wait for what is behind."""

    positions: Mapping[PartitionId, tuple[Epoch, Offset]]
    lowest: Offset


@dataclass(frozen=True, slots=True)
class HandOn:
    """Messages for one partition, or the offset to which it has none (`batch` is None)."""

    partition: PartitionId
    epoch: Epoch
    batch: Batch | None
    size_bytes: int
    to: Offset


class SourcePlan:
    """The reading of one member whose queue is external."""

    def __init__(self, spread: PartitioningSpec) -> None:
        self._partitioner = spread.partitioner()
        self._backoff = Backoff(RETRY_FIRST_S, RETRY_MOST_S)

    def next(self, session: ConsumerSession, bytes_max: int, *, is_over: bool) -> SourceRead | None:
        """What to read; None is nothing, until something changes. `is_over`: the lease is."""
        positions = session.to_fetch(2 * bytes_max)
        if not positions or is_over:
            return None
        return SourceRead(positions, min(offset for _, offset in positions.values()))

    def failed(self) -> float:
        """The source has failed: for how long to leave it before it is opened anew."""
        return self._backoff.failed()

    def came(
        self,
        read: SourceRead,
        records: Sequence[SourceRecord],
        session: ConsumerSession,
        *,
        is_over: bool,
    ) -> Iterator[HandOn]:
        """What was read, partition by partition, each in order."""
        self._backoff.worked()
        if not records or is_over:
            return
        split: dict[PartitionId, list[SourceRecord]] = {}
        for record in records:
            # Without a key it is the offset that decides: every reader must decide the same.
            key = b"%d" % record.offset if record.key is None else record.key
            split.setdefault(self._partitioner.partition(key), []).append(record)
        end = records[-1].offset + 1
        for partition, (epoch, offset) in read.positions.items():
            mine = [record for record in split.get(partition, ()) if record.offset >= offset]
            yield from _of_one(session, partition, epoch, offset, mine, end)


def _of_one(
    session: ConsumerSession,
    partition: PartitionId,
    epoch: Epoch,
    at: Offset,
    records: Sequence[SourceRecord],
    end: Offset,
) -> Iterator[HandOn]:
    for run in runs(records):
        first = run[0].offset
        if first > at and session.skip(partition, epoch, at, first):
            yield HandOn(partition, epoch, None, 0, first)
        at = max(at, first)
        if not session.fetched(partition, epoch, at, len(run)):
            return
        batch = _batch(partition, run)
        at = batch.end_offset
        size_bytes = sum(len(record.payload) for record in run)
        yield HandOn(partition, epoch, batch, size_bytes, at)
    if end > at and session.skip(partition, epoch, at, end):
        yield HandOn(partition, epoch, None, 0, end)


def _batch(partition: PartitionId, records: Sequence[SourceRecord]) -> Batch:
    batch = Batch.of(
        [record.key for record in records],
        [record.payload for record in records],
        timestamp_ms=0,
        timestamps_ms=[record.timestamp_ms for record in records],
        headers=[record.headers for record in records],
    )
    return Batch(partition, records[0].offset, batch.flags, batch.columns, 0)
