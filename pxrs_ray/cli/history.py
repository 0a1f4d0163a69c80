"""`pxrs history`: shows the changes of a group."""

from __future__ import annotations

from typing import Annotated

import typer

from pxrs_ray.cli._options import AsJson, GroupName, TopologyName


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
    from pxrs_ray.status.views import changes_table

    asked = running(topology).group(group)
    newest = asked.status().version
    found = list(asked.history(max(0, newest - limit), limit))
    answer(found, as_json, lambda: changes_table(found))
