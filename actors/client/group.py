"""`Group`: a handle on one consumer group, for a driver, a job or a notebook."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pxrs_ray.actors.cluster.blocking_client import BlockingCoordinatorClient
from pxrs_ray.actors.consumer.handler import HandlerRef, handler_ref
from pxrs_ray.actors.coordinator.group_requests import (
    AddConsumer,
    PauseGroup,
    PlanScale,
    RebalanceGroup,
    ReleaseScale,
    RemoveConsumer,
    RestartConsumer,
    ResumeGroup,
    ScaleGroup,
    SeekGroup,
    StartGroup,
    StopGroup,
)
from pxrs_ray.actors.coordinator.topology_requests import GetGroupStatus, GetHandler, GetHistory
from pxrs_ray.errors import UsageError
from pxrs_ray.group.events import Plan
from pxrs_ray.model import MemberId, Offset, PartitionId
from pxrs_ray.status.answers import GroupStatus, History

if TYPE_CHECKING:
    from pxrs_ray.actors.client.group_quarantine import GroupQuarantine
    from pxrs_ray.actors.client.pull_consumer import PullConsumer
    from pxrs_ray.topology.removal import Removal


class Group:
    """A group by name; holds no connection and no state."""

    def __init__(self, topology: str, name: str) -> None:
        self.topology = topology
        self.name = name
        self._coordinator = BlockingCoordinatorClient(topology)

    def __reduce__(self) -> tuple[type[Group], tuple[str, str]]:
        return (Group, (self.topology, self.name))

    def __repr__(self) -> str:
        return f"Group({self.name!r} of topology {self.topology!r})"

    def _repr_html_(self) -> str:
        return self.status()._repr_html_()

    # --- consumers --------------------------------------------------------------------------------

    def start(
        self, handler: object, consumers: int = 1, *, mode: str = "auto", **ray_options: Any
    ) -> Group:
        """Start consumers that call `handler` (see `pxrs_ray.actors.consumer.handler` for its
        shapes).

        `ray_options` are those of the consumer actors (num_cpus, resources, ...). Starting again
        with the same handler scales; with another one, the consumers are replaced. Returns when
        those that the cluster has room for own their partitions.
        """
        reference = handler_ref(handler, mode)
        self._coordinator.call(StartGroup(self.name, reference, consumers, ray_options))
        return self

    @property
    def handler(self) -> HandlerRef | None:
        """What its consumers call; None when it was not started. It can be given to `start`."""
        return self._coordinator.call(GetHandler(self.name))

    def scale(self, consumers: int) -> None:
        """Have exactly this many consumers; pins a group that scales itself."""
        self._coordinator.call(ScaleGroup(self.name, consumers))

    def release_scale(self) -> None:
        """Let the load decide again how many consumers there are, where the group scales itself."""
        self._coordinator.call(ReleaseScale(self.name))

    def stop(self) -> None:
        """Drain and end every consumer; checkpoints stay."""
        self._coordinator.call(StopGroup(self.name))

    def add_consumer(self, member: MemberId) -> None:
        """Start one more consumer, by name."""
        self._coordinator.call(AddConsumer(self.name, member))

    def remove_consumer(self, member: MemberId) -> None:
        """Drain one consumer and end it."""
        self._coordinator.call(RemoveConsumer(self.name, member))

    def restart_consumer(self, member: MemberId) -> None:
        """End one consumer's process, frozen or not, and start it anew."""
        self._coordinator.call(RestartConsumer(self.name, member))

    def trigger_rebalance(self) -> None:
        """Share the partitions out anew."""
        self._coordinator.call(RebalanceGroup(self.name))

    def consumer(
        self,
        member: MemberId | None = None,
        *,
        on_assigned: Callable[[PartitionId, Offset], None] | None = None,
        on_revoked: Callable[[PartitionId], None] | None = None,
    ) -> PullConsumer:
        """A member of the group in this very process, to be iterated; a context manager."""
        from pxrs_ray.actors.client.pull_consumer import PullConsumer

        return PullConsumer(self.topology, self.name, member, on_assigned, on_revoked)

    def delete(self, *, force: bool = False) -> Removal:
        """Remove the group with its checkpoints and history; answers what went.

        Raises UsageError while members read for it or the deployed file names it, unless `force`.
        Its name can be used again: such a group begins anew.
        """
        from pxrs_ray.actors.client.topology import Topology

        return Topology(self.topology).delete_group(self.name, force=force)

    # --- steering ---------------------------------------------------------------------------------

    def pause(self) -> None:
        """Let consumers finish what they hold, and fetch nothing more."""
        self._coordinator.call(PauseGroup(self.name))

    def resume(self) -> None:
        """Fetch again."""
        self._coordinator.call(ResumeGroup(self.name))

    def seek(
        self,
        to: int | str | datetime,
        partitions: Sequence[PartitionId] | PartitionId | None = None,
    ) -> dict[PartitionId, Offset]:
        """Move the checkpoints of running partitions, and answer where they are then.

        `to` is an offset, 'start', 'end', or a time (the first message not older than it).
        """
        if isinstance(to, datetime):
            if to.tzinfo is None:
                raise UsageError(f"seek to a datetime with a time zone: {to!r} has none")
            kind, value = "time", round(to.timestamp() * 1_000)
        elif isinstance(to, int) and not isinstance(to, bool):
            kind, value = "offset", to
        elif to in ("start", "end"):
            kind, value = to, 0
        else:
            raise UsageError(f"seek to an offset, 'start', 'end' or a datetime, not {to!r}")
        wanted = [partitions] if isinstance(partitions, int) else partitions
        return self._coordinator.call(SeekGroup(self.name, kind, value, wanted))

    @property
    def quarantine(self) -> GroupQuarantine:
        """What the group has put aside under failure_policy = "quarantine"."""
        from pxrs_ray.actors.client.group_quarantine import GroupQuarantine

        return GroupQuarantine(self.topology, self.name)

    # --- asking -----------------------------------------------------------------------------------

    def status(self) -> GroupStatus:
        """Partitions, consumers, lag and problems at this moment."""
        return self._coordinator.call(GetGroupStatus(self.name))

    def lag(self) -> int:
        """Messages that the group has not passed yet."""
        return self.status().lag

    def plan(self, consumers: int) -> Plan:
        """What having that many consumers would move, and why."""
        return self._coordinator.call(PlanScale(self.name, consumers))

    def history(self, after_version: int = 0, limit: int = 1_000) -> History:
        """Ownership and membership changes, oldest first."""
        return self._coordinator.call(GetHistory(self.name, after_version, limit))
