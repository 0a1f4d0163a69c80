"""Streams: each micro-batch once, over restarts and replays; another query is another query."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pxrs_ray.errors import DeadlineExceeded, FeedConflict, PartitionFull, UsageError
from pxrs_ray.spark import StreamFeed, write_stream
from tests.spark.helpers import (
    QUEUE,
    BuffersOnly,
    Source,
    check_numbered,
    eventually,
    numbered_stream,
)

pytestmark = pytest.mark.spark

BOTH = pytest.mark.parametrize("via", ["push", "raydp"])
FILE_ROWS = 50


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return Source(tmp_path / "source", FILE_ROWS, keys=7)


def start(
    spark: Any, source: Source, queue: BuffersOnly, checkpoint: Path, **options: Any
) -> StreamFeed:
    options = {"key": "account", "payload": "number", "trigger_s": 0.1, **options}
    return write_stream(
        numbered_stream(spark, source.folder),
        queue,
        QUEUE,
        checkpoint_location=str(checkpoint),
        **options,
    )


def numbers(queue: BuffersOnly) -> list[int]:
    return sorted(int(payload) for batch in queue.batches() for _, payload in batch.rows())


def wait_for_a_batch(queue: BuffersOnly, rows: int) -> None:
    """Return when something more of the source's rows is there, or everything is."""
    before = queue.rows()
    eventually(lambda: queue.rows() > before or before == rows, "rows came in")


@BOTH
def test_it_goes_on_where_it_was_and_replays_without_doubles(
    spark: Any, source: Source, queue: BuffersOnly, tmp_path: Path, via: Any
) -> None:
    checkpoint = tmp_path / "checkpoint"
    source.add(3)
    feed = start(spark, source, queue, checkpoint, via=via)
    feed.process_all()
    assert [report.rows for report in feed.reports] == [FILE_ROWS] * 3
    feed.stop()
    assert numbers(queue) == list(range(source.rows))

    source.add(1)
    feed = start(spark, source, queue, checkpoint, via=via)
    feed.process_all()
    feed.stop()
    assert numbers(queue) == list(range(source.rows))

    # The driver died after the last batch was appended, before Spark wrote that down.
    (last,) = sorted((checkpoint / "commits").glob("3"))
    for path in (last, last.with_name(".3.crc")):
        path.unlink()
    feed = start(spark, source, queue, checkpoint, via=via)
    feed.process_all()
    assert feed.reports[0].frames_repeated > 0 == feed.reports[0].frames_added
    feed.stop()
    assert numbers(queue) == list(range(source.rows))


def test_stopped_at_any_moment_it_goes_on(
    spark: Any, source: Source, queue: BuffersOnly, tmp_path: Path
) -> None:
    """Between batches and inside them: whatever was half done is done again, and once."""
    random = Random(1)
    source.add(20)
    for _ in range(6):
        feed = start(spark, source, queue, tmp_path / "checkpoint", trigger_s=0.01)
        wait_for_a_batch(queue, source.rows)
        time.sleep(random.uniform(0, 0.3))
        feed.stop()
    start(spark, source, queue, tmp_path / "checkpoint", trigger_s=None).wait(60)
    check_numbered(queue, source.rows, parts=source.files, keys=7)


def test_a_new_query_on_the_same_queue_is_another_one(
    spark: Any, source: Source, queue: BuffersOnly, tmp_path: Path
) -> None:
    source.add(2)
    for name in ("one", "other"):
        feed = start(spark, source, queue, tmp_path / name, name="same name", trigger_s=None)
        feed.wait(60)
    assert numbers(queue) == sorted([*range(source.rows)] * 2)


def test_a_checkpoint_that_was_set_back_is_refused(
    spark: Any, source: Source, queue: BuffersOnly, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    source.add(3)
    start(spark, source, queue, checkpoint, trigger_s=None).wait(60)
    for number, kinds in ((2, ("commits", "offsets")), (1, ("commits",))):
        for kind in kinds:
            (checkpoint / kind / str(number)).unlink()
    feed = start(spark, source, queue, checkpoint)
    with pytest.raises(FeedConflict, match="batch 1 of this query comes after a later one"):
        feed.process_all()
    assert numbers(queue) == list(range(source.rows))


def test_a_batch_that_comes_back_different_is_refused(
    spark: Any, source: Source, queue: BuffersOnly, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    source.add(1)
    start(spark, source, queue, checkpoint, trigger_s=None).wait(60)
    (checkpoint / "commits" / "0").unlink()
    path = source.folder / "0000.json"
    path.write_text(path.read_text().replace('"number": "3"', '"number": "4"'))
    feed = start(spark, source, queue, checkpoint)
    with pytest.raises(FeedConflict, match="is not what was fed"):
        feed.process_all()
    assert numbers(queue) == list(range(source.rows))


def test_a_full_queue_holds_the_stream_back_and_then_ends_it(
    spark: Any, source: Source, make_queue: Any, tmp_path: Path
) -> None:
    queue = make_queue(
        partitions=1, partition_bytes_max=4_000, segment_bytes_max=2_000, message_bytes_max=1_000
    )
    queue.hold()
    source.add(15)
    feed = start(spark, source, queue, tmp_path / "checkpoint", stall_s=1.0)
    with pytest.raises(PartitionFull, match="took nothing"):
        feed.process_all()
    fed = numbers(queue)
    assert fed == list(range(len(fed))) and len(fed) < source.rows

    limits = queue.config.changed(
        queues={QUEUE: {"partitions": 1, "partition_bytes_max": 1 << 30}}
    ).resolved_queue(QUEUE)
    queue.spec = type(queue.spec)(QUEUE, 1, limits.log_limits())
    queue.open(queue.spec)
    start(spark, source, queue, tmp_path / "checkpoint", trigger_s=None).wait(60)
    assert numbers(queue) == list(range(source.rows))


def test_batches_come_soon(spark: Any, source: Source, queue: BuffersOnly, tmp_path: Path) -> None:
    """A row that appears is in the queue about a trigger later."""
    source.add(1)
    feed = start(spark, source, queue, tmp_path / "checkpoint", trigger_s=0.5)
    feed.process_all()
    for _ in range(3):
        source.add(1)
        eventually(lambda: queue.rows() == source.rows, "the row came into the queue", 10)
    feed.stop()
    with pytest.raises(UsageError, match="does not stream"):
        write_stream(spark.range(1), queue, QUEUE, checkpoint_location=str(tmp_path), key=None)


def test_waiting_for_a_stream_that_runs_on(
    spark: Any, source: Source, queue: BuffersOnly, tmp_path: Path
) -> None:
    feed = start(spark, source, queue, tmp_path / "checkpoint")
    with pytest.raises(DeadlineExceeded, match="still runs after 1 s"):
        feed.wait(1)
    feed.stop()
    feed.wait(10)


def test_bad_columns_are_told_before_it_starts(
    spark: Any, source: Source, queue: BuffersOnly, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="key='kk'"):
        start(spark, source, queue, tmp_path / "checkpoint", key="kk")
    assert not (tmp_path / "checkpoint").exists()
