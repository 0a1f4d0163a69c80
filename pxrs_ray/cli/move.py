"""`pxrs move`."""

from __future__ import annotations

from typing import Annotated

import typer

from pxrs_ray.cli._options import AsJson, TopologyName
from pxrs_ray.cli._removal import Yes


def command(
    buffer: Annotated[int, typer.Argument(min=0, help="The buffer's number.", show_default=False)],
    node: Annotated[
        str | None,
        typer.Argument(help="The host's address, or the node's id; the emptiest when left out."),
    ] = None,
    yes: Yes = False,
    topology: TopologyName = None,
    as_json: AsJson = False,
) -> None:
    """Take BUFFER with its logs to another node; who needs it waits for a moment at the end.

    What cannot be done (no room, messages in memory) is told before, and not begun without --yes.
    """
    from pxrs_ray.cli._leaving import agree
    from pxrs_ray.cli._ray import steady
    from pxrs_ray.cli._show import answer

    found = steady(topology)
    agree([found.plan_move(buffer, node)], f"buffer {buffer} is not moved", yes=yes)
    moved = found.move_buffer(buffer, node)
    answer(
        moved,
        as_json,
        lambda: (
            f"buffer {moved.buffer} moved from host {moved.source} to {moved.target}: "
            f"{moved.copied_bytes:,} bytes were copied, it served nobody for {moved.pause_ms} ms"
        ),
    )
