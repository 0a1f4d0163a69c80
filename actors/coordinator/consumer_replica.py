"""`ConsumerReplica`: one consumer that a group should have; and calls to several of them at
once."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ray.exceptions import RayError

from pxrs_ray.actors.consumer.consumer_actor import ConsumerInfo
from pxrs_ray.actors.coordinator.group_runtime import GroupRuntime
from pxrs_ray.group.incarnations import next_above
from pxrs_ray.model import Incarnation, Member, MemberId
from pxrs_ray.supervision.restart_rules import FaultsInARow, RestartRules
from pxrs_ray.supervision.supervisor import within

INFO_WAIT_S = 0.5


@dataclass(slots=True)
class ConsumerReplica:
    """One wanted consumer. `state` is starting, pending, running, silent, leaving or failed."""

    member: MemberId
    incarnation: Incarnation = 0
    actor: str = ""
    state: str = "starting"
    reason: str = ""
    pid: int = 0
    node: str = ""
    handle: Any = None
    born_s: float = 0.0
    quick_deaths: int = 0
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    faults: FaultsInARow = field(default_factory=lambda: FaultsInARow(RestartRules()))

    def starts(self, incarnation: Incarnation, actor: str) -> None:
        """Another actor is made for it."""
        self.incarnation, self.actor = incarnation, actor
        self.state, self.reason, self.born_s = "starting", "", time.monotonic()
        self.pid, self.node = 0, ""

    def kill_process(self) -> None:
        """Kill its process, which is on this machine."""
        if self.pid:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def as_member(self, grace_ms: int) -> Member:
        """The member as the group should know it; its actor's name is what it will show."""
        label = f"session:{self.actor}"
        return Member(self.member, self.incarnation, grace_ms=grace_ms, labels=(label,))


async def infos_of(replicas: Iterable[ConsumerReplica]) -> dict[MemberId, ConsumerInfo]:
    """What each consumer reports of itself, leaving out those that do not answer."""

    async def ask(replica: ConsumerReplica) -> ConsumerInfo | None:
        try:
            answer: ConsumerInfo = await within(INFO_WAIT_S, replica.handle.info.remote())
        except (RayError, TimeoutError):
            return None
        return answer

    answers = await asyncio.gather(*(ask(replica) for replica in replicas))
    return {info.member: info for info in answers if info is not None}


def next_incarnation(
    host: GroupRuntime, given: dict[MemberId, Incarnation], member: MemberId, lost: Incarnation = 0
) -> Incarnation:
    """A number above every incarnation of `member` that anybody has seen, been given or `lost`."""
    return next_above(given, member, max(host.core.newest_incarnation(member), lost))


def is_member(host: GroupRuntime, replica: ConsumerReplica) -> bool:
    """Whether the group has this very incarnation for a member now."""
    known = host.core.state.members.get(replica.member)
    return known is not None and known.member.incarnation == replica.incarnation


async def until_left(host: GroupRuntime, replica: ConsumerReplica) -> None:
    """Return when it is no member any more."""
    while is_member(host, replica):
        await host.change()
