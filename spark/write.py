"""`write_dataframe` and `write_dataset`: write tables into a queue, exactly once under a name.

Rule of this file: what is fed, and in which order, a `FeedRun` decides; here it is carried through
Spark and Ray.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from pyspark.sql import DataFrame

from pxrs_ray.clock import monotonic_ms
from pxrs_ray.errors import UsageError
from pxrs_ray.feed.feed_run import FeedReport, FeedRun, FetchFailed
from pxrs_ray.feed.fields import HEADERS, KEY, PAYLOAD, SCOPE, TIMESTAMP
from pxrs_ray.feed.partition_feed import RoutedRows
from pxrs_ray.spark.columns import Expression, WholeRow, message_columns, shown
from pxrs_ray.spark.dataset import Blocks
from pxrs_ray.spark.ledger import Ledger
from pxrs_ray.spark.progress import Bar, progress_bar
from pxrs_ray.spark.python_workers import partitions_of, push_round, pushed
from pxrs_ray.spark.queue_ref import Target
from pxrs_ray.spark.routing import Feed
from pxrs_ray.spark.session import is_on_ray
from pxrs_ray.spark.through_raydp import FrameSource, feed_round, prepared
from pxrs_ray.supervision.supervisor import Supervisor

if TYPE_CHECKING:
    from ray.data import Dataset

    from pxrs_ray.actors.client.topology import Topology

Via = Literal["raydp", "push"]
BAR_EVERY_S = 0.5


def write_dataframe(
    df: DataFrame,
    topology: Topology | str,
    queue: str,
    *,
    key: Expression | None,
    payload: Expression | WholeRow = WholeRow.JSON,
    timestamp: Expression | None = None,
    headers: Expression | None = None,
    scope: Expression | None = None,
    feed_id: str | None = None,
    via: Via | None = None,
    progress: bool | None = None,
    fetch_s_max: float = 60.0,
    stall_s: float = 300.0,
) -> FeedReport:
    """Write every row of `df` as a message into `queue`, exactly once under `feed_id`.

    key, payload: a column's name, an SQL expression or a Column, of strings or binaries; None is
        no key, and a `WholeRow` makes the payload of all columns.
    timestamp: a timestamp, or milliseconds; left out, a message has the time of the feeding.
    headers: a map of strings. scope: the tenant or label, where the queue's strategy wants one.
    feed_id: calling again under the same name goes on after a crash, and adds nothing that is
        there. Left out, a name is made up, and the call cannot be continued.
    via: 'raydp' takes the data out through RayDP, 'push' lets Spark's Python workers append. The
        default is raydp where the session runs on Ray.
    progress: show a bar; None shows it on a terminal.
    fetch_s_max: how long RayDP may take to hand over one Spark partition that is computed.
    stall_s: how long to wait for a full or absent partition that takes nothing at all.

    Rows of one Spark partition with the same key stay in order. Raises UsageError and
    MessageTooLarge naming the column that cannot be a message, FeedConflict when `feed_id` was
    used for other data, NotFound, PartitionFull and DeadlineExceeded. After an error the feed is
    unfinished, and the same call goes on with it.
    """
    refuse_stopped(df)
    chosen = chosen_via(df, via)
    target = Target.of(topology, queue)
    columns = (key, payload, timestamp, headers, scope)
    messages = message_columns(df, *columns)
    feed = _feed(target, feed_id, stall_s, called_columns(columns))
    run = _Run(feed, chosen, messages.schema.simpleString())
    with progress_bar(queue, progress) as bar:
        if chosen == "raydp":
            run.through_raydp(messages, bar, fetch_s_max)
        else:
            run.by_push(messages, bar)
    return run.report(queue)


def write_dataset(
    dataset: Dataset,
    topology: Topology | str,
    queue: str,
    *,
    key: str | None,
    payload: str,
    timestamp: str | None = None,
    headers: str | None = None,
    scope: str | None = None,
    feed_id: str | None = None,
    progress: bool | None = None,
    stall_s: float = 300.0,
) -> FeedReport:
    """Write every row of a Ray Dataset; see `write_dataframe`. Columns are given by name.

    A block counts as a Spark partition does: the same blocks have to come again.
    """
    target = Target.of(topology, queue)
    wanted = {PAYLOAD: payload, KEY: key, TIMESTAMP: timestamp, HEADERS: headers}
    if scope is not None:
        wanted[SCOPE] = scope
    blocks = Blocks.of(dataset, {name: column for name, column in wanted.items() if column})
    feed = _feed(target, feed_id, stall_s, {name: repr(c) for name, c in wanted.items() if c})
    run = _Run(feed, "dataset", ", ".join(f"{name}={column}" for name, column in wanted.items()))
    with progress_bar(queue, progress) as bar:
        run.of_blocks(blocks, bar)
    return run.report(queue)


def _feed(target: Target, feed_id: str | None, stall_s: float, called: dict[str, str]) -> Feed:
    return Feed(target, feed_id or f"unnamed-{uuid.uuid4().hex}", stall_s=stall_s, called=called)


class _Run:
    """One call of `write_dataframe`: carries what its `FeedRun` decides."""

    def __init__(self, feed: Feed, via: str, schema: str) -> None:
        self._began_ms = monotonic_ms()
        self._feed = feed
        self._via = via
        self._ledger = Ledger(feed.target.ledger(), feed.feed_id)
        self._ledger.open()
        self._run = FeedRun(feed.feed_id, via, schema, self._ledger.read())

    def begin(self, spark_partitions: int) -> None:
        """Put the plan down, or find it there. Raises FeedConflict when it is another one."""
        plan = self._run.begin(spark_partitions)
        if plan is not None:
            self._ledger.tell_plan(plan)

    def noting(self, bar: Bar) -> Callable[[RoutedRows], None]:
        """What takes each partition that is done."""
        counts = self._run.counts

        def note(routed: RoutedRows) -> None:
            counts.note(routed)
            bar.update(len(counts.routed), self._run.total, counts.rows)

        return note

    def through_raydp(self, messages: DataFrame, bar: Bar, fetch_s_max: float) -> None:
        """Feed by routing tasks; prepare again when RayDP fails."""
        rounds = self._run.rounds
        while not rounds.over:
            try:
                with prepared(messages) as data:
                    self.begin(len(data))
                    self._route(data, bar, fetch_s_max)
                rounds.over = True
            except FetchFailed as failure:
                time.sleep(rounds.failed(failure))
                self._run.state = self._ledger.read()

    def of_blocks(self, blocks: Blocks, bar: Bar) -> None:
        """Feed the blocks of a Ray Dataset; Ray makes a lost one again."""
        self.begin(len(blocks.locations))
        self._route(blocks, bar, self._feed.stall_s)

    def _route(self, source: FrameSource, bar: Bar, fetch_s_max: float) -> None:
        note = self.noting(bar)
        for numbers in self._run.turns():
            feed_round(self._feed, source, numbers, self._run.state, note, fetch_s_max)

    def by_push(self, messages: DataFrame, bar: Bar) -> None:
        """Feed by Spark's Python workers."""
        context = messages.sparkSession.sparkContext
        done, rows = context.accumulator(0), context.accumulator(0)
        run = self._run
        whole = pushed(messages, self._feed, run.state, None, (done, rows))
        self.begin(partitions_of(whole))
        with _watched(lambda: bar.update(done.value, run.total, rows.value)):
            for numbers in run.turns():
                fed = whole
                if len(numbers) < run.total:
                    only = frozenset(numbers)
                    fed = pushed(messages, self._feed, run.state, only, (done, rows))
                push_round(fed, run.counts.note)

    def report(self, queue: str) -> FeedReport:
        """What all of it came to."""
        return self._run.counts.report(
            self._feed.feed_id,
            queue,
            self._via,
            self._feed.target.partitions,
            self._run.already,
            (monotonic_ms() - self._began_ms) / 1_000,
        )


