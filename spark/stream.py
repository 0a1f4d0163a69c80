"""`write_stream`: a streaming DataFrame into a queue, each micro-batch exactly once.

Rules of this file. A batch is known by (query id, batch id, Spark partition). The query id is
Spark's own, kept in the checkpoint location: a query that goes on from there is the same one, and
one with a new checkpoint location is another, whatever its name or path. A batch that Spark runs
again after a crash adds only what is missing; one that comes after a later one is refused before
anything is added. One that comes out different is refused where a log has other frames of it: there
is no ledger of what a batch was, so frames that no log had may be added before that is found out.
Spark waits for each batch, so a queue without room makes it take the next one later, and holds
nothing in memory meanwhile.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import field
from typing import TYPE_CHECKING, Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from pxrs_ray.clock import monotonic_ms
from pxrs_ray.errors import DeadlineExceeded, FeedConflict, ProducerFenced, PxrsError, UsageError
from pxrs_ray.feed.facts import FeedState
from pxrs_ray.feed.feed_run import FeedCounts, FeedReport, FetchFailed, Rounds
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.spark.columns import Expression, WholeRow, message_columns
from pxrs_ray.spark.ledger import Ledger
from pxrs_ray.spark.python_workers import partitions_of, push_round, pushed
from pxrs_ray.spark.queue_ref import Target
from pxrs_ray.spark.routing import Feed
from pxrs_ray.spark.session import logs_silenced
from pxrs_ray.spark.through_raydp import feed_round, prepared
from pxrs_ray.spark.write import Via, called_columns, chosen_via, refuse_stopped

if TYPE_CHECKING:
    from pxrs_ray.actors.client.topology import Topology

QUERY_ID = "sql.streaming.queryId"
REPORTS_MAX = 1_000
NOTHING_KNOWN = FeedState()

# Key, payload, timestamp, headers, scope: as `message_columns` takes them.
Optional = Expression | None
StreamColumns = tuple[Optional, Expression | WholeRow, Optional, Optional, Optional]


@dataclass(slots=True)
class StreamFeed:
    """A stream that is being fed. `reports` are of its latest batches, `query` is Spark's."""

    query: StreamingQuery
    reports: deque[FeedReport]
    failures: list[BaseException] = field(default_factory=list)

    def stop(self) -> None:
        """End it. A batch under way is left as it is, and done again when the stream goes on."""
        with logs_silenced():
            self.query.stop()

    def wait(self, seconds: float) -> None:
        """Return when the query has ended. Raises why it failed, or DeadlineExceeded."""
        try:
            ended = self.query.awaitTermination(max(1, round(seconds)))
        except StreamingQueryException:
            if self.failures:
                raise self.failures[0] from None
            raise
        if not ended:
            raise DeadlineExceeded(f"the stream still runs after {seconds:g} s")

    def process_all(self) -> None:
        """Return when everything that the sources have now is in the queue. Raises as `wait`."""
        try:
            self.query.processAllAvailable()
        except StreamingQueryException:
            if self.failures:
                raise self.failures[0] from None
            raise


