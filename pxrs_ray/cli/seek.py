"""`pxrs seek`: moves checkpoints."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pxrs_ray.cli._options import AsJson, GroupName, PartitionsOption, TopologyName, duration
from pxrs_ray.cli._removal import Yes, confirm
from pxrs_ray.errors import UsageError

if TYPE_CHECKING:
    from pxrs_ray.group.seek_plan import PartitionSeek


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
        str | None, typer.Argument(help="start, end, an offset, or a time.", show_default=False)
    ] = None,
    by: Annotated[
        timedelta | None,
        typer.Option(
            "--by",
            parser=duration,
            metavar="DURATION",
            help="So long ago: 90s, 30m, 2h, 1d.",
            show_default=False,
        ),
    ] = None,
    shift: Annotated[
        int | None,
        typer.Option(
            help="By so many messages of each partition; back: --shift=-100.", show_default=False
        ),
    ] = None,
    partition: PartitionsOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would move, and change nothing.")
    ] = False,
    yes: Yes = False,
    topology: TopologyName = None,
    as_json: AsJson = False,
) -> None:
    """Move the checkpoints of a running GROUP, and show the new position of each partition.

    It shows first how many messages come again and how many are skipped, and asks.
    """
    from pxrs_ray.cli._ray import running, steady
    from pxrs_ray.cli._show import answer, console, print_json
    from pxrs_ray.status.rendering import Table

    if sum(each is not None for each in (to, by, shift)) != 1:
        raise UsageError("seek to one place: start, end, OFFSET, TIME, --by or --shift")
    wanted: Any = by if to is None else place(to)
    found = (running if dry_run else steady)(topology).group(group)
    where: dict[str, Any] = {"to": wanted, "partitions": partition or None, "shift": shift}
    if dry_run or not yes:
        plan = found.plan_seek(**where)
        if dry_run and as_json:
            print_json([_told(row) for row in plan.rows])
            return
        if not as_json:
            console().print(plan.view())
        if dry_run:
            return
        refused = f"no checkpoint of {group} was moved: say --yes"
        confirm(f"Move the checkpoints of {group}?", refused)
    moved = found.seek(**where)
    rows = [(f"P{number}", offset) for number, offset in sorted(moved.items())]
    answer(moved, as_json, lambda: Table(("partition", "next offset"), rows))


def _told(row: PartitionSeek) -> dict[str, int]:
    return {
        "partition": row.partition,
        "checkpoint": row.checkpoint,
        "offset": row.offset,
        "repeats": row.repeats,
        "skips": row.skips,
    }
