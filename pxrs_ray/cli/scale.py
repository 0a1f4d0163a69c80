"""`pxrs scale`: sets the number of consumers."""

from __future__ import annotations

from typing import Annotated

import typer

from pxrs_ray.cli._options import AsJson, GroupName, TopologyName


def command(
    group: GroupName,
    consumers: Annotated[
        int, typer.Argument(min=0, help="The number of consumers.", show_default=False)
    ],
    topology: TopologyName = None,
    as_json: AsJson = False,
) -> None:
    """Set the number of consumers of GROUP. Consumers that are removed hand over first."""
    from pxrs_ray.cli._ray import steady
    from pxrs_ray.cli._show import answer

    found = steady(topology).group(group)
    found.scale(consumers)
    status = found.status()
    answer(status, as_json, status.view)
