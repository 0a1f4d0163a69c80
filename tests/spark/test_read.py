"""Messages back into Spark: live, and from the folder of what was stopped."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest

from pxrs_ray.errors import LogCorrupted, NotFound, UsageError
from pxrs_ray.log.segment import segment_paths
from pxrs_ray.spark import read_queue, write_dataframe
from tests.spark.helpers import QUEUE, BuffersOnly, numbered

pytestmark = pytest.mark.spark
MIDDLE = dt.datetime.fromtimestamp(1_700_000_000 + 4, dt.UTC)


def rows_of(df: Any) -> set[tuple[Any, ...]]:
    return {
        (r.partition, r.offset, bytes(r.key), bytes(r.payload), bytes(r.headers["n"]), r.id)
        for r in df.collect()
    }


@pytest.fixture
def filled(spark: Any, queue: BuffersOnly) -> BuffersOnly:
    write_dataframe(
        numbered(spark, 8_000),
        queue,
        QUEUE,
        key="account",
        payload="number",
        timestamp="at",
        headers="map('n', number)",
        feed_id="f",
    )
    return queue


def test_live_and_stopped_give_the_same(
    spark: Any, filled: BuffersOnly, make_queue: Any, tmp_path: Path
) -> None:
    live = read_queue(spark, filled, QUEUE)
    assert dict(live.dtypes)["timestamp"] == "timestamp"
    found = rows_of(live)
    assert len(found) == 8_000
    assert found == {
        (b.partition, m.offset, m.key, m.payload, m.headers[0][1], m.id)
        for b in filled.batches()
        for m in b
    }
    assert rows_of(read_queue(spark, filled.folder, QUEUE)) == found
    for source in (filled, filled.folder):
        part = read_queue(spark, source, QUEUE, start={0: 10}, end={0: 20, 1: 0})
        counts = {r.partition: r["count"] for r in part.groupBy("partition").count().collect()}
        assert counts == {0: 10} | {p: filled.ends()[p] for p in range(2, 8)}
        assert read_queue(spark, source, QUEUE, start=MIDDLE).count() == 4_000
        assert read_queue(spark, source, QUEUE, end=MIDDLE).count() == 4_000


def test_a_dataframe_is_the_same_each_time_that_it_is_computed(
    spark: Any, filled: BuffersOnly
) -> None:
    live = read_queue(spark, filled, QUEUE)
    write_dataframe(
        numbered(spark, 100), filled, QUEUE, key="account", payload="number", feed_id="later"
    )
    assert live.count() == 8_000
    assert read_queue(spark, filled, QUEUE).count() == 8_100


def test_an_empty_queue(spark: Any, queue: BuffersOnly) -> None:
    assert read_queue(spark, queue, QUEUE).collect() == []
    assert read_queue(spark, queue.folder, QUEUE).collect() == []


def test_a_torn_tail_ends_the_file_and_damage_before_it_is_told(
    spark: Any, filled: BuffersOnly
) -> None:
    (path,) = segment_paths(filled.folder / QUEUE / "p00003")
    with path.open("ab") as file:
        file.write(b"half a frame")
    assert read_queue(spark, filled.folder, QUEUE).count() == 8_000


def test_what_is_not_there_is_told(spark: Any, filled: BuffersOnly, make_queue: Any) -> None:
    with pytest.raises(NotFound, match=f"holds no queue 'nope'.*it holds {QUEUE}"):
        read_queue(spark, filled.folder, "nope")
    with pytest.raises(NotFound):
        read_queue(spark, filled, "nope")
    with pytest.raises(UsageError, match=r"no partitions \[9\]: they are 0 to 7"):
        read_queue(spark, filled, QUEUE, start={9: 0})
    with pytest.raises(UsageError, match="no time zone"):
        read_queue(spark, filled, QUEUE, start=dt.datetime(2026, 1, 1))  # noqa: DTZ001
    volatile = make_queue(durability="memory")
    with pytest.raises(UsageError, match="in memory only"):
        read_queue(spark, volatile.folder, QUEUE)


def test_damage_in_the_middle_is_an_error(spark: Any, make_queue: Any) -> None:
    queue = make_queue(partitions=1, segment_bytes_max=4_000, message_bytes_max=1_000)
    write_dataframe(
        numbered(spark, 2_000), queue, QUEUE, key="account", payload="number", feed_id="f"
    )
    first, *others = segment_paths(queue.folder / QUEUE / "p00000")
    assert others, "one segment is not enough for this test"
    data = bytearray(first.read_bytes())
    data[-20] ^= 0xFF
    first.write_bytes(data)
    with pytest.raises(Exception, match=LogCorrupted.__name__):
        read_queue(spark, queue.folder, QUEUE).count()
