"""`Group`: a handle on one consumer group, for a driver, a job or a notebook."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from pxrs_ray.actors.cluster.blocking_client import BlockingCoordinatorClient
from pxrs_ray.actors.coordinator.group_requests import (
    AddConsumer,
    PauseGroup,
    PlanScale,
    PlanSeek,
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
from pxrs_ray.clock import wall_ms
from pxrs_ray.errors import DeadlineExceeded, UsageError
from pxrs_ray.model import MemberId, Offset, PartitionId

if TYPE_CHECKING:
    from pxrs_ray.actors.client.group_dead_letters import GroupDeadLetters
    from pxrs_ray.actors.client.group_quarantine import GroupQuarantine
    from pxrs_ray.actors.client.plans import ShownPlan, ShownSeekPlan
    from pxrs_ray.actors.client.pull_consumer import PullConsumer
    from pxrs_ray.actors.consumer.handler import HandlerRef
    from pxrs_ray.status.answers import GroupStatus, History
    from pxrs_ray.topology.removal import Removal

# For how long a lag is asked for whose buffers do not all answer, and how often.
LAG_WAIT_S = 30.0
LAG_LOOK_S = 0.1

# An offset, 'start', 'end', a moment, or how long ago.
SeekTo = int | str | datetime | timedelta


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
        from pxrs_ray.actors.consumer.handler import handler_ref

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
        to: SeekTo | None = None,
        partitions: Sequence[PartitionId] | PartitionId | None = None,
        *,
        shift: int | None = None,
    ) -> dict[PartitionId, Offset]:
        """Move the checkpoints of running partitions, and answer where they are then.

        `to` is an offset, 'start', 'end', a time (the first message not older than it), or a
        timedelta: so long ago. `shift` moves by so many messages instead, back where it is
        negative, and stops at the log's ends.
        """
        begins = None
        if shift is not None:
            # Asked again after a fault it counts from there, and is not made twice.
            plan = self.plan_seek(to, partitions, shift=shift)
            begins = {row.partition: row.checkpoint for row in plan.rows}
        request = SeekGroup(self.name, *_sought(to, shift), _list(partitions), begins)
        return self._coordinator.call(request)

    def plan_seek(
        self,
        to: SeekTo | None = None,
        partitions: Sequence[PartitionId] | PartitionId | None = None,
        *,
        shift: int | None = None,
    ) -> ShownSeekPlan:
        """How many messages such a seek would repeat and skip now. Changes nothing."""
        from pxrs_ray.actors.client.plans import ShownSeekPlan

        asked = PlanSeek(self.name, *_sought(to, shift), _list(partitions))
        return ShownSeekPlan.of(self._coordinator.call(asked))

    @property
    def quarantine(self) -> GroupQuarantine:
        """What the group has put aside under failure_policy = "quarantine"."""
        from pxrs_ray.actors.client.group_quarantine import GroupQuarantine

        return GroupQuarantine(self.topology, self.name)

    @property
    def dead_letters(self) -> GroupDeadLetters:
        """What the group has given up under failure_policy = "dead_letter"."""
        from pxrs_ray.actors.client.group_dead_letters import GroupDeadLetters

        return GroupDeadLetters(self.topology, self.name)

    # --- asking -----------------------------------------------------------------------------------

    def status(self) -> GroupStatus:
        """Partitions, consumers, lag and problems at this moment."""
        return self._coordinator.call(GetGroupStatus(self.name))

    def lag(self) -> int:
        """Messages that the group has not passed yet.

        A buffer that does not answer is waited for: who waits for a lag of 0 must not be told what
        the others have. Raises DeadlineExceeded that names it.
        """
        end_s = time.monotonic() + LAG_WAIT_S
        while (status := self.status()).unknown:
            if time.monotonic() >= end_s:
                told = "; ".join(report.text for report in status.unknown)
                raise DeadlineExceeded(f"the lag of {self.name} is not known: {told}")
            time.sleep(LAG_LOOK_S)
        return status.lag

    def plan(self, consumers: int) -> ShownPlan:
        """What having that many consumers would move, and why."""
        from pxrs_ray.actors.client.plans import ShownPlan

        return ShownPlan.of(self._coordinator.call(PlanScale(self.name, consumers)))

    def history(self, after_version: int = 0, limit: int = 1_000) -> History:
        """Ownership and membership changes, oldest first."""
        return self._coordinator.call(GetHistory(self.name, after_version, limit))


def _list(
    partitions: Sequence[PartitionId] | PartitionId | None,
) -> Sequence[PartitionId] | None:
    return [partitions] if isinstance(partitions, int) else partitions


def _sought(to: SeekTo | None, shift: int | None) -> tuple[str, int]:
    """The kind of a seek, and its value. Raises UsageError."""
    if (to is None) == (shift is None):
        raise UsageError("seek either to a place, or by a shift")
    if shift is not None:
        return "shift", shift
    if isinstance(to, timedelta):
        return "time", wall_ms() - round(to.total_seconds() * 1_000)
    if isinstance(to, datetime):
        if to.tzinfo is None:
            raise UsageError(f"seek to a datetime with a time zone: {to!r} has none")
        return "time", round(to.timestamp() * 1_000)
    if isinstance(to, int) and not isinstance(to, bool):
        return "offset", to
    if to == "start" or to == "end":
        return to, 0
    raise UsageError(f"seek to an offset, 'start', 'end', a datetime or a timedelta, not {to!r}")