def refuse_stopped(df: DataFrame) -> None:
    """Raise UsageError when the DataFrame's session has ended."""
    if df.sparkSession.sparkContext._jsc is None:
        raise UsageError(
            "the Spark session of this DataFrame has ended: make a session and the DataFrame anew"
        )


def chosen_via(df: DataFrame, via: Via | None) -> Via:
    """The way to go: as wanted, or what the session allows. Raises UsageError."""
    on_ray = is_on_ray(df.sparkSession)
    if via == "raydp" and not on_ray:
        raise UsageError(
            "via='raydp' needs a session whose executors are on Ray: make it with spark_on_ray, "
            "or leave via out"
        )
    return via or ("raydp" if on_ray else "push")


def called_columns(columns: Sequence[Expression | None]) -> dict[str, str]:
    """What the user called each column of a message, for errors."""
    wanted = zip((KEY, PAYLOAD, TIMESTAMP, HEADERS, SCOPE), columns, strict=True)
    return {name: shown(column) for name, column in wanted if column is not None}


@contextmanager
def _watched(look: Callable[[], None]) -> Iterator[None]:
    """Call `look` now and then, on a thread, until the end."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(BAR_EVERY_S):
            look()

    thread = Supervisor("a feed").thread("pxrs-progress", watch, again=lambda: not over.is_set())
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
