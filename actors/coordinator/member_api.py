"""`MemberApi`: the calls that members make of their group. All of them are idempotent.

Rules of this file. A member that joins shows a token that is its own for as long as it lives (the
actor's name; a random one for a consumer that pulls). A join whose answer was lost is repeated with
the same token, and gets the same answer, also from the next coordinator: the token is kept with the
member.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pxrs_ray.actors.consumer.member_requests import (
    CommitProgress,
    JoinGroup,
    LeaveGroup,
    ReleasePartitions,
    ReportPrepared,
    ReportRefused,
    SendHeartbeat,
    TakeCalls,
)
from pxrs_ray.actors.coordinator.consumer_replica import (
    joining_member,
    next_incarnation,
    token_label,
)
from pxrs_ray.actors.coordinator.consumer_replicas import ConsumerReplicas
from pxrs_ray.actors.coordinator.group_host import GroupHost
from pxrs_ray.actors.coordinator.log_witness import LogWitnessCalls
from pxrs_ray.actors.coordinator.request_handlers import answers_for_group
from pxrs_ray.clock import monotonic_ms
from pxrs_ray.errors import AlreadyExists, Fenced, UsageError
from pxrs_ray.group.call_budget import CallBudget
from pxrs_ray.group.events import (
    Assignment,
    Commit,
    Heartbeat,
    Join,
    Leave,
    PartitionProgress,
    Prepared,
    Release,
    Response,
)
from pxrs_ray.model import Epoch, Incarnation, MemberId, Outcome, PartitionId

# A heartbeat waits here for so much of its member's lease at most, whatever it asks for.
WAIT_PART_MOST = 1 / 3
# So long one member's turn may last to be granted a call.
TURN_WAIT_S_MAX = 0.5


class MemberApi:
    """The calls of one group's members, both consumer actors and consumers that pull."""

    def __init__(
        self, host: GroupHost, replica_set: ConsumerReplicas, logs: LogWitnessCalls
    ) -> None:
        self._host = host
        self._replica_set = replica_set
        self._logs = logs
        self._budget = CallBudget(monotonic_ms())
        # Those who ask have turns, each for as long as it waits for one call at least.
        self._turns = asyncio.Lock()

    @answers_for_group(JoinGroup)
    async def join(
        self, member: MemberId, token: str, lost: Incarnation = 0
    ) -> tuple[Incarnation, Assignment | None]:
        """Register a member, or give one that lost its membership (as `lost`) a new incarnation.

        The newest incarnation of a name wins. Raises Fenced when a member comes back and another
        one has taken its place, AlreadyExists for the name of a consumer actor.
        """
        if not member:
            raise UsageError("a member joins under a name, not under ''")
        core = self._host.core
        found = core.state.members.get(member)
        known = found is not None and token_label(token) in found.member.labels
        if found is not None and known and found.member.incarnation > lost:
            number = found.member.incarnation
        elif member in self._replica_set.replicas:
            number = self._rejoining(member, token, lost)
        elif lost and core.newest_incarnation(member) > lost:
            raise Fenced(f"{member}#{lost} was replaced by a newer incarnation")
        else:
            number = next_incarnation(self._host, self._replica_set.incarnations, member, lost)
        joining = joining_member(member, number, token, self._replica_set.spec.config)
        reply = await self._host.submit(Join((joining,)))
        return number, reply.assignment

    def _rejoining(self, member: MemberId, actor: str, lost: Incarnation) -> Incarnation:
        supervisor = self._replica_set.supervisor
        assert supervisor is not None
        if not lost:
            raise AlreadyExists(f"{member} is the name of a consumer actor: choose another")
        return supervisor.rejoining(member, actor)

    @answers_for_group(SendHeartbeat)
    async def heartbeat(
        self, member: MemberId, incarnation: Incarnation, seen: tuple[int, int], wait_ms: int
    ) -> Response:
        """Renew a lease from now on, and wait for an assignment that is newer than `seen`.

        It is answered as soon as there is one, without one after `wait_ms`; see
        `GroupHost.heartbeat`.
        """
        lease_s = self._host.core.settings.lease_ms / 1_000
        wait_s = min(wait_ms / 1_000, lease_s * WAIT_PART_MOST)
        return await self._host.heartbeat(Heartbeat(member, incarnation, seen), wait_s)

    @answers_for_group(CommitProgress)
    async def commit(
        self, member: MemberId, incarnation: Incarnation, rows: tuple[PartitionProgress, ...]
    ) -> tuple[Outcome, ...]:
        """Move checkpoints on; answered when they are durable."""
        return (await self._host.submit(Commit(member, incarnation, rows))).outcomes

    @answers_for_group(ReleasePartitions)
    async def release(
        self, member: MemberId, incarnation: Incarnation, rows: tuple[PartitionProgress, ...]
    ) -> tuple[Outcome, ...]:
        """Hand partitions back with their final checkpoints."""
        return (await self._host.submit(Release(member, incarnation, rows))).outcomes

    @answers_for_group(ReportPrepared)
    async def prepared(
        self, member: MemberId, incarnation: Incarnation, partitions: Sequence[PartitionId]
    ) -> None:
        """A member is ready to take partitions over."""
        await self._host.submit(Prepared(member, incarnation, tuple(partitions)))

    @answers_for_group(ReportRefused)
    async def refused(
        self,
        member: MemberId,
        incarnation: Incarnation,
        epochs: Sequence[tuple[PartitionId, Epoch]],
    ) -> None:
        """Logs refused a member as one whose time is over, under these epochs.

        Mostly they are right, and its newer assignment is on the way. Where it owns them yet,
        the registry knows less than the logs: they are taken back, and granted above.
        """
        state = self._host.core.state
        known = [(p, epoch) for p, epoch in epochs if 0 <= p < len(state.rows)]
        ours = [p for p, epoch in known if state.holds(p, member, incarnation, epoch)]
        if ours:
            await self._logs.refused(ours)

    @answers_for_group(TakeCalls)
    async def take_calls(self, member: MemberId, costs: tuple[float, ...]) -> tuple[int, int]:
        """How many calls may begin, from the first on, and when to ask for the next.

        Members have turns: one that asks for many is granted what there is, and goes behind the
        others. Nobody is kept waiting for long.
        """
        async with self._turns:
            granted, wait_ms = self._take(costs)
            if not granted and costs:
                await asyncio.sleep(min(wait_ms / 1_000, TURN_WAIT_S_MAX))
                granted, wait_ms = self._take(costs)
        return granted, wait_ms

    def _take(self, costs: tuple[float, ...]) -> tuple[int, int]:
        config = self._replica_set.spec.config
        return self._budget.take(
            costs,
            monotonic_ms(),
            calls_per_minute=config.calls_per_minute,
            cost_per_minute=config.cost_per_minute,
        )

    @answers_for_group(LeaveGroup)
    async def leave(self, member: MemberId, incarnation: Incarnation, cause: str) -> None:
        """Begin to leave: the member is asked to hand its partitions back."""
        await self._host.submit(Leave(member, incarnation, cause))
