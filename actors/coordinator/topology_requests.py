"""What a topology's coordinator is asked by drivers, jobs and commands.

See `pxrs_ray.actors.cluster.coordinator_request`. `pxrs_ray.actors.client.topology.Topology` says
what each means to a user.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pxrs_ray.actors.cluster.coordinator_request import Request, WhileAway
from pxrs_ray.late_dataclass import dataclass

if TYPE_CHECKING:
    from pxrs_ray.actors.consumer.handler import HandlerRef
    from pxrs_ray.config import Difference, PxrsConfig
    from pxrs_ray.data.protocol import BufferStats, QueueSpec
    from pxrs_ray.status.answers import GroupStatus, History, StoreStatus, TopologyStatus
    from pxrs_ray.status.past import Point
    from pxrs_ray.topology.log_witness import Recovered
    from pxrs_ray.topology.move_plan import Leaving
    from pxrs_ray.topology.move_steps import Moved
    from pxrs_ray.topology.removal import Removal

REMOVAL_WAIT_S = 120.0
MOVE_WAIT_S = 3_600.0

# --- life and configuration -----------------------------------------------------------------------


@dataclass(frozen=True)
class Ping(Request["tuple[str, int, float]"]):
    """Whether it has recovered: fingerprint, process id, and when it began.

    With `begin`, a registry that is nowhere is begun.
    """

    begin: bool = False


@dataclass(frozen=True)
class ShutDown(Request["list[str]"]):
    """Stop everything; which actors are to be killed then."""

    while_away = WhileAway.CHANGES
    wait_s = REMOVAL_WAIT_S


@dataclass(frozen=True)
class GetConfig(Request["PxrsConfig"]):
    """The configuration in force."""


@dataclass(frozen=True)
class ApplyConfig(Request["tuple[Difference, ...]"]):
    """Change what may change live; what differs."""

    wanted: PxrsConfig
    dry_run: bool = False
    while_away = WhileAway.CHANGES


@dataclass(frozen=True)
class GetDeployed(Request[str]):
    """Which file was deployed last."""


@dataclass(frozen=True)
class NoteDeployed(Request[None]):
    """Keep which file was deployed."""

    text: str
    while_away = WhileAway.CHANGES


@dataclass(frozen=True)
class GetDocument(Request[str]):
    """A text that the topology keeps under a name."""

    name: str


@dataclass(frozen=True)
class KeepDocument(Request[None]):
    """Keep a text under a name."""

    name: str
    text: str
    while_away = WhileAway.CHANGES


@dataclass(frozen=True)
class RecoverRegistry(Request["dict[str, Recovered]"]):
    """Go on with a registry that has lost accepted writes; `who` names this very request."""

    who: str
    while_away = WhileAway.CHANGES


# --- queues and groups ----------------------------------------------------------------------------


@dataclass(frozen=True)
class GetQueue(Request["tuple[QueueSpec, PxrsConfig, int]"]):
    """A queue as buffers know it, the configuration, and how many buffers there are."""

    name: str


@dataclass(frozen=True)
class OpenGroup(Request[str]):
    """The full name of a group, which is made if there is none."""

    name: str
    queue: str | None
    options: Mapping[str, Any]
    while_away = WhileAway.CHANGES


@dataclass(frozen=True)
class GetHandler(Request["HandlerRef | None"]):
    """What a group's consumers call; None when it was not started."""

    group: str


# --- asking ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GetStatus(Request["TopologyStatus"]):
    """Everything, at this moment."""

    while_away = WhileAway.TELLS


@dataclass(frozen=True)
class GetGroupStatus(Request["GroupStatus"]):
    """One group, at this moment."""

    group: str
    while_away = WhileAway.TELLS


@dataclass(frozen=True)
class GetStoreStatus(Request["StoreStatus"]):
    """How the registry's store is doing: it is looked at, and nobody else is asked."""

    while_away = WhileAway.TELLS


@dataclass(frozen=True)
class GetPast(Request["dict[str, list[Point]]"]):
    """The last hour of each group: lag and rates."""

    while_away = WhileAway.TELLS


@dataclass(frozen=True)
class GetHistory(Request["History"]):
    """The newest `limit` changes of a group after `after_version`."""

    group: str
    after_version: int
    limit: int


@dataclass(frozen=True)
class GetBufferStats(Request["dict[int, BufferStats]"]):
    """What each buffer has done and holds."""


@dataclass(frozen=True)
class GetOrphans(Request["list[str]"]):
    """Consumer actors that belong to no member of a group."""


@dataclass(frozen=True)
class KillOrphans(Request["list[str]"]):
    """End exactly those."""


# --- buffers --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PlanBufferLoss(Request[str]):
    """What `AcceptBufferLoss` would lose."""

    index: int


@dataclass(frozen=True)
class AcceptBufferLoss(Request[str]):
    """Give up the disk of a buffer whose host is away."""

    index: int
    while_away = WhileAway.CHANGES


@dataclass(frozen=True)
class PlanMove(Request["Leaving"]):
    """What `MoveBuffer` would mean."""

    index: int
    node: str | None
    copy_per_s: float


@dataclass(frozen=True)
class MoveBuffer(Request["Moved"]):
    """Take a buffer with its logs to another node; one of its replicas, where it has several:
    that of the node `source`, or the one that leads."""

    index: int
    node: str | None = None
    source: str | None = None
    while_away = WhileAway.CHANGES
    wait_s = MOVE_WAIT_S


@dataclass(frozen=True)
class LeadElsewhere(Request[str]):
    """Have another replica of a buffer lead; answers the name of the actor that led before."""

    index: int
    while_away = WhileAway.CHANGES


@dataclass(frozen=True)
class PlanDrain(Request["Leaving"]):
    """What it means for this topology that Ray drains a node."""

    node: str
    deadline_s: float
    copy_per_s: float


# --- removing -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PlanGroupRemoval(Request["Removal"]):
    """What removing a group takes away."""

    name: str


@dataclass(frozen=True)
class PlanQueueRemoval(Request["Removal"]):
    """What removing a queue takes away."""

    name: str


@dataclass(frozen=True)
class PlanTopologyRemoval(Request["Removal"]):
    """What removing the topology takes away."""


@dataclass(frozen=True)
class DeleteGroup(Request[None]):
    """Remove a group with its checkpoints."""

    name: str
    force: bool = False
    while_away = WhileAway.CHANGES
    wait_s = REMOVAL_WAIT_S


@dataclass(frozen=True)
class DeleteQueue(Request[None]):
    """Remove a queue with its messages."""

    name: str
    force: bool = False
    while_away = WhileAway.CHANGES
    wait_s = REMOVAL_WAIT_S


@dataclass(frozen=True)
class DeleteTopology(Request[None]):
    """Remove everything of the topology but its actors."""

    while_away = WhileAway.CHANGES
    wait_s = REMOVAL_WAIT_S
