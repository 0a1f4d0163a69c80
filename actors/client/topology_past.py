"""Asks the coordinator for the last hour of a topology's groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pxrs_ray.actors.cluster.blocking_client import BlockingCoordinatorClient
from pxrs_ray.actors.coordinator.topology_requests import GetPast

if TYPE_CHECKING:
    from pxrs_ray.status.past import Point


def topology_past(topology: str) -> dict[str, list[Point]]:
    """The points of each group, one each five seconds, since the coordinator began."""
    return BlockingCoordinatorClient(topology).call(GetPast())
