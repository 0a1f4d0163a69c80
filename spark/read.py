"""`read_queue`: messages as a Spark DataFrame, from a running topology or from its data folder.

Rules of this file. What is read is decided when the DataFrame is made: the ends of the logs at
that moment, so that a DataFrame is the same each time it is computed. Spark's Python workers read
the logs themselves, each its share of offsets; nothing goes through the driver. Reading moves no
checkpoint, fences nobody, and holds back no retention.
"""

from __future__ import annotations

import datetime as dt
import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as all Spark code has it

from pxrs_ray.actors.buffer.blocking_buffer_client import BlockingBufferClient
from pxrs_ray.data.batch import ARROW_SCHEMA, Batch, batches
from pxrs_ray.data.log_limits import Durability
from pxrs_ray.data.protocol import Refused
from pxrs_ray.errors import NotFound, UsageError
from pxrs_ray.feed.read_plan import Share, ShareRead, live_shares
from pxrs_ray.files import Files
from pxrs_ray.log.log_opening import log_folder
from pxrs_ray.log.manifest import Manifest
from pxrs_ray.log.scan import Damage, scan
from pxrs_ray.log.segment import FILE_HEADER_BYTES, check_file_header, segment_paths
from pxrs_ray.model import Offset, PartitionId
from pxrs_ray.spark.python_workers import join_ray
from pxrs_ray.spark.queue_ref import Target

if TYPE_CHECKING:
    from pxrs_ray.actors.client.topology import Topology

READER = "_spark"
_SCHEMA = (
    "partition int, offset long, key binary, timestamp_ms long, payload binary, "
    "headers map<string,binary>, id string"
)

Bound = Mapping[PartitionId, Offset] | dt.datetime | None


def read_queue(
    spark: SparkSession,
    topology: Topology | str | Path,
    queue: str,
    start: Bound = None,
    end: Bound = None,
) -> DataFrame:
    """Columns partition, offset, key, timestamp, payload, headers, id: a row a message.

    topology: a running one, or the folder where a stopped one keeps its data (data_dir/name).
    start, end: from here up to, not including, there: an offset for some partitions, or a time
        (with a zone) for all, compared with each message's; by default all that there is now.

    Raises NotFound for a queue that there is not, UsageError for a folder without its messages.
    """
    if isinstance(topology, Path):
        shares = _shares_of_folder(topology, queue, start, end)
        return _frame(spark, shares, _from_files, _times(start, end))
    target = Target.of(topology, queue)
    logs = BlockingBufferClient(target.topology, target.buffers)
    ends = logs.ends(target.queue)
    first = {p: at.start_offset for p, at in ends.items()}
    last = {p: at.end_offset for p, at in ends.items()}
    if isinstance(start, dt.datetime):
        # Whatever lies before these offsets is older; behind them, time need not rise.
        first.update(logs.offsets_at(target.queue, _milliseconds(start)))
    elif start is not None:
        first.update(_known(start, first, queue))
    if isinstance(end, Mapping):
        last.update(_known(end, last, queue))
    shares = live_shares(ends, first, last)

    def live(share: Share) -> Iterator[Batch]:
        yield from _from_buffers(target, share)

    return _frame(spark, shares, live, _times(start, end))


