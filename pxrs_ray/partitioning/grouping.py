"""Rows grouped by partition, and how evenly a sample of keys spreads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pxrs_ray.errors import UsageError
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import PartitionId, Strategy
from pxrs_ray.partitioning.hashes import Key, key_bytes
from pxrs_ray.partitioning.key_columns import Ints
from pxrs_ray.partitioning.partitioner import Partitioner


@dataclass(frozen=True, slots=True)
class HashQuality:
    """How a sample of keys spreads over the partitions.

    `skew` is the fullest partition against the mean: 1.0 is even. `chi_square` adds up the squared
    deviations from the mean, over the mean; even spreading gives about `partitions` - 1, and
    `sigmas` says how many standard deviations above that it is (over 4: not by chance).
    `distinct_keys` shows whether a few hot keys are to blame rather than the hash.
    """

    counts: tuple[int, ...]
    keys: int
    distinct_keys: int
    skew: float
    chi_square: float
    sigmas: float
    fullest: PartitionId
    empty: tuple[PartitionId, ...]


def group_by_partition(
    column: Any, partitioner: Partitioner, scopes: Any = None
) -> tuple[npt.NDArray[np.intp], Ints]:
    """The rows of `column` grouped by partition: `(order, bounds)`.

    Partition p gets the rows `order[bounds[p] : bounds[p + 1]]`, in the order they had; with
    `broadcast` each partition gets all of them.
    """
    count = partitioner.partitions
    if partitioner.strategy == Strategy.BROADCAST:
        rows = len(column)
        return np.tile(np.arange(rows), count), np.arange(count + 1, dtype=np.int64) * rows
    partitions = partitioner.partition_column(column, scopes)
    bounds = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(partitions, minlength=count), out=bounds[1:])
    # numpy sorts integers of 8 and 16 bits by radix, and stable keeps the order of the rows.
    return np.argsort(partitions, kind="stable"), bounds


def quality(sample: Sequence[Key], partitioner: Partitioner) -> HashQuality:
    """How evenly `partitioner` spreads `sample`. Raises UsageError when it is empty."""
    if not sample:
        raise UsageError("the sample holds no key")
    column = pa.array([key_bytes(key) for key in sample], pa.large_binary())
    _, bounds = group_by_partition(column, partitioner)
    counts = np.diff(bounds)
    mean = counts.mean()
    chi_square = float(((counts - mean) ** 2).sum() / mean)
    free = max(partitioner.partitions - 1, 1)
    return HashQuality(
        counts=tuple(counts.tolist()),
        keys=len(sample),
        distinct_keys=len(column.unique()),
        skew=float(counts.max() / mean),
        chi_square=chi_square,
        sigmas=(chi_square - free) / (2 * free) ** 0.5,
        fullest=int(counts.argmax()),
        empty=tuple(np.flatnonzero(counts == 0).tolist()),
    )
