"""`pxrs drain`: empties a group of consumers, or a node."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from pxrs_ray.cli._leaving import RATE_USUAL, Rate
from pxrs_ray.cli._options import AsJson, TopologyName
from pxrs_ray.cli._removal import Yes
from pxrs_ray.errors import DeadlineExceeded, NotFound, UsageError

if TYPE_CHECKING:
    from pxrs_ray.actors.client.group import Group

LOOK_EVERY_S = 0.5
DEADLINE_USUAL_S = 600.0


def command(
    what: Annotated[
        str,
        typer.Argument(
            metavar="GROUP|NODE",
            help="A consumer group; or a node, by its host's address or its id.",
            show_default=False,
        ),
    ],
    consumer: Annotated[
        str | None, typer.Argument(help="Only this consumer; default: all.")
    ] = None,
    empty: Annotated[
        bool, typer.Option("--empty", help="Wait first until GROUP has no lag.")
    ] = False,
    wait_s: Annotated[
        float, typer.Option("--wait", min=0, help="With --empty: wait at most this many seconds.")
    ] = 300.0,
    deadline_s: Annotated[
        float | None,
        typer.Option(
            "--deadline",
            min=1,
            help="With a NODE: its host goes after this many seconds; default: 600.",
            show_default=False,
        ),
    ] = None,
    rate: Rate = RATE_USUAL,
    yes: Yes = False,
    topology: TopologyName = None,
    as_json: AsJson = False,
) -> None:
    """Let the consumers of GROUP finish, commit, hand over and exit. Checkpoints stay.

    With a NODE, have Ray drain it, and wait until it is empty: consumers hand
    over to consumers on other nodes, and buffers move their logs to other
    disks. If something cannot be done, the command says so first, and begins
    only if you confirm it (--yes). Ray does not take a drain back.
    """
    from pxrs_ray.cli._show import answer

    if deadline_s is not None or _is_node(what, topology):
        if consumer is not None or empty:
            raise UsageError("CONSUMER and --empty go with a GROUP, --deadline goes with a NODE")
        from pxrs_ray.cli._leaving import drain_node

        end_s = deadline_s or DEADLINE_USUAL_S
        drain_node(what, end_s, rate, topology, yes=yes, as_json=as_json)
        return
    found = _group(what, topology)
    if empty:
        _wait_until_empty(found, wait_s)
    if consumer is None:
        found.stop()
    else:
        found.remove_consumer(consumer)
    told = {"group": what, "drained": consumer or "all", "lag": found.lag()}
    answer(told, as_json, lambda: f"{consumer or what} is drained, lag {told['lag']:,}")


def _is_node(what: str, topology: str | None) -> bool:
    """Whether a living node has this name, and no group. A group's name goes before a node's id."""
    from pxrs_ray.cli._ray import connect

    connect()
    from pxrs_ray.actors.client.topology import Topology
    from pxrs_ray.actors.cluster.named_actors import running_topologies
    from pxrs_ray.actors.cluster.node_drain import node_called

    if node_called(what) is None:
        return False
    names = [topology] if topology is not None else running_topologies()
    return not any(what == g.group for name in names for g in Topology(name).status().groups)


def _group(what: str, topology: str | None) -> Group:
    from pxrs_ray.actors.cluster.node_drain import nodes_told
    from pxrs_ray.cli._ray import steady

    found = steady(topology)
    try:
        return found.group(what)
    except NotFound as error:
        raise NotFound(
            f"{error}; no node has that name or address either: {nodes_told()}"
        ) from None


def _wait_until_empty(group: Group, wait_s: float) -> None:
    end_s = time.monotonic() + wait_s
    while lag := group.lag():
        if time.monotonic() > end_s:
            raise DeadlineExceeded(
                f"{group.name} still has a lag of {lag:,} after {wait_s:g} s; nothing was stopped"
            )
        time.sleep(LOOK_EVERY_S)
