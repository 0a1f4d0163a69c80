"""What members ask of their group.

See `pxrs_ray.actors.cluster.coordinator_request`. Members go on while the registry is away: their
group answers them itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from pxrs_ray.actors.cluster.coordinator_request import GroupRequest, Request, WhileAway
from pxrs_ray.group.events import PartitionProgress
from pxrs_ray.group.member_lease import MEMBER_WAIT_S
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Progress

if TYPE_CHECKING:
    from pxrs_ray.actors.consumer.specs import GroupSpec
    from pxrs_ray.group.events import Assignment, Response
    from pxrs_ray.model import Epoch, Incarnation, MemberId, Outcome, PartitionId

A_co = TypeVar("A_co", covariant=True)


@dataclass(frozen=True)
class GetGroupSpec(Request["GroupSpec"]):
    """A group as its members must know it."""

    group: str


@dataclass(frozen=True)
class MemberRequest(GroupRequest[A_co]):
    """A request of the member of that name."""

    member: MemberId
    while_away = WhileAway.GOES_ON
    wait_s = MEMBER_WAIT_S


@dataclass(frozen=True)
class JoinGroup(MemberRequest["tuple[Incarnation, Assignment | None]"]):
    """Be a member, or be one again that lost its membership as `lost`; its new incarnation."""

    token: str
    lost: Incarnation = 0


@dataclass(frozen=True)
class SendHeartbeat(MemberRequest["Response"]):
    """Renew a lease, and wait for an assignment that is newer than `seen`."""

    incarnation: Incarnation
    seen: tuple[int, int]
    wait_ms: int


@dataclass(frozen=True)
class ProgressRequest(MemberRequest[A_co]):
    """A request that brings progress.

    On the way its rows are plain tuples: a pickler takes a fiftieth of the time for them.
    """

    incarnation: Incarnation
    rows: tuple[PartitionProgress, ...]

    def __getstate__(self) -> dict[str, Any]:
        rows = ((row, row.progress) for row in self.rows)
        plain = [(r.partition, r.epoch, p.checkpoint, p.attempts, p.detail) for r, p in rows]
        return {**self.__dict__, "rows": plain}

    def __setstate__(self, state: dict[str, Any]) -> None:
        rows = (PartitionProgress(p, epoch, Progress(*done)) for p, epoch, *done in state["rows"])
        self.__dict__.update(state, rows=tuple(rows))


@dataclass(frozen=True)
class CommitProgress(ProgressRequest["tuple[Outcome, ...]"]):
    """Move checkpoints on."""


@dataclass(frozen=True)
class ReleasePartitions(ProgressRequest["tuple[Outcome, ...]"]):
    """Hand partitions back with their final checkpoints."""


@dataclass(frozen=True)
class ReportPrepared(MemberRequest[None]):
    """The member is ready to take partitions over."""

    incarnation: Incarnation
    partitions: Sequence[PartitionId]


@dataclass(frozen=True)
class ReportRefused(MemberRequest[None]):
    """Logs refused the member as one whose time is over, under these epochs."""

    incarnation: Incarnation
    epochs: Sequence[tuple[PartitionId, Epoch]]


@dataclass(frozen=True)
class TakeCalls(MemberRequest[tuple[int, int]]):
    """How many calls that have these costs may begin under the group's limits, from the first on;
    and in how many milliseconds to ask for the next."""

    costs: tuple[float, ...]


@dataclass(frozen=True)
class LeaveGroup(MemberRequest[None]):
    """Begin to leave."""

    incarnation: Incarnation
    cause: str
