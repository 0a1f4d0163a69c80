"""The progress of a feed while it runs, and its report when it is over."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from pxrs_ray.spark.routing import RoutedRows


@dataclass(frozen=True, slots=True)
class FeedReport:
    """What one call fed.

    `rows` and `bytes` (of payload) count the whole feed; `rows_already` of them had been fed by
    an earlier call. `partition_rows` is per partition of the queue. `frames_repeated` were sent
    again after a fault, and the logs had them.
    """

    feed_id: str
    queue: str
    via: str
    rows: int
    rows_already: int
    bytes: int
    seconds: float
    spark_partitions: int
    partition_rows: tuple[int, ...]
    frames_added: int
    frames_repeated: int

    @property
    def rows_per_s(self) -> float:
        """The rate of what was added."""
        return (self.rows - self.rows_already) / self.seconds if self.seconds else 0.0

    @property
    def skew(self) -> float:
        """The fullest partition against the mean: 1.0 is even."""
        if not self.rows:
            return 1.0
        return max(self.partition_rows) * len(self.partition_rows) / sum(self.partition_rows)

    def __str__(self) -> str:
        already = f" ({self.rows_already:,} of them before)" if self.rows_already else ""
        return (
            f"feed {self.feed_id!r} into {self.queue!r} via {self.via}: {self.rows:,} rows"
            f"{already}, {self.bytes / 1e6:,.1f} MB in {self.seconds:.2f} s "
            f"({self.rows_per_s:,.0f} rows/s), {self.spark_partitions} Spark partitions, rows per "
            f"partition {min(self.partition_rows):,} to {max(self.partition_rows):,}, "
            f"skew {self.skew:.2f}"
        )


@dataclass(slots=True)
class FeedCounts:
    """Adds up what the partitions of a feed report, each once."""

    routed: dict[int, RoutedRows] = field(default_factory=dict)
    added: int = 0
    repeated: int = 0
    began_s: float = field(default_factory=time.monotonic)

    def note(self, routed: RoutedRows) -> None:
        """Take what became of one Spark partition; a later round says it again."""
        self.routed[routed.number] = routed
        self.added += routed.added
        self.repeated += routed.repeated

    def report(
        self, feed_id: str, queue: str, via: str, partitions: int, already: frozenset[int]
    ) -> FeedReport:
        """The report of all of them; `already` were complete before."""
        every = self.routed.values()
        return FeedReport(
            feed_id,
            queue,
            via,
            sum(one.rows for one in every),
            sum(one.rows for one in every if one.number in already),
            sum(one.bytes for one in every),
            time.monotonic() - self.began_s,
            len(self.routed),
            tuple(sum(one.counts[p] for one in every) for p in range(partitions)),
            self.added,
            self.repeated,
        )


class Bar:
    """A progress bar; does nothing where no terminal shows it."""

    def __init__(self, shown: Progress | None, queue: str) -> None:
        self._shown = shown
        self._began_s = time.monotonic()
        self._task = shown.add_task(queue, total=None, rows="") if shown is not None else None

    def update(self, partitions: int, of: int | None, rows: int) -> None:
        """Show how many Spark partitions are done."""
        if self._shown is not None and self._task is not None:
            rate = rows / max(0.001, time.monotonic() - self._began_s)
            told = f"{rows:,} rows, {rate:,.0f}/s"
            self._shown.update(self._task, completed=partitions, total=of, rows=told)


@contextmanager
def progress_bar(queue: str, wanted: bool | None) -> Iterator[Bar]:
    """A bar on stderr; with `wanted` None only when that is a terminal."""
    if not (sys.stderr.isatty() if wanted is None else wanted):
        yield Bar(None, queue)
        return
    columns = (
        TextColumn("feeding {task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("partitions, {task.fields[rows]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        yield Bar(shown, queue)
