"""The Spark feed of PXRS, through RayDP. Import it as `pxrs_ray.spark`.

    with spark_on_ray("payments", executors=2, cores=2) as spark:
        frame = spark.read.parquet("payments")
        report = write_dataframe(frame, "shop", "payments", key="account", feed_id="2026-11")

Rule of this file: names are loaded when they are first used, because the routing tasks in Ray's
workers need no Spark, and importing it takes longer than they do.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from pxrs_ray.extras import extra

if TYPE_CHECKING:
    from pxrs_ray.spark.columns import WholeRow as WholeRow
    from pxrs_ray.spark.columns import decode_arrow_row as decode_arrow_row
    from pxrs_ray.spark.key_partition import partition_column as partition_column
    from pxrs_ray.spark.progress import FeedReport as FeedReport
    from pxrs_ray.spark.read import read_queue as read_queue
    from pxrs_ray.spark.session import spark_local as spark_local
    from pxrs_ray.spark.session import spark_on_ray as spark_on_ray
    from pxrs_ray.spark.stream import StreamFeed as StreamFeed
    from pxrs_ray.spark.stream import write_stream as write_stream
    from pxrs_ray.spark.write import write_dataframe as write_dataframe
    from pxrs_ray.spark.write import write_dataset as write_dataset

_HOMES = {
    "FeedReport": "progress",
    "StreamFeed": "stream",
    "WholeRow": "columns",
    "decode_arrow_row": "columns",
    "partition_column": "key_partition",
    "read_queue": "read",
    "spark_local": "session",
    "spark_on_ray": "session",
    "write_dataframe": "write",
    "write_dataset": "write",
    "write_stream": "stream",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'pxrs_ray.spark' has no attribute {name!r}")
    with extra("spark", f"pxrs_ray.spark.{name}"):
        return getattr(import_module(f"pxrs_ray.spark.{home}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
