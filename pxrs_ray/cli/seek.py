"""`pxrs seek`: moves checkpoints."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from pxrs_ray.cli._options import AsJson, GroupName, Partitions, TopologyName


def place(text: str) -> int | str | datetime:
    """Parse a position: 'start', 'end', an offset, or a time such as 2026-05-01T12:00."""
    if text in ("start", "end"):
        return text
    try:
        return int(text) if text.isdecimal() else datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError, OSError):  # too many digits; a year that no clock knows
        raise typer.BadParameter(
            f"seek to start, end, an offset, or a time like 2026-05-01T12:00, not {text[:50]!r}"
        ) from None


def command(
    group: GroupName,
    to: Annotated[
        str, typer.Argument(help="start, end, an offset, or a time.", show_default=False)
    ],
    partition: Partitions = None,
    topology: TopologyName = None,
    as_json: AsJson = False,
) -> None:
    """Move the checkpoints of a running GROUP, and show the new position of each partition."""
    from pxrs_ray.cli._ray import steady
    from pxrs_ray.cli._show import answer
    from pxrs_ray.status.rendering import Table

    wanted = place(to)
    moved = steady(topology).group(group).seek(wanted, partition or None)
    rows = [(f"P{number}", offset) for number, offset in sorted(moved.items())]
    answer(moved, as_json, lambda: Table(("partition", "next offset"), rows))