def write_stream(
    df: DataFrame,
    topology: Topology | str,
    queue: str,
    *,
    checkpoint_location: str,
    key: Expression | None,
    payload: Expression | WholeRow = WholeRow.JSON,
    timestamp: Expression | None = None,
    headers: Expression | None = None,
    scope: Expression | None = None,
    trigger_s: float | None = 0.5,
    name: str | None = None,
    via: Via | None = "push",
    fetch_s_max: float = 60.0,
    stall_s: float = 300.0,
) -> StreamFeed:
    """Start to write a streaming DataFrame into `queue`; for the columns see `write_dataframe`.

    checkpoint_location: where Spark keeps how far the query is, and its id. The same location
        goes on; another one is another query.
    trigger_s: a batch begins this often; None takes what is there now, and ends.
    stall_s: how long a batch may wait for room in the queue before the query fails.

    A failed query raises from `StreamFeed.wait` and `process_all`; started again, it goes on.
    """
    refuse_stopped(df)
    if not df.isStreaming:
        raise UsageError("this DataFrame does not stream: feed it with write_dataframe")
    columns = (key, payload, timestamp, headers, scope)
    way, target = chosen_via(df, via), Target.of(topology, queue)
    message_columns(df, *columns)
    Ledger(target.stream_ledger(), "").open()
    batches = _Batches(target, queue, columns, way, fetch_s_max, stall_s)
    writer = df.writeStream.foreachBatch(batches.take)
    writer = writer.option("checkpointLocation", checkpoint_location)
    if name is not None:
        writer = writer.queryName(name)
    timing: dict[str, Any] = (
        {"availableNow": True}
        if trigger_s is None
        else {"processingTime": f"{round(trigger_s * 1_000)} milliseconds"}
    )
    return StreamFeed(writer.trigger(**timing).start(), batches.reports, batches.failures)


@dataclass(slots=True)
class _Batches:
    """Takes one batch of a stream after the other, as Spark calls; keeps what became of them."""

    target: Target
    queue: str
    columns: StreamColumns
    way: str
    fetch_s_max: float
    stall_s: float
    reports: deque[FeedReport] = field(default_factory=lambda: deque(maxlen=REPORTS_MAX))
    failures: list[BaseException] = field(default_factory=list)

    def take(self, batch: DataFrame, number: int) -> None:
        """Write a batch. What it raises ends the query."""
        query_id = batch.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
        feed = Feed(
            self.target,
            f"stream/{query_id}",
            epoch=number,
            ledgered=False,
            stall_s=self.stall_s,
            called=called_columns(self.columns),
        )
        try:
            messages = message_columns(batch, *self.columns)
            report = _write_batch(feed, self.queue, messages, self.way, self.fetch_s_max)
            self.reports.append(report)
        except ProducerFenced as error:
            self.failures.append(_behind(feed, error))
            raise self.failures[-1] from None
        except PxrsError as error:
            self.failures.append(error)
            raise


def _write_batch(
    feed: Feed, queue: str, messages: DataFrame, via: str, fetch_s_max: float
) -> FeedReport:
    began_ms, counts = monotonic_ms(), FeedCounts()
    if via == "push":
        fed = pushed(messages, feed, NOTHING_KNOWN)
        _begin(feed, partitions_of(fed))
        push_round(fed, counts.note)
    else:
        rounds = Rounds()
        while not rounds.over:
            try:
                with prepared(messages) as data:
                    _begin(feed, len(data))
                    numbers = range(len(data))
                    feed_round(feed, data, numbers, NOTHING_KNOWN, counts.note, fetch_s_max)
                rounds.over = True
            except FetchFailed as failure:
                time.sleep(rounds.failed(failure))
    seconds = (monotonic_ms() - began_ms) / 1_000
    named = f"{feed.feed_id}/{feed.epoch}"
    return counts.report(named, queue, via, feed.target.partitions, frozenset(), seconds)


def _begin(feed: Feed, partitions: int) -> None:
    """Put the batch's plan down, so that it cannot come again cut into other partitions."""
    ledger = Ledger(feed.target.stream_ledger(), feed.feed_id, feed.epoch)
    try:
        ledger.tell_plan({"batch": feed.epoch, "partitions": partitions})
    except FeedConflict as error:
        raise FeedConflict(
            f"batch {feed.epoch} comes again in {partitions} Spark partitions, which is not how "
            f"it came before: give Spark the same settings and cores, or begin anew with another "
            f"checkpoint location ({error})"
        ) from None


def _behind(feed: Feed, error: ProducerFenced) -> FeedConflict:
    return FeedConflict(
        f"batch {feed.epoch} of this query comes after a later one: the query runs twice, or its "
        f"checkpoint location was set back. End the other run, or use a new checkpoint location "
        f"for a new query ({error})"
    )
