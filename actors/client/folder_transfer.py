"""Copies messages and checkpoints between a folder queue and a topology, in both directions.

Rules of this file. Partition n of the folder is partition n of the queue, and message k of it has
the offset k - 1. No hash is computed, so order and ownership of every message stay. An import
continues at the end of the log: it can be stopped anywhere and started again, and adds nothing
twice. A group's last processed offset k is the checkpoint k: the next one to process. A group that
is further than the folder says stays where it is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from pxrs_ray.actors.buffer.partition_client import PartitionClient
from pxrs_ray.actors.client.topology import Topology
from pxrs_ray.data.batch import Batch
from pxrs_ray.errors import UsageError
from pxrs_ray.interop.folder_queue import FolderMessage, FolderQueue, chunks
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import PartitionId

CHUNK_RECORDS = 1_000


@dataclass(frozen=True, slots=True)
class Transferred:
    """What an import or export did."""

    queue: str
    partitions: int
    messages: int
    groups: tuple[str, ...]


def import_folder(topology: Topology, folder: Path, queue: str) -> Transferred:
    """Bring a folder's messages into `queue`, and the checkpoints of the groups that it names.

    The queue must have as many partitions, and nobody else may write to it meanwhile. Groups that
    the topology does not have are made. Raises UsageError, NotFound; what was imported stays.
    """
    source = FolderQueue(folder)
    spec, _, buffers = topology.queue_spec(queue)
    numbers = source.partitions()
    if len(numbers) != spec.partitions:
        raise UsageError(
            f"{source.queue} has {len(numbers)} partitions and queue {queue!r} {spec.partitions}: "
            "the numbers of the partitions are kept, so there must be as many"
        )
    count = 0
    for partition in numbers:
        messages = source.messages(partition)
        if messages and messages[0].offset != 1:
            raise UsageError(
                f"partition {partition} of {source.queue} begins at {messages[0].offset}: offsets "
                "are kept, so the messages from 1 on must be there"
            )
        client = PartitionClient(topology.name, buffers, spec.queue, partition)
        count += _import_partition(client, messages)
    for name in source.groups():
        group = topology.group(name, queue=queue)
        stands = {row.partition: row.checkpoint for row in group.status().partitions}
        for partition, offset in source.committed(name).items():
            if offset > stands[partition]:
                group.seek(offset, [partition])
    return Transferred(queue, len(numbers), count, tuple(source.groups()))


def _import_partition(client: PartitionClient, messages: list[FolderMessage]) -> int:
    identity = f"folder/{client.queue}/{client.partition}".encode()
    producer = hashlib.blake2b(identity, digest_size=16).digest()
    begin = client.ends().end_offset
    for chunk in chunks(messages[begin:], CHUNK_RECORDS):
        base = chunk[0].offset - 1
        batch = Batch.of(
            [None] * len(chunk),
            [message.payload() for message in chunk],
            timestamp_ms=0,
            timestamps_ms=[message.timestamp_ms() for message in chunk],
        )
        # An epoch a chunk: a repeat of it that comes late is refused or answered as the first.
        if client.append(batch, producer, base, 0) != base:
            raise UsageError(
                f"partition {client.partition} of {client.queue}: somebody else writes to it, so "
                "the offsets of the folder cannot be kept"
            )
    return max(0, len(messages) - begin)


def export_folder(topology: Topology, queue: str, folder: Path) -> Transferred:
    """Write a queue's messages into a folder, and the checkpoints of all groups that read it.

    Files that are there already stay. Keys and headers are no part of that form: they are left
    out. What retention has dropped is not there; the names of the files still tell the offsets.
    """
    target = FolderQueue(folder)
    spec, config, buffers = topology.queue_spec(queue)
    count = 0
    for partition in range(spec.partitions):
        client = PartitionClient(topology.name, buffers, spec.queue, partition)
        count += target.write(partition, _messages(client, target.next_offset(partition) - 1))
    groups = [name for name, group in config.groups.items() if group.queue == queue]
    for name in groups:
        rows = topology.group(name).status().partitions
        target.commit(name, [(row.partition, row.checkpoint) for row in rows])
    return Transferred(queue, spec.partitions, count, tuple(groups))


def _messages(client: PartitionClient, offset: PartitionId) -> Iterator[tuple[int, bytes, int]]:
    for batch in client.read(offset):
        for message in batch:
            yield message.offset + 1, message.payload, message.timestamp_ms
