"""`pxrs stack`: where the threads of a consumer are."""

from __future__ import annotations

from typing import Annotated

import typer

from pxrs_ray.cli._options import AsJson, TopologyName


def command(
    consumer: Annotated[
        str,
        typer.Argument(help="GROUP/CONSUMER, or CONSUMER, as `pxrs status` names it."),
    ],
    every: Annotated[
        bool, typer.Option("--all", "-a", help="Every thread, not only those that work.")
    ] = False,
    topology: TopologyName = None,
    as_json: AsJson = False,
) -> None:
    """Show in which lines the threads of CONSUMER are now: of a handler that hangs, where.

    Nothing has to be installed, and nothing is stopped. A process that cannot
    answer by itself is looked into from its node.
    """
    from pxrs_ray.cli._ray import connect, name_of
    from pxrs_ray.cli._show import answer, plain

    connect()
    from pxrs_ray.actors.client.consumer_stacks import consumer_stacks
    from pxrs_ray.actors.cluster.named_actors import actors_of, not_running

    name = name_of(topology)
    if not actors_of(name):
        raise not_running(name)
    found = consumer_stacks(name, consumer)
    answer(plain(found) if as_json else None, as_json, found.view if every else found.at_work)
