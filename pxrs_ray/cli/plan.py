"""`pxrs plan`: shows what a change would do."""

from __future__ import annotations

from typing import Annotated

import typer

from pxrs_ray.cli._leaving import RATE_USUAL, Rate
from pxrs_ray.cli._options import AsJson, TopologyName
from pxrs_ray.errors import UsageError


def command(
    group: Annotated[
        str | None, typer.Argument(help="The consumer group.", show_default=False)
    ] = None,
    consumers: Annotated[
        int | None, typer.Argument(min=0, help="The number of consumers.", show_default=False)
    ] = None,
    drain: Annotated[
        str | None,
        typer.Option(
            "--drain",
            metavar="NODE",
            help="Show what `pxrs drain NODE` would do.",
            show_default=False,
        ),
    ] = None,
    deadline_s: Annotated[
        float,
        typer.Option(
            "--deadline", min=1, help="With --drain: its host goes after this many seconds."
        ),
    ] = 600.0,
    move: Annotated[
        int | None,
        typer.Option(
            "--move",
            min=0,
            metavar="BUFFER",
            help="Show what `pxrs move BUFFER` would do.",
            show_default=False,
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="NODE", help="With --move: the target node.", show_default=False
        ),
    ] = None,
    rate: Rate = RATE_USUAL,
    topology: TopologyName = None,
    as_json: AsJson = False,
) -> None:
    """Show which partitions of GROUP would move with this many CONSUMERS, and why. Changes nothing.

    Or show what it would mean to drain a node, or to move a buffer: how much is
    copied, how long that takes, how long producers and readers pause, and what
    cannot be done.
    """
    asked = [group is not None, drain is not None, move is not None]
    if sum(asked) != 1 or (group is None) != (consumers is None) or (to and move is None):
        raise UsageError("say GROUP and CONSUMERS, or --drain NODE, or --move BUFFER [--to NODE]")
    if drain is not None:
        _of_drain(drain, deadline_s, rate, topology, as_json=as_json)
    elif move is not None:
        _of_move(move, to, rate, topology, as_json=as_json)
    else:
        _of_scale(str(group), int(consumers or 0), topology, as_json=as_json)


def _of_scale(group: str, consumers: int, topology: str | None, *, as_json: bool) -> None:
    from pxrs_ray.cli._ray import running
    from pxrs_ray.cli._show import answer

    found = running(topology).group(group).plan(consumers)
    answer(found, as_json, found.view)


def _of_drain(
    wanted: str, deadline_s: float, rate: float, topology: str | None, *, as_json: bool
) -> None:
    from pxrs_ray.cli._leaving import MB, agree, every, tell
    from pxrs_ray.cli._ray import connect
    from pxrs_ray.cli._show import print_json

    connect()
    from pxrs_ray.actors.cluster.node_drain import node_to_drain

    node = node_to_drain(wanted)
    plans = [t.plan_drain(node.node, deadline_s, copy_per_s=rate * MB) for t in every(topology)]
    tell(plans, node, deadline_s, rate, quiet=as_json)
    agree(plans, "", yes=True)
    if as_json:
        print_json(plans)


def _of_move(
    buffer: int, to: str | None, rate: float, topology: str | None, *, as_json: bool
) -> None:
    from pxrs_ray.cli._leaving import MB, view
    from pxrs_ray.cli._ray import running
    from pxrs_ray.cli._show import answer

    plan = running(topology).plan_move(buffer, to, copy_per_s=rate * MB)
    answer(plan, as_json, lambda: view(plan, rate))
