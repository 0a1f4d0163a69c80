"""`pxrs kill-orphans`: ends consumers that belong to no group."""

from __future__ import annotations

from pxrs_ray.cli._options import AsJson, TopologyName


def command(topology: TopologyName = None, as_json: AsJson = False) -> None:
    """End consumer actors that belong to no member of a group, as listed by `pxrs doctor`."""
    from pxrs_ray.cli._ray import running
    from pxrs_ray.cli._show import answer

    ended = running(topology).kill_orphans()
    answer(ended, as_json, lambda: "\n".join(f"{name} is ended" for name in ended) or "none")
