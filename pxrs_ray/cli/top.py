"""`pxrs top`: a live view of a topology in a terminal."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pxrs_ray.cli._options import TopologyName
from pxrs_ray.errors import DeadlineExceeded

if TYPE_CHECKING:
    from pxrs_ray.status.answers import GroupStatus, TopologyStatus
    from pxrs_ray.status.rates import Rates

CONSUMERS_SHOWN = 12
PROBLEMS_SHOWN = 12


def command(
    interval_s: Annotated[
        float, typer.Option("--interval", min=0.1, help="Seconds between two updates.")
    ] = 1.0,
    frames: Annotated[
        int | None,
        typer.Option("--frames", min=1, help="Stop after this many updates.", show_default=False),
    ] = None,
    topology: TopologyName = None,
) -> None:
    """Watch rates, lag, partitions and consumers; Ctrl-C ends."""
    from rich.live import Live

    from pxrs_ray.cli._ray import running
    from pxrs_ray.cli._show import console
    from pxrs_ray.status.rates import Rates

    found = running(topology)
    rates = Rates()
    left = frames
    screen = sys.stdout.isatty()
    with Live(console=console(), auto_refresh=False, screen=screen, transient=False) as live:
        while left is None or left > 0:
            began_s = time.monotonic()
            try:
                status = found.status()
            except DeadlineExceeded as error:
                live.update(str(error), refresh=True)
            else:
                rates.note(began_s, status)
                live.update(frame(status, rates), refresh=True)
            left = None if left is None else left - 1
            if left != 0:
                time.sleep(max(0.0, began_s + interval_s - time.monotonic()))


def frame(status: TopologyStatus, rates: Rates) -> Any:
    """One picture of everything."""
    from rich.console import Group
    from rich.text import Text

    from pxrs_ray.cli._map import LEGEND
    from pxrs_ray.status.rendering import Table
    from pxrs_ray.status.units import size_text
    from pxrs_ray.status.views import problem_lines

    queues = Table(
        ("queue", "partitions", "messages", "size", "in /s"),
        [
            (q.queue, q.partitions, q.messages, size_text(q.bytes), rates.produced(q.queue))
            for q in status.queues
        ],
    )
    problems = status.problems
    return Group(
        Text.assemble(
            (status.topology, "bold"),
            f"  {status.buffers} buffers, store {status.store.mean_ms:.1f} ms",
            (f"  {len(problems)} problems" if problems else "", "bold red"),
        ),
        queues,
        *(part for group in status.groups for part in _group(group, rates)),
        Text(LEGEND, style="dim"),
        *problem_lines(problems[:PROBLEMS_SHOWN]),
    )


def _group(group: GroupStatus, rates: Rates) -> list[Any]:
    from rich.text import Text

    from pxrs_ray.cli._map import partition_map
    from pxrs_ray.status.rendering import Table
    from pxrs_ray.status.units import span_text
    from pxrs_ray.status.views import group_state, working_count

    title = Text.assemble(
        ("group ", "dim"),
        (group.group, "bold"),
        f" of {group.queue}: ",
        group_state(group).__rich__(),
        f"  lag {group.lag:,}, {span_text(group.lag_ms)} behind, "
        f"{rates.consumed(group.group):,.0f} /s, "
        f"{working_count(group)} of {group.wanted} consumers",
    )
    lags = {p.partition: p.lag or 0 for p in group.partitions}
    rows = sorted(
        (
            (c.member, c.state, len(c.partitions), sum(lags[p] for p in c.partitions), c.processed)
            for c in group.consumers
        ),
        key=lambda row: -row[3],
    )
    shown = Table(("consumer", "state", "partitions", "lag", "processed"), rows[:CONSUMERS_SHOWN])
    return [title, partition_map(group), shown]
