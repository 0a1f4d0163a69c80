"""Spark's column of partitions equals what producers compute, key by key."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pxrs_ray.errors import NotFound, UsageError
from pxrs_ray.partitioning import Partitioner
from pxrs_ray.spark import partition_column, write_dataframe
from tests.spark.helpers import QUEUE, BuffersOnly

pytestmark = pytest.mark.spark

# No lone surrogates: they have no UTF-8 form, and Spark cannot hold them.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=80)
ODD = ["", "a", "é", "日本語", "😀", "\0", "a\0b", "e\u0301", "ß" * 40, "x" * 1_000]
WAYS = [
    ("modulo", "xxh64", 42),
    ("jump", "xxh64", 42),
    ("modulo", "crc32", 42),
    ("jump", "crc32", 42),
    ("modulo", "xxh64", 7),
    ("modulo", "murmur3_128", 42),
    ("jump", "sha256", 42),
    ("modulo", "java", 42),
]


@settings(max_examples=2)
@given(keys=st.lists(TEXTS, min_size=50, max_size=200), count=st.integers(1, 300))
def test_text_keys(spark: Any, keys: list[str], count: int) -> None:
    keys = keys + ODD
    df = spark.createDataFrame([(key,) for key in keys], "k string").coalesce(1)
    columns = [
        partition_column("k", count, strategy=strategy, hash_name=name, seed=seed)
        for strategy, name, seed in WAYS
    ]
    rows = [tuple(row) for row in df.select(*columns).collect()]
    for at, (strategy, name, seed) in enumerate(WAYS):
        partitioner = Partitioner(count, strategy, name, seed)
        wanted = [partitioner.partition(key) for key in keys]
        assert [row[at] for row in rows] == wanted, (strategy, name, seed)


@settings(max_examples=2)
@given(keys=st.lists(st.binary(max_size=60), min_size=50, max_size=200), count=st.integers(1, 64))
def test_binary_keys(spark: Any, keys: list[bytes], count: int) -> None:
    keys = [*keys, b"", b"\xff\x00\xfe"]
    df = spark.createDataFrame([(bytearray(key),) for key in keys], "k binary").coalesce(1)
    ways = [way for way in WAYS if way[1] != "java"]
    rows = df.select(
        *(partition_column("k", count, strategy=s, hash_name=h, seed=n) for s, h, n in ways)
    ).collect()
    for at, (strategy, name, seed) in enumerate(ways):
        partitioner = Partitioner(count, strategy, name, seed)
        assert [row[at] for row in rows] == [partitioner.partition(key) for key in keys]


def test_null_keys_have_no_partition_and_are_fed_to_all_in_turn(
    spark: Any, queue: BuffersOnly
) -> None:
    df = spark.range(0, 1_600, 1, 2).selectExpr("if(id % 2 = 0, null, 'one') as k")
    for strategy, name in (("modulo", "xxh64"), ("jump", "crc32"), ("modulo", "sha256")):
        column = partition_column("k", 8, strategy=strategy, hash_name=name)
        found = df.select("k", column.alias("p")).groupBy("k", "p").count().collect()
        told = {row.k: (row.p, row["count"]) for row in found}
        assert told == {
            None: (None, 800),
            "one": (Partitioner(8, strategy, name).partition("one"), 800),
        }
    report = write_dataframe(df, queue, QUEUE, key="k", payload="'x'", feed_id="f")
    home = Partitioner(8).partition("one")
    assert report.partition_rows == tuple(900 if p == home else 100 for p in range(8))


def test_tenants(spark: Any) -> None:
    rows = [(f"k{i}", f"tenant-{i % 5}") for i in range(100)]
    df = spark.createDataFrame(rows, "k string, t string").coalesce(1)
    found = df.select(partition_column("k", 7, strategy="tenant", scope="t").alias("p")).collect()
    partitioner = Partitioner(7, "tenant")
    assert [row.p for row in found] == [partitioner.partition(k, t) for k, t in rows]


def test_it_takes_the_queues_own_strategy_and_equals_what_is_fed(
    spark: Any, make_queue: Any
) -> None:
    queue: BuffersOnly = make_queue(strategy="jump", hash="crc32", partitions=5)
    df = spark.range(0, 500, 1, 2).selectExpr("cast(id as string) as k")
    write_dataframe(df, queue, QUEUE, key="k", payload="k", feed_id="f")
    found = df.select("k", partition_column("k", queue, QUEUE).alias("p")).collect()
    told = {row.k.encode(): row.p for row in found}
    fed = {payload: b.partition for b in queue.batches() for _, payload in b.rows()}
    assert told == fed


def test_round_robin_is_what_a_feed_does(spark: Any, make_queue: Any) -> None:
    queue: BuffersOnly = make_queue(strategy="round_robin", partitions=3)
    df = spark.range(0, 100, 1, 4).selectExpr("cast(id as string) as k")
    write_dataframe(df, queue, QUEUE, key="k", payload="k", feed_id="f")
    found = df.select("k", partition_column("k", queue, QUEUE).alias("p")).collect()
    fed = {payload: b.partition for b in queue.batches() for _, payload in b.rows()}
    assert {row.k.encode(): row.p for row in found} == fed


def test_what_has_no_single_partition_is_refused(spark: Any, queue: BuffersOnly) -> None:
    with pytest.raises(UsageError, match="broadcast"):
        spark.range(1).select(partition_column("id", 4, strategy="broadcast")).collect()
    with pytest.raises(UsageError, match="did you mean 'modulo'"):
        partition_column("k", 4, strategy="modul")
    with pytest.raises(UsageError, match="name the queue"):
        partition_column("k", queue)
    with pytest.raises(NotFound, match="nowhere"):
        partition_column("k", "nowhere", QUEUE)
