"""What drivers ask of one group: its commands, and what they would do.

See `pxrs_ray.actors.cluster.coordinator_request`. `pxrs_ray.actors.client.group.Group` says what
each means to a user.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from pxrs_ray.actors.cluster.coordinator_request import GroupRequest, WhileAway
from pxrs_ray.late_dataclass import dataclass

if TYPE_CHECKING:
    from pxrs_ray.actors.consumer.handler import HandlerRef
    from pxrs_ray.group.events import Plan
    from pxrs_ray.group.seek_plan import SeekPlan
    from pxrs_ray.model import MemberId, Offset, PartitionId

START_WAIT_S = 120.0
DRAIN_WAIT_S = 120.0

A_co = TypeVar("A_co", covariant=True)


@dataclass(frozen=True)
class GroupCommand(GroupRequest[A_co]):
    """A request that changes the group."""

    while_away = WhileAway.CHANGES


@dataclass(frozen=True)
class StartGroup(GroupCommand[None]):
    """Start consumers with a handler; a group that runs another one is replaced."""

    handler: HandlerRef
    consumers: int
    ray_options: Mapping[str, Any]
    wait_s = START_WAIT_S


@dataclass(frozen=True)
class ScaleGroup(GroupCommand[None]):
    """Have exactly this many consumers."""

    consumers: int
    wait_s = DRAIN_WAIT_S


@dataclass(frozen=True)
class ReleaseScale(GroupCommand[None]):
    """Let the load decide again how many consumers there are."""


@dataclass(frozen=True)
class StopGroup(GroupCommand[None]):
    """Drain and end every consumer."""

    wait_s = DRAIN_WAIT_S


@dataclass(frozen=True)
class AddConsumer(GroupCommand[None]):
    """Start one more consumer, by this name."""

    member: MemberId
    wait_s = START_WAIT_S


@dataclass(frozen=True)
class RemoveConsumer(GroupCommand[None]):
    """Drain one consumer and end it."""

    member: MemberId
    wait_s = DRAIN_WAIT_S


@dataclass(frozen=True)
class RestartConsumer(GroupCommand[None]):
    """End one consumer's process, and start it anew."""

    member: MemberId
    wait_s = START_WAIT_S


@dataclass(frozen=True)
class RebalanceGroup(GroupCommand[None]):
    """Share the partitions out anew."""


@dataclass(frozen=True)
class PauseGroup(GroupCommand[None]):
    """Let consumers finish what they hold, and fetch nothing more."""


@dataclass(frozen=True)
class ResumeGroup(GroupCommand[None]):
    """Fetch again."""


@dataclass(frozen=True)
class SeekGroup(GroupCommand["dict[PartitionId, Offset]"]):
    """Move checkpoints: to an 'offset', a 'time', the 'start', the 'end', or by a 'shift'.

    A shift counts from the checkpoints `begins`, so that asking again moves nothing further.
    """

    kind: str
    value: int
    partitions: Sequence[PartitionId] | None = None
    begins: Mapping[PartitionId, Offset] | None = None
    wait_s = DRAIN_WAIT_S


@dataclass(frozen=True)
class PlanSeek(GroupRequest["SeekPlan"]):
    """What such a seek would repeat and skip."""

    kind: str
    value: int
    partitions: Sequence[PartitionId] | None = None


@dataclass(frozen=True)
class PlanScale(GroupRequest["Plan"]):
    """What having that many consumers would move."""

    consumers: int
