"""`pxrs status`: what runs, who owns what, and what is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pxrs_ray.cli._options import AsJson, MaybeGroup, TopologyName
from pxrs_ray.errors import PxrsError

if TYPE_CHECKING:
    from pxrs_ray.status.answers import GroupStatus, TopologyStatus
    from pxrs_ray.status.glance import OneOfSeveral
    from pxrs_ray.status.rendering import View

ANSWER_WAIT_S = 3.0


def command(
    group: MaybeGroup = None, topology: TopologyName = None, as_json: AsJson = False
) -> None:
    """Show queues, groups and problems; with GROUP, each of its partitions and consumers.

    Where several topologies run and none is named, each is shown in a line.
    """
    from pxrs_ray.cli._ray import soon
    from pxrs_ray.cli._show import answer
    from pxrs_ray.status.views import topology_view

    if topology is None and group is None:
        names = _topologies()
        if len(names) > 1:
            told = [_looked_at(name) for name in names]
            answer([each.plain() for each in told], as_json, lambda: _several(told))
            return
        topology = names[0] if names else None
    found = soon(topology)
    if group is not None:
        one = found.group(group).status()
        answer(_plain(one) if as_json else None, as_json, one.view)
        return
    everything = found.status()
    deployed = found.deployed()
    answer(
        {**_plain(everything), "deployed": deployed} if as_json else None,
        as_json,
        lambda: topology_view(everything, deployed),
    )


def _topologies() -> list[str]:
    """Those that have actors, so also one whose coordinator is missing."""
    from pxrs_ray.actors.cluster.named_actors import known_topologies
    from pxrs_ray.cli._ray import connect

    connect()
    return known_topologies()


def _looked_at(name: str) -> OneOfSeveral:
    from pxrs_ray.actors.client.topology import attach
    from pxrs_ray.status.glance import OneOfSeveral

    try:
        return OneOfSeveral.of(attach(name, timeout_s=ANSWER_WAIT_S).status())
    except PxrsError as error:
        return OneOfSeveral.failed(name, error)


def _several(told: list[OneOfSeveral]) -> View:
    from pxrs_ray.status.glance import glances_view

    return glances_view(told)


def _plain(status: TopologyStatus | GroupStatus) -> dict[str, Any]:
    """A status for programs: its fields, its problems, and each group's lag."""
    from pxrs_ray.cli._show import plain
    from pxrs_ray.status.answers import GroupStatus

    told: dict[str, Any] = plain(status)
    told["problems"] = [problem.plain() for problem in status.problems]
    if isinstance(status, GroupStatus):
        return {**told, "lag": status.lag, "lag_ms": status.lag_ms}
    for group, text in zip(status.groups, told["groups"], strict=True):
        text["lag"], text["lag_ms"] = group.lag, group.lag_ms
    return told
