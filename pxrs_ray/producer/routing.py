"""Routing: which messages of a batch go to which partition, and columns in that order.

Rules of this file. Pure, and stable: messages of one partition keep the order they had, so the
order per key is kept. Large inputs are cut into chunks first, because Ray carries batches of one to
sixteen megabytes best.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from pxrs_ray.data.batch import Batch
from pxrs_ray.data.plain_rows import PlainRows
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import PartitionId, Strategy
from pxrs_ray.partitioning import Partitioner, group_by_partition

Sizes = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class Routed:
    """A batch in order of partitions: `parts` by partition; `order` says where each came from.

    `parts` leaves out partitions without messages. Message i of the parts, counted over all of
    them in order, was message `order[i]` of the batch; `order` is None when nothing moved.
    """

    parts: tuple[tuple[PartitionId, Batch], ...]
    order: np.ndarray[Any, np.dtype[np.intp]] | None


def route(batch: Batch, partitioner: Partitioner, scopes: Any = None) -> Routed:
    """Give each message of `batch` to its partition."""
    rows = batch.plain_rows
    if rows is None or scopes is not None or partitioner.strategy == Strategy.BROADCAST:
        return route_columns(batch, partitioner, scopes)
    if len(rows.keys) == 1:
        return Routed(((partitioner.partition(rows.keys[0]), batch),), None)
    return _route_rows(batch, rows, partitioner)


def _route_rows(batch: Batch, rows: PlainRows, partitioner: Partitioner) -> Routed:
    places: dict[PartitionId, list[int]] = {}
    for at, key in enumerate(rows.keys):
        places.setdefault(partitioner.partition(key), []).append(at)
    parts, order = [], []
    for partition in sorted(places):
        mine = places[partition]
        order += mine
        theirs = PlainRows([rows.keys[at] for at in mine], [rows.payloads[at] for at in mine])
        part = Batch(-1, 0, batch.flags, theirs, batch.timestamp_fixed_ms)
        parts.append((partition, part))
    return Routed(tuple(parts), np.array(order, np.intp))


def route_columns(batch: Batch, partitioner: Partitioner, scopes: Any = None) -> Routed:
    """As `route`, with the columns of each part always copied anew.

    So a frame depends on its messages alone, also when a batch has only one: a feed that
    is run again must make the same bytes.
    """
    order, bounds = group_by_partition(batch.keys, partitioner, scopes)
    import pyarrow.compute as pc  # here: only who sends columns needs it

    # Arrow's own pool gives large pieces back to the system each time, malloc keeps them: to have
    # new pages cleared takes longer than what is written into them.
    pool = pa.system_memory_pool()
    columns = pc.take(batch.columns, pa.array(order), boundscheck=False, memory_pool=pool)
    sorted_batch = Batch(-1, 0, batch.flags, columns, batch.timestamp_fixed_ms)
    edges = bounds.tolist()
    parts = [
        (partition, sorted_batch.slice(start, end))
        for partition, (start, end) in enumerate(pairwise(edges))
        if end > start
    ]
    return Routed(tuple(parts), order)


def chunks(batch: Batch, sizes: Sizes, records_max: int, bytes_max: int) -> Iterator[Batch]:
    """Cut a batch into pieces of at most `records_max` messages.

    And of at most `bytes_max` bytes, as `sizes` has them of each message, where a piece is more
    than one message.
    """
    ends = np.cumsum(sizes)
    start, before = 0, 0
    while start < len(batch):
        fits = int(np.searchsorted(ends, before + bytes_max, side="right"))
        end = min(max(fits, start + 1), start + records_max)
        yield batch.slice(start, end)
        start = min(end, len(batch))
        before = int(ends[start - 1])
