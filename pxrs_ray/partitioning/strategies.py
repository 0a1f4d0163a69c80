"""From hashes to partitions: the arithmetic of `modulo` and of jump consistent hashing.

Rules of this file: each function has a scalar and a numpy form that agree on every input.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pxrs_ray.partitioning.key_columns import Ints
from pxrs_ray.partitioning.scalar_hashes import MASK64

JUMP_FACTOR = 2862933555777941757


def modulo(hashed: int, size: int) -> int:
    """The floor modulo of the signed hash: Python's `%`, Spark's `pmod`; never negative."""
    return hashed % size


def modulo_many(hashes: Ints, size: int | Ints) -> Ints:
    """`modulo` of every hash; `size` is one for all, or one for each."""
    if isinstance(size, int):
        if size & (size - 1) == 0:
            return hashes & np.int64(size - 1)
        # numpy divides by a constant with vector instructions, but does not take remainders so.
        return hashes - hashes // np.int64(size) * np.int64(size)
    return np.mod(hashes, size)


def jump(hashed: int, size: int) -> int:
    """Jump consistent hashing (Lamping and Veach) of the unsigned reading of the hash.

    From n to n + 1 partitions it moves 1 / (n + 1) of the keys, all of them to the new one.
    """
    key = hashed & MASK64
    bucket, candidate = -1, 0
    while candidate < size:
        bucket = candidate
        key = (key * JUMP_FACTOR + 1) & MASK64
        candidate = int((bucket + 1) * (float(1 << 31) / float((key >> 33) + 1)))
    return bucket


def jump_many(hashes: Ints, size: int | Ints) -> Ints:
    """`jump` of every hash; those that have arrived leave the round."""
    found = np.zeros(len(hashes), np.int64)
    waiting = np.arange(len(hashes))
    key = hashes.astype(np.int64).view(np.uint64)
    bucket = np.zeros(len(hashes), np.int64)
    limit: Any = size
    while len(waiting):
        found[waiting] = bucket
        key = key * np.uint64(JUMP_FACTOR) + np.uint64(1)
        below = (key >> np.uint64(33)).astype(np.int64) + 1
        candidate = (bucket + 1) * (float(1 << 31) / below.astype(np.float64))
        # Compared as floats: candidates can be larger than any integer type holds usefully.
        on = candidate < limit
        waiting, key = waiting[on], key[on]
        bucket = candidate[on].astype(np.int64)
        limit = limit if isinstance(limit, int) else limit[on]
    return found
