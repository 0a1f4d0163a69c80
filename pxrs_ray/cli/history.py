"""`pxrs history`: shows the changes of a group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pxrs_ray.cli._options import AsJson, GroupName, TopologyName

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pxrs_ray.model import Change


def command(
    group: GroupName,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, help="Show this many of the newest changes.")
    ] = 50,
    topology: TopologyName = None,
    as_json: AsJson = False,
) -> None:
    """Show the newest ownership and membership changes of GROUP with their causes, oldest first."""
    from pxrs_ray.cli._ray import running
    from pxrs_ray.cli._show import answer

    asked = running(topology).group(group)
    newest = asked.status().version
    found = list(asked.history(max(0, newest - limit), limit))
    answer(found, as_json, lambda: changes_table(found))


def changes_table(changes: Iterable[Change]) -> Any:
    """Changes as a table."""
    from pxrs_ray.cli._show import clock_text, table

    return table(
        ("version", "at", "what", "partition", "consumer", "epoch", "checkpoint", "cause"),
        [
            (
                change.version,
                clock_text(change.at_ms),
                change.kind,
                None if change.partition < 0 else f"P{change.partition}",
                f"{change.owner}#{change.incarnation}" if change.owner else None,
                change.epoch,
                change.checkpoint,
                change.cause,
            )
            for change in changes
        ],
    )
