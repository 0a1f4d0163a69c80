"""The routing tasks, which run in Ray's workers. No Spark is imported here, because that takes
long."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import ray
from ray._private.worker import global_worker

from pxrs_ray.errors import UsageError
from pxrs_ray.feed.facts import KnownProgress
from pxrs_ray.feed.fields import KEY, PAYLOAD, TIMESTAMP
from pxrs_ray.feed.partition_feed import RoutedRows
from pxrs_ray.spark.routing import Feed, route_at_hand

TASK_RETRIES = 10
# What Ray calls bytes that another language gave.
RAW = b"RAW"
WAIT_MS = 60_000
_KINDS = {KEY: pa.binary(), PAYLOAD: pa.binary(), TIMESTAMP: pa.int64()}


def routing_task(function: Callable[..., RoutedRows]) -> Any:
    """Make a function a routing task: a retry, after its worker died, gets the very same data."""
    return ray.remote(num_cpus=0, max_retries=TASK_RETRIES, scheduling_strategy="SPREAD")(function)


@routing_task
def route_bytes(
    feed: Feed, number: int, told: KnownProgress, references: Sequence[Any]
) -> RoutedRows:
    """Route one partition out of the bytes that RayDP gave, and to which there is a reference."""
    ipc_bytes = _in_place(references[0])
    return route_at_hand(feed, number, lambda: pa.ipc.open_stream(ipc_bytes), told)


@routing_task
def route_block(
    feed: Feed, number: int, told: KnownProgress, block: pa.Table, columns: Mapping[str, str]
) -> RoutedRows:
    """Route one block of a Dataset."""
    return route_at_hand(feed, number, _messages(block, columns).to_batches, told)


def _in_place(reference: Any) -> Any:
    """The bytes where they lie in Ray's object store; a copy where Ray shows no such thing."""
    try:
        worker: Any = global_worker
        ((data, kind, *_),) = worker.core_worker.get_objects([reference], WAIT_MS)
    except (AttributeError, TypeError, ValueError):
        data, kind = None, b""
    return pa.py_buffer(data) if data is not None and kind == RAW else ray.get(reference)


def _messages(block: pa.Table, columns: Mapping[str, str]) -> pa.Table:
    """The block's columns under the names, and with the types, that messages have."""
    picked = {}
    for name, column in columns.items():
        values = block.column(column)
        if pa.types.is_timestamp(values.type):
            values = values.cast(pa.timestamp("ms"), safe=False)
        try:
            picked[name] = values.cast(_KINDS[name]) if name in _KINDS else values
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise UsageError(
                f"{name}={column!r} is {values.type}; a {name} is {_KINDS[name]}: {error}"
            ) from None
    if KEY not in picked:
        picked[KEY] = pa.nulls(block.num_rows, pa.binary())
    return pa.table(picked)
