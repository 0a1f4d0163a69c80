"""`pxrs move`: moves a buffer to another node."""

from __future__ import annotations

from typing import Annotated

import typer

from pxrs_ray.cli._options import AsJson, TopologyName
from pxrs_ray.cli._removal import Yes


def command(
    buffer: Annotated[int, typer.Argument(min=0, help="The buffer's number.", show_default=False)],
    node: Annotated[
        str | None,
        typer.Argument(
            help="The target: a host's address or a node's id; default: the emptiest node."
        ),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="NODE",
            help="Of a buffer with replicas: the node that one leaves; default: the leader's.",
            show_default=False,
        ),
    ] = None,
    yes: Yes = False,
    topology: TopologyName = None,
    as_json: AsJson = False,
) -> None:
    """Move BUFFER with its logs to another node. Its callers pause briefly at the end.

    If something cannot be done (no space, messages in memory), the command says
    so first, and begins only if you confirm it (--yes). Of a buffer with
    replicas, one moves; if it leads, another one leads first.
    """
    from pxrs_ray.cli._leaving import agree
    from pxrs_ray.cli._ray import steady
    from pxrs_ray.cli._show import answer

    found = steady(topology)
    agree([found.plan_move(buffer, node)], f"buffer {buffer} is not moved", yes=yes)
    moved = found.move_buffer(buffer, node, source=source)
    answer(
        moved,
        as_json,
        lambda: (
            f"buffer {moved.buffer} moved from host {moved.source} to {moved.target}: "
            f"{moved.copied_bytes:,} bytes were copied, it served nobody for {moved.pause_ms} ms"
        ),
    )