def _frame(
    spark: SparkSession, shares: list[Share], read: Any, times: tuple[int | None, int | None]
) -> DataFrame:
    def run(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # Spark gives up a Python worker that leaves input unread: the next one would start anew.
        deque(numbers, maxlen=0)
        context = TaskContext.get()
        assert context is not None
        if not shares:
            return
        share = shares[context.partitionId()]
        for batch in read(share):
            if mine := share.part_of(batch.base_offset, len(batch)):
                yield batch.slice(mine.start, mine.stop).to_arrow().cast(ARROW_SCHEMA)

    count = max(1, len(shares))
    frame = spark.range(0, count, 1, count).mapInArrow(run, _SCHEMA)
    if times[0] is not None:
        frame = frame.where(F.col("timestamp_ms") >= times[0])
    if times[1] is not None:
        frame = frame.where(F.col("timestamp_ms") < times[1])
    return frame.select(
        "partition",
        "offset",
        "key",
        F.timestamp_millis("timestamp_ms").alias("timestamp"),
        "payload",
        "headers",
        "id",
    )


def _from_buffers(target: Target, share: Share) -> Iterator[Batch]:
    join_ray(target.address)
    logs = BlockingBufferClient(target.topology, target.buffers)
    read = ShareRead(share)
    while (at := read.next()) is not None:
        found = logs.fetch(target.queue, READER, share.partition, at)
        if isinstance(found, Refused):
            raise found.error
        if found is not None:
            yield from batches(found, at)
        read.fetched(None if found is None else found.next_offset)


def _from_files(share: Share) -> Iterator[Batch]:
    """The messages of one segment file. A torn tail ends the newest file, and nothing else may."""
    files, path = Files(), Path(share.path)
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size
        head = check_file_header(files.read(fd, FILE_HEADER_BYTES, 0), path)
        for found in scan(files, fd, path, FILE_HEADER_BYTES, size, head.base_offset):
            if isinstance(found, Damage):
                if share.last:
                    return
                raise found.error()
            header, body, _ = found
            if header.base_offset >= share.end:
                return
            if header.end_offset > share.start:
                yield Batch.from_frame(share.partition, header, body)
    finally:
        os.close(fd)


def _shares_of_folder(folder: Path, queue: str, start: Bound, end: Bound) -> list[Share]:
    folder = folder.expanduser().resolve()
    logs = sorted(log_folder(folder, queue, 0).parent.glob("p" + "[0-9]" * 5))
    if not logs:
        raise NotFound(
            f"{folder} holds no queue {queue!r}: give the topology's own folder, data_dir/name; "
            f"it holds {', '.join(_queues(folder)) or 'none'}"
        )
    shares = []
    for log in logs:
        manifest = Manifest.read(Files(), log)
        if manifest is None:
            continue
        if manifest.durability is Durability.MEMORY:
            raise UsageError(
                f"queue {queue!r} keeps its messages in memory only (durability = 'memory'): they "
                "can be read while the topology runs"
            )
        partition, paths = manifest.partition, segment_paths(log)
        first = _given(start, partition, manifest.start_offset)
        begin = max(first, manifest.start_offset)
        stop = _given(end, partition, 1 << 62)
        shares += [
            Share(partition, begin, stop, str(path), last=path == paths[-1]) for path in paths
        ]
    for bound in (start, end):
        if isinstance(bound, Mapping):
            _known(bound, {share.partition: 0 for share in shares}, queue)
    return shares


def _given(bound: Bound, partition: PartitionId, otherwise: Offset) -> Offset:
    return bound.get(partition, otherwise) if isinstance(bound, Mapping) else otherwise


def _queues(folder: Path) -> list[str]:
    found = {path.parent.name for path in folder.glob("*/p*") if path.is_dir()}
    return sorted(name for name in found if name[0] not in "._")


def _known(
    bound: Mapping[PartitionId, Offset], there: Mapping[PartitionId, Offset], queue: str
) -> Mapping[PartitionId, Offset]:
    unknown = sorted(set(bound) - set(there))
    if unknown:
        raise UsageError(
            f"queue {queue!r} has no partitions {unknown}: they are {min(there)} to {max(there)}"
        )
    return bound


def _times(start: Bound, end: Bound) -> tuple[int | None, int | None]:
    first, last = (
        _milliseconds(bound) if isinstance(bound, dt.datetime) else None for bound in (start, end)
    )
    return first, last


def _milliseconds(moment: dt.datetime) -> int:
    if moment.tzinfo is None:
        raise UsageError(f"{moment} has no time zone: give one, for example tzinfo=UTC")
    return round(moment.timestamp() * 1_000)
