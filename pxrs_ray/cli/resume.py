"""`pxrs resume`: ends a pause."""

from __future__ import annotations

from pxrs_ray.cli._options import AsJson, GroupName, TopologyName


def command(group: GroupName, topology: TopologyName = None, as_json: AsJson = False) -> None:
    """Let the consumers of a paused GROUP fetch again."""
    from pxrs_ray.cli._ray import steady
    from pxrs_ray.cli._show import answer

    steady(topology).group(group).resume()
    answer({"group": group, "paused": False}, as_json, lambda: f"{group} is resumed")
