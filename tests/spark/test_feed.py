"""DataFrames and Datasets into queues: every row once, whatever is called again or is wrong."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest
import ray
from pyspark.sql import functions as F  # noqa: N812

from pxrs_ray.clock import wall_ms
from pxrs_ray.errors import (
    FeedConflict,
    MessageTooLarge,
    NotFound,
    PartitionFull,
    PxrsError,
    UsageError,
)
from pxrs_ray.spark import WholeRow, decode_arrow_row, write_dataframe, write_dataset
from pxrs_ray.spark.ledger import Ledger
from pxrs_ray.spark.queue_ref import Target
from tests.spark.helpers import QUEUE, BuffersOnly, check_numbered, numbered

pytestmark = pytest.mark.spark

BOTH = pytest.mark.parametrize("via", ["raydp", "push"])


def feed(df: Any, queue: BuffersOnly, **options: Any) -> Any:
    options = {"key": "account", "payload": "number", "feed_id": "f", **options}
    return write_dataframe(df, queue, QUEUE, **options)


@BOTH
def test_every_row_is_there_once_also_when_called_again(
    spark: Any, queue: BuffersOnly, via: Any
) -> None:
    df = numbered(spark, 20_000)
    report = feed(df, queue, via=via, timestamp="at", headers="map('n', number)")
    assert (report.rows, report.rows_already, report.spark_partitions) == (20_000, 0, 8)
    assert report.partition_rows == tuple(queue.ends()[p] for p in range(8))
    assert report.bytes == sum(len(str(n)) for n in range(20_000))
    assert 1.0 <= report.skew < 1.5
    assert "20,000 rows" in str(report)
    check_numbered(queue, 20_000)
    message = next(iter(next(queue.batches())))
    assert message.headers == (("n", message.payload),)
    assert message.timestamp_ms == 1_700_000_000_000 + int(message.payload)
    again = feed(df, queue, via=via, timestamp="at", headers="map('n', number)")
    assert (again.rows, again.rows_already, again.frames_added) == (20_000, 20_000, 0)
    check_numbered(queue, 20_000)


@BOTH
def test_another_dataframe_under_the_same_name_is_refused(
    spark: Any, queue: BuffersOnly, via: Any
) -> None:
    df = numbered(spark, 4_000, parts=4)
    feed(df, queue, via=via)
    with pytest.raises(FeedConflict, match="partitions 4, now 3"):
        feed(df.coalesce(3), queue, via=via)
    with pytest.raises(FeedConflict, match="is not what was fed under that name"):
        feed(
            df.withColumn("number", F.expr("concat(number, '')") + F.lit(0.5)),
            queue,
            via=via,
            payload="cast(number as string)",
        )
    with pytest.raises(FeedConflict, match="is not what was fed under that name"):
        feed(df.where("number != '77'"), queue, via=via)
    with pytest.raises(FeedConflict, match="schema"):
        feed(df, queue, via=via, timestamp="at")
    assert queue.rows() == 4_000
    assert feed(df, queue, via=via, feed_id="g").rows == 4_000
    assert queue.rows() == 8_000


@BOTH
def test_a_feed_that_failed_half_way_goes_on_and_is_compared_first(
    spark: Any, queue: BuffersOnly, via: Any
) -> None:
    """The last partition has a null: the others are fed. Mended, only that one is added."""
    df = numbered(spark, 4_000, parts=4)
    broken = df.withColumn("number", F.expr("if(number = '3999', null, number)"))
    with pytest.raises(UsageError, match=r"payload 'number' is null in 1 of 1000 rows.*coalesce"):
        feed(broken, queue, via=via)
    assert 0 < queue.rows() <= 3_000
    ledger = Ledger(Target.of(queue, QUEUE).ledger(), "f")
    assert 3 not in {n for n, told in ledger.read().partitions.items() if told.done}
    other = df.withColumn("number", F.expr("concat(number, 'x')"))
    before = queue.rows()
    with pytest.raises(FeedConflict):
        feed(other, queue, via=via)
    assert queue.rows() == before, "something of another DataFrame was added"
    report = feed(df, queue, via=via)
    assert report.rows_already == before
    check_numbered(queue, 4_000, parts=4)


def test_a_partition_that_comes_out_different_is_noticed_and_not_mixed_in(
    spark: Any, queue: BuffersOnly
) -> None:
    """What a crash leaves: a fingerprint was told, and some frames may be there."""
    told = Ledger(Target.of(queue, QUEUE).ledger(), "f")
    told.open()
    told.tell_plan({"partitions": 1, "schema": "struct<key:binary,payload:binary>", "via": "raydp"})
    told.send(told.facts.mark(0, 0, "of another time", wall_ms()))
    told.settle()
    with pytest.raises(FeedConflict, match="another fingerprint"):
        feed(numbered(spark, 100, parts=1), queue, via="raydp")
    assert queue.rows() == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"key": "acount"}, r"key='acount' is neither a column .* account, number, at"),
        ({"key": "at"}, r"key='at' is timestamp; a key is a string or binary.*cast\(at as string"),
        ({"payload": "map('a', account)"}, r"payload=.* is map<string,string>.*to_json"),
        ({"timestamp": "account"}, "timestamp='account' is string.*to_timestamp"),
        ({"headers": "account"}, "headers='account' is string"),
        ({"payload": "this is no sql("}, "neither a column of this DataFrame nor an expression"),
        ({"timestamp": "nullif(at, at)"}, r"timestamp 'nullif\(at, at\)' is null in 1250 of 1250"),
    ],
)
def test_columns_that_do_not_fit_are_named(
    spark: Any, queue: BuffersOnly, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        feed(numbered(spark, 10_000), queue, **options)
    assert queue.rows() == 0


@BOTH
def test_a_row_above_the_limit_is_named(spark: Any, make_queue: Any, via: Any) -> None:
    queue = make_queue(message_bytes_max=1_000)
    df = numbered(spark, 100, parts=1)
    big = F.when(F.col("number") == "42", F.repeat(F.lit("x"), 2_000)).otherwise(F.col("number"))
    with pytest.raises(MessageTooLarge, match=r"1 of 100 rows .*row 42 of Spark partition 0"):
        feed(df, queue, payload=big, via=via)
    assert queue.rows() == 0


def test_a_topology_or_queue_that_is_not_there(spark: Any, queue: BuffersOnly) -> None:
    df = numbered(spark, 10, parts=1)
    with pytest.raises(NotFound, match="nowhere"):
        write_dataframe(df, "nowhere", QUEUE, key="account")
    with pytest.raises(NotFound, match="payment"):
        write_dataframe(df, queue, "payment", key="account")


@BOTH
def test_a_full_queue_makes_the_feed_wait_and_then_say_so(
    spark: Any, make_queue: Any, via: Any
) -> None:
    queue = make_queue(
        partitions=2,
        partition_bytes_max=1_200_000,
        segment_bytes_max=600_000,
        message_bytes_max=10_000,
    )
    queue.hold()
    df = numbered(spark, 200_000, parts=4)
    with pytest.raises(PartitionFull, match=r"took nothing for .* they are full"):
        feed(df, queue, via=via, stall_s=1.0)
    assert 0 < queue.rows() < 200_000
    limits = queue.config.changed(
        queues={QUEUE: {"partitions": 2, "partition_bytes_max": 1 << 30}}
    ).resolved_queue(QUEUE)
    queue.spec = type(queue.spec)(QUEUE, 2, limits.log_limits())
    queue.open(queue.spec)
    feed(df, queue, via=via)
    check_numbered(queue, 200_000, parts=4)


def test_whole_rows_as_payload(spark: Any, queue: BuffersOnly) -> None:
    df = numbered(spark, 10, parts=1)
    write_dataframe(df, queue, QUEUE, key="account", payload=WholeRow.JSON, feed_id="json")
    texts = sorted(payload for b in queue.batches() for _, payload in b.rows())
    assert texts[0] == b'{"account":"0","number":"0","at":"2023-11-14T22:13:20.000Z"}'
    write_dataframe(df, queue, QUEUE, key=None, payload=WholeRow.ARROW, feed_id="arrow")
    rows = [p for b in queue.batches() for k, p in b.rows() if k is None]
    assert sorted(decode_arrow_row(row)["number"] for row in rows) == [str(n) for n in range(10)]


@BOTH
def test_an_empty_dataframe_is_a_feed_of_nothing(
    spark: Any, queue: BuffersOnly, via: Any, tmp_path: Path
) -> None:
    empty = numbered(spark, 10).where("false")
    assert feed(empty, queue, via=via).rows == 0
    spark.range(0).selectExpr("'a' as account", "'1' as number").write.parquet(
        str(tmp_path / "nothing")
    )
    nothing = spark.read.parquet(str(tmp_path / "nothing"))
    assert feed(nothing, queue, via=via, feed_id="g").rows == 0
    assert queue.rows() == 0


@BOTH
def test_after_a_shuffle_and_with_joins(spark: Any, queue: BuffersOnly, via: Any) -> None:
    df = numbered(spark, 10_000)
    names = spark.range(1_000).selectExpr("cast(id as string) as account", "id as tier")
    joined = df.join(names, "account").repartition(3, "account").sortWithinPartitions("at")
    report = feed(joined, queue, via=via)
    assert report.rows == queue.rows() == 10_000
    assert feed(joined, queue, via=via).frames_added == 0
    assert queue.rows() == 10_000


def test_raydp_holds_nothing_afterwards(spark: Any, queue: BuffersOnly) -> None:
    feed(numbered(spark, 1_000), queue, via="raydp")
    assert spark.sparkContext._jsc.sc().getPersistentRDDs().size() == 0
    with pytest.raises(PxrsError):
        feed(numbered(spark, 999), queue, via="raydp")
    assert spark.sparkContext._jsc.sc().getPersistentRDDs().size() == 0


def test_a_ray_dataset(queue: BuffersOnly, spark: Any) -> None:
    blocks = [{"account": str(n % 1_000), "number": str(n).encode(), "at": n} for n in range(2_000)]
    import pyarrow as pa

    dataset = ray.data.from_arrow(
        [pa.Table.from_pylist(blocks[:1_000]), pa.Table.from_pylist(blocks[1_000:])]
    )
    columns = {"key": "account", "payload": "number", "timestamp": "at", "feed_id": "d"}
    report = write_dataset(dataset, queue, QUEUE, **columns)
    assert (report.rows, report.spark_partitions) == (2_000, 2)
    assert write_dataset(dataset, queue, QUEUE, **columns).rows_already == 2_000
    check_numbered(queue, 2_000, parts=2)
    with pytest.raises(UsageError, match="key='nope' is no column"):
        write_dataset(dataset, queue, QUEUE, key="nope", payload="number")


def test_a_ray_dataset_feeds_labels(make_queue: Any) -> None:
    import pyarrow as pa

    queue = make_queue(strategy="label", labels={"gpu": 2, "cpu": 6})
    rows = [{"n": str(n), "kind": "gpu" if n % 2 else "cpu"} for n in range(100)]
    dataset = ray.data.from_arrow(pa.Table.from_pylist(rows))
    write_dataset(dataset, queue, QUEUE, key="n", payload="n", scope="kind")
    sent = [
        (batch.partition, int(payload)) for batch in queue.batches() for _, payload in batch.rows()
    ]
    assert sorted(number for _, number in sent) == list(range(100))
    assert {(partition < 2) == (number % 2 == 1) for partition, number in sent} == {True}


def test_two_feeds_of_one_name_at_once_add_it_once(spark: Any, queue: BuffersOnly) -> None:
    """A driver that was thought dead: both write, the logs take each frame once."""
    from concurrent.futures import ThreadPoolExecutor

    df = numbered(spark, 20_000)
    with ThreadPoolExecutor(2) as threads:
        both = [threads.submit(feed, df, queue, via="raydp") for _ in range(2)]
        assert [one.result(120).rows for one in both] == [20_000, 20_000]
    check_numbered(queue, 20_000)


def test_a_feed_without_a_name_is_fed_each_time(spark: Any, queue: BuffersOnly) -> None:
    df = numbered(spark, 100, parts=1)
    first, again = (feed(df, queue, feed_id=None) for _ in range(2))
    assert uuid.UUID(first.feed_id.removeprefix("unnamed-")) and first.feed_id != again.feed_id
    assert queue.rows() == 200
