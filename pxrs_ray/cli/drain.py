"""`pxrs drain`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from pxrs_ray.cli._options import AsJson, GroupName, TopologyName
from pxrs_ray.errors import DeadlineExceeded

if TYPE_CHECKING:
    from pxrs_ray.actors.group import Group

LOOK_EVERY_S = 0.5


def command(
    group: GroupName,
    consumer: Annotated[
        str | None, typer.Argument(help="Only this consumer; all when left out.")
    ] = None,
    empty: Annotated[
        bool, typer.Option("--empty", help="First wait until GROUP has no lag left.")
    ] = False,
    wait_s: Annotated[
        float, typer.Option("--wait", min=0, help="With --empty: for how many seconds.")
    ] = 300.0,
    topology: TopologyName = None,
    as_json: AsJson = False,
) -> None:
    """Let consumers of GROUP finish, commit, hand over and end; checkpoints stay."""
    from pxrs_ray.cli._ray import steady
    from pxrs_ray.cli._show import answer

    found = steady(topology).group(group)
    if empty:
        _wait_until_empty(found, wait_s)
    if consumer is None:
        found.stop()
    else:
        found.remove_consumer(consumer)
    told = {"group": group, "drained": consumer or "all", "lag": found.lag()}
    answer(told, as_json, lambda: f"{consumer or group} is drained, lag {told['lag']:,}")


def _wait_until_empty(group: Group, wait_s: float) -> None:
    end_s = time.monotonic() + wait_s
    while lag := group.lag():
        if time.monotonic() > end_s:
            raise DeadlineExceeded(
                f"{group.name} still has a lag of {lag:,} after {wait_s:g} s; nothing was stopped"
            )
        time.sleep(LOOK_EVERY_S)
