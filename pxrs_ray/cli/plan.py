"""`pxrs plan`."""

from __future__ import annotations

from typing import Annotated

import typer

from pxrs_ray.cli._options import AsJson, GroupName, TopologyName


def command(
    group: GroupName,
    consumers: Annotated[int, typer.Argument(min=0, help="How many.", show_default=False)],
    topology: TopologyName = None,
    as_json: AsJson = False,
) -> None:
    """Show which partitions would move with this many consumers, and why; changes nothing."""
    from rich.console import Group

    from pxrs_ray.cli._ray import running
    from pxrs_ray.cli._show import answer, table

    found = running(topology).group(group).plan(consumers)
    pause = "" if found.pause_ms is None else f", each pausing about {found.pause_ms} ms"
    room = f"; {found.unplaced} consumers wait for new nodes" if found.unplaced else ""
    moves = [(f"P{m.partition}", m.source, m.target, m.reason) for m in found.moves]
    answer(
        found,
        as_json,
        lambda: Group(
            f"{found.cause}: {len(found.moves)} partitions move{pause}{room}",
            table(("partition", "from", "to", "why"), moves),
            table(("consumer", "partitions then"), sorted(found.counts.items())),
        ),
    )
