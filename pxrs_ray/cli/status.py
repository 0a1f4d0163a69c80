"""`pxrs status`: what runs, who owns what, and what is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pxrs_ray.cli._options import AsJson, MaybeGroup, TopologyName

if TYPE_CHECKING:
    from pxrs_ray.status.answers import GroupStatus, TopologyStatus


def command(
    group: MaybeGroup = None, topology: TopologyName = None, as_json: AsJson = False
) -> None:
    """Show queues, groups and problems; with GROUP, each of its partitions and consumers."""
    from pxrs_ray.cli._ray import running
    from pxrs_ray.cli._show import answer
    from pxrs_ray.status.views import topology_view

    found = running(topology)
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
