"""The progress of a feed while it runs."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from pxrs_ray.feed.feed_run import FeedReport as FeedReport


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
