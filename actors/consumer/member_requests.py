"""What members ask of their group.

See `pxrs_ray.actors.cluster.coordinator_request`. Members go on while the registry is away: their
group answers them itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pxrs_ray.actors.cluster.coordinator_request import GroupRequest, Request, WhileAway

if TYPE_CHECKING:
    from pxrs_ray.actors.consumer.specs import GroupSpec

MEMBER_WAIT_S = 30.0


@dataclass(frozen=True)
class GetGroupSpec(Request["GroupSpec"]):
    """A group as its members must know it."""

    group: str


@dataclass(frozen=True)
class MemberCall(GroupRequest[Any]):
    """One of the calls of `MemberApi`."""

    name: str
    given: tuple[Any, ...]
    while_away = WhileAway.GOES_ON
    wait_s = MEMBER_WAIT_S
