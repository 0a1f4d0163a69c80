"""Feeding without RayDP: each of Spark's Python workers appends its partition while Spark computes
it.

Rules of this file: nothing of the data is held anywhere in between, and Spark's own retries do the
rest. The workers join the Ray cluster once each, and stay joined while Spark reuses them.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
import ray
from pyspark import Accumulator, TaskContext
from pyspark.sql import DataFrame

from pxrs_ray import errors
from pxrs_ray.actors import names
from pxrs_ray.errors import PxrsError
from pxrs_ray.feed.facts import FeedState, KnownProgress
from pxrs_ray.feed.feed_round import FirstFailure
from pxrs_ray.feed.partition_feed import RoutedRows
from pxrs_ray.spark.routing import Feed, route

_RESULT = (
    "number int, rows long, bytes long, counts array<long>, added long, repeated long, error string"
)
_SCHEMA = pa.schema(
    [
        ("number", pa.int32()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("counts", pa.list_(pa.int64())),
        ("added", pa.int64()),
        ("repeated", pa.int64()),
        ("error", pa.string()),
    ]
)


def join_ray(address: str) -> None:
    """Connect this process to the Ray cluster, unless it is."""
    if not ray.is_initialized():
        ray.init(
            address=address,
            namespace=names.NAMESPACE,
            log_to_driver=False,
            logging_level=logging.ERROR,
            configure_logging=False,
        )


def pushed(
    df: DataFrame,
    feed: Feed,
    state: FeedState,
    only: frozenset[int] | None = None,
    progress: tuple[Accumulator[int], Accumulator[int]] | None = None,
) -> DataFrame:
    """The DataFrame whose computation feeds `df`, with one row a Spark partition.

    `only` leaves out the other partitions; `progress` counts partitions and rows that are done.
    """
    told = state.partitions

    def push(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        number = context.partitionId()
        if only is not None and number not in only:
            return
        join_ray(feed.target.address)
        row: dict[str, Any] = {"number": number, "error": None}
        try:
            routed = route(feed, number, batches, told.get(number, KnownProgress()))
        except PxrsError as error:
            # As an answer and not as a failure: Spark's retries would not mend it.
            row["error"] = json.dumps([type(error).__name__, str(error)])
        else:
            row |= {name: getattr(routed, name) for name in RoutedRows.__slots__}
            if progress is not None:
                progress[0].add(1)
                progress[1].add(routed.rows)
        yield pa.RecordBatch.from_pylist([row], schema=_SCHEMA)

    return df.mapInArrow(push, _RESULT)


def partitions_of(df: DataFrame) -> int:
    """How many Spark partitions computing `df` takes.

    With an adaptive plan this runs all stages but the last, and Spark does not run them again
    when the same DataFrame object is computed.
    """
    jvm_frame: Any = df._jdf
    return int(jvm_frame.queryExecution().toRdd().getNumPartitions())


def push_round(fed: DataFrame, on_routed: Callable[[RoutedRows], None]) -> None:
    """Compute the DataFrame that `pushed` gave, and tell each partition that is done.

    Raises the first error that a worker met, after all of them are over.
    """
    failure = FirstFailure()
    for row in fed.collect():
        if row.error is None:
            on_routed(RoutedRows(*(row[name] for name in RoutedRows.__slots__)))
        else:
            name, text = json.loads(row.error)
            failure.met(getattr(errors, name)(text))
    failure.over()
