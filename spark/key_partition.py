"""The partition of a key as a Spark column: the same number that every PXRS producer computes.

Rules of this file: what Spark's own functions can do runs in the JVM (the hashes xxh64 with seed 42
and crc32, under modulo and jump); the rest is a vectorised Python function. A null key has no
partition of its own, and the column is null there: producers and feeds give such messages the
partitions in turn, so that they spread evenly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as all Spark code has it
from pyspark.sql.pandas.functions import pandas_udf

from pxrs_ray.errors import UsageError
from pxrs_ray.model import Strategy
from pxrs_ray.partitioning import SEED, Partitioner, PartitioningSpec
from pxrs_ray.partitioning.strategies import JUMP_FACTOR
from pxrs_ray.spark.queue_ref import Target

if TYPE_CHECKING:
    from pxrs_ray.actors.client.topology import Topology

# Jump hashing takes at most one step a partition, and on average ln(n): above 60 steps, with the
# most partitions that there can be, comes one key in 10**22.
JUMP_STEPS_MAX = 60
ROW_BITS = (1 << 33) - 1


def partition_column(
    key: str | Column,
    where: Topology | str | int,
    queue: str | None = None,
    *,
    strategy: str = Strategy.MODULO,
    hash_name: str = "xxh64",
    seed: int = SEED,
    scope: str | Column | None = None,
) -> Column:
    """The partition (an int) of each row's key: of `queue` in a topology, or of `where` in all.

    Null for a null key; with `round_robin`, what a feed of this very DataFrame would do.

    `key` is a string or binary column; `scope` the column of tenants or labels, where the
    strategy wants one. With a topology, or the name of one that runs, strategy, hash and seed are
    the queue's. Raises UsageError for names that there are not, and for `broadcast`, which has no
    single partition; NotFound for a topology that does not run.
    """
    if not isinstance(where, int):
        if queue is None:
            raise UsageError("name the queue whose partitions you want: partition_column(k, t, q)")
        spread = Target.of(where, queue).spread
    else:
        spread = PartitioningSpec(where, strategy, hash_name, seed)
    partitioner = spread.partitioner()
    partitioner.refuse_broadcast()  # now, not when Spark's workers come to it
    column = (F.col(key) if isinstance(key, str) else key).cast("binary")
    if spread.strategy == Strategy.ROUND_ROBIN:
        return _in_turn(spread.partitions)
    hashed = _jvm_hash(column, spread.hash_name, spread.seed)
    if spread.strategy == Strategy.MODULO and hashed is not None:
        found = F.pmod(hashed, F.lit(spread.partitions))
    elif spread.strategy == Strategy.JUMP and hashed is not None:
        found = _jump(hashed, spread.partitions)
    else:
        scopes = F.col(scope) if isinstance(scope, str) else scope
        found = _by_python(column, partitioner, scopes)
    return F.when(column.isNotNull(), found.cast("int"))


def _jvm_hash(key: Column, hash_name: str, seed: int) -> Column | None:
    """The signed 64-bit hash by Spark's own functions; None when it has none."""
    if hash_name == "xxh64" and seed == SEED:
        return F.xxhash64(key)
    if hash_name == "crc32":
        return F.crc32(key)
    return None


def _in_turn(count: int) -> Column:
    """The partitions one after the other, from the Spark partition's number on, as a feed does."""
    row = F.monotonically_increasing_id().bitwiseAND(F.lit(ROW_BITS))
    return F.pmod(F.spark_partition_id() + row, F.lit(count)).cast("int")


def _jump(hashed: Column, count: int) -> Column:
    """Jump consistent hashing, step by step, in 64-bit arithmetic that wraps as it should."""

    def step(state: Column, _: Column) -> Column:
        key = state["key"] * F.lit(JUMP_FACTOR) + F.lit(1).cast("long")
        below = F.shiftrightunsigned(key, 33) + F.lit(1).cast("long")
        candidate = F.floor(
            (state["candidate"] + F.lit(1)) * (F.lit(float(1 << 31)) / below.cast("double"))
        )
        moved = F.struct(
            key.alias("key"), state["candidate"].alias("bucket"), candidate.alias("candidate")
        )
        return F.when(state["candidate"] < F.lit(count), moved).otherwise(state)

    begin = F.struct(
        hashed.cast("long").alias("key"),
        F.lit(-1).cast("long").alias("bucket"),
        F.lit(0).cast("long").alias("candidate"),
    )
    steps = F.sequence(F.lit(1), F.lit(min(count, JUMP_STEPS_MAX) + 1))
    return F.aggregate(steps, begin, step, lambda state: state["bucket"])


def _by_python(key: Column, partitioner: Partitioner, scope: Column | None) -> Column:
    """The same by the Python code of the producers, a batch at a time, in Spark's workers."""

    def partitions(*columns: pd.Series) -> pd.Series:
        keys, *scopes = (pa.array(column) for column in columns)
        found = partitioner.partition_column(
            keys.cast(pa.binary()), scopes[0].cast(pa.string()) if scopes else None
        )
        return pd.Series(found.astype("int32"))

    if scope is None:
        one: Any = pandas_udf(_one_column(partitions), "int")  # type: ignore[call-overload]
        return cast(Column, one(key))
    two: Any = pandas_udf(_two_columns(partitions), "int")  # type: ignore[call-overload]
    return cast(Column, two(key, scope.cast("string")))


# Spark tells the kinds of vectorised functions apart by their annotations.
def _one_column(partitions: Callable[..., Any]) -> Callable[[pd.Series], pd.Series]:
    def one(keys: pd.Series) -> pd.Series:
        return partitions(keys)

    return one


def _two_columns(partitions: Callable[..., Any]) -> Callable[[pd.Series, pd.Series], pd.Series]:
    def two(keys: pd.Series, scopes: pd.Series) -> pd.Series:
        return partitions(keys, scopes)

    return two
