"""`MemberDesk`: what members of a group call. All of it is idempotent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pxrs_ray.actors.crew import next_incarnation
from pxrs_ray.errors import AlreadyExists, Fenced
from pxrs_ray.events import Assignment, Commit, Heartbeat, Join, Leave, Progress, Release
from pxrs_ray.model import Incarnation, Member, MemberId, Outcome

if TYPE_CHECKING:
    from pxrs_ray.actors.group_shell import GroupShell


class MemberDesk:
    """The calls of one group's members, whether actors of the crew or consumers that pull."""

    def __init__(self, shell: GroupShell) -> None:
        self._shell = shell

    async def join(
        self, member: MemberId, incarnation: Incarnation | None
    ) -> tuple[Incarnation, Assignment | None]:
        """Register a member that the crew does not know. The newest incarnation of a name wins.

        A repeat with the incarnation that was answered changes nothing.
        """
        if self._shell.crew is not None and member in self._shell.crew.hands:
            raise AlreadyExists(f"{member} is the name of a consumer actor: choose another")
        number = (
            incarnation
            if incarnation is not None
            else next_incarnation(self._shell.host, self._shell.incarnations, member)
        )
        config = self._shell.spec.config
        reply = await self._shell.host.submit(
            Join((Member(member, number, grace_ms=config.grace_ms),))
        )
        return number, reply.assignment

    async def rejoin(
        self, member: MemberId, lost: Incarnation
    ) -> tuple[Incarnation, Assignment | None]:
        """Give a member that lost its membership a new incarnation, if no other took its place."""
        if self._shell.crew is not None and member in self._shell.crew.hands:
            number = await self._shell.crew.rejoin(member, lost)
        else:
            if self._shell.host.core.newest_incarnation(member) > lost:
                raise Fenced(f"{member}#{lost} was replaced by a newer incarnation")
            number = next_incarnation(self._shell.host, self._shell.incarnations, member)
        config = self._shell.spec.config
        reply = await self._shell.host.submit(
            Join((Member(member, number, grace_ms=config.grace_ms),))
        )
        return number, reply.assignment

    async def heartbeat(
        self, member: MemberId, incarnation: Incarnation, seen: tuple[int, int]
    ) -> Assignment | None:
        """Renew a lease."""
        return (await self._shell.host.submit(Heartbeat(member, incarnation, seen))).assignment

    async def watch(
        self, member: MemberId, incarnation: Incarnation, seen: tuple[int, int], wait_ms: int
    ) -> Assignment | None:
        """Wait for a newer assignment."""
        return await self._shell.host.watch(Heartbeat(member, incarnation, seen), wait_ms)

    async def commit(
        self, member: MemberId, incarnation: Incarnation, rows: Sequence[tuple[Any, ...]]
    ) -> tuple[Outcome, ...]:
        """Move checkpoints on."""
        progress = tuple(Progress(*row) for row in rows)
        return (await self._shell.host.submit(Commit(member, incarnation, progress))).outcomes

    async def release(
        self, member: MemberId, incarnation: Incarnation, rows: Sequence[tuple[Any, ...]]
    ) -> tuple[Outcome, ...]:
        """Hand partitions back."""
        progress = tuple(Progress(*row) for row in rows)
        return (await self._shell.host.submit(Release(member, incarnation, progress))).outcomes

    async def leave(self, member: MemberId, incarnation: Incarnation, cause: str) -> None:
        """Begin to leave."""
        await self._shell.host.submit(Leave(member, incarnation, cause))
