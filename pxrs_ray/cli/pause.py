"""`pxrs pause`: pauses a group."""

from __future__ import annotations

from pxrs_ray.cli._options import AsJson, GroupName, TopologyName


def command(group: GroupName, topology: TopologyName = None, as_json: AsJson = False) -> None:
    """Pause GROUP: its consumers finish what they hold, and fetch nothing more."""
    from pxrs_ray.cli._ray import steady
    from pxrs_ray.cli._show import answer

    steady(topology).group(group).pause()
    answer({"group": group, "paused": True}, as_json, lambda: f"{group} is paused")
