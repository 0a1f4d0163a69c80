"""Keys to partitions and partitions to members, on one core."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pyarrow as pa

from pxrs_ray.group.assignors import assign
from pxrs_ray.model import Member
from pxrs_ray.partitioning import Partitioner, group_by_partition
from tests.benchmarks.harness import figure

ROWS = 1_000_000
PARTITIONS = 16


@contextmanager
def fixed_keys() -> Iterator[Any]:
    """A column of 12-byte keys."""
    yield pa.array([b"%012d" % i for i in range(ROWS)], pa.binary())


@contextmanager
def mixed_keys() -> Iterator[Any]:
    """A column of account ids of 6 to 25 bytes, in no order."""
    random = Random(1)
    yield pa.array(
        [b"acct-%d" % random.randrange(10 ** random.randint(1, 20)) for _ in range(ROWS)]
    )


def keys_per_s(column: Any, partitioner: Partitioner) -> float:
    """The rate of hashing and grouping, over several rounds."""
    times = 5
    began = time.perf_counter()
    for _ in range(times):
        order, _ = group_by_partition(column, partitioner)
        assert len(order) == ROWS
    return times * ROWS / (time.perf_counter() - began)


@figure("core.hash_group_keys_per_s", unit="keys/s", setup=fixed_keys)
def hash_group_fixed(column: Any) -> float:
    return keys_per_s(column, Partitioner(PARTITIONS))


@figure("core.hash_group_jump_256_keys_per_s", unit="keys/s", setup=fixed_keys)
def hash_group_jump(column: Any) -> float:
    return keys_per_s(column, Partitioner(256, "jump"))


@figure("core.hash_group_mixed_keys_per_s", unit="keys/s", setup=mixed_keys)
def hash_group_mixed(column: Any) -> float:
    return keys_per_s(column, Partitioner(PARTITIONS))


@figure("core.assign_4096x512_ms", unit="ms")
def assign_ms() -> float:
    """One member leaves and comes back: two sticky plans of 4,096 partitions for 512 members."""
    members = [Member(f"consumer-{i:04}", 1) for i in range(512)]
    full = assign("sticky", members, 4_096, {})
    times = 10
    began = time.perf_counter()
    for _ in range(times):
        less = assign("sticky", members[1:], 4_096, full)
        assert len(assign("sticky", members, 4_096, less)) == 4_096
    return (time.perf_counter() - began) * 1_000 / times / 2
