"""`ConsumerReplica`: one consumer that a group should have; and calls to several of them at
once."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterable
from contextlib import AsyncExitStack, suppress
from dataclasses import field
from typing import Any

import ray
from ray.exceptions import RayError

from pxrs_ray.actors.cluster.process_end import NO_PROCESS
from pxrs_ray.actors.cluster.process_file import is_stopped
from pxrs_ray.actors.consumer.consumer_info import ConsumerInfo
from pxrs_ray.actors.consumer.specs import ConsumerSpec
from pxrs_ray.actors.coordinator.group_host import GroupHost
from pxrs_ray.config import GroupConfig
from pxrs_ray.group.incarnations import next_above
from pxrs_ray.group.replica_life import ReplicaLife
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Incarnation, Member, MemberId
from pxrs_ray.supervision.supervisor import within

INFO_WAIT_S = 0.5


@dataclass(slots=True)
class ConsumerReplica(ReplicaLife):
    """One wanted consumer, with what belongs to its process."""

    pid: int = 0
    node: str = ""
    handle: Any = None
    # Answers when its process is up.
    ready: asyncio.Future[Any] | None = None
    # What it is known to work by; None is not known.
    config: GroupConfig | None = None
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    # Its end as the kernel tells it, and what was opened to hear of it.
    ended: asyncio.Future[int] | None = None
    opened: AsyncExitStack = field(default_factory=AsyncExitStack)

    def as_member(self, config: GroupConfig) -> Member:
        """The member as its group should know it; its actor's name is what it will show."""
        return joining_member(self.member, self.incarnation, self.actor, config)

    def is_made(self, spec: ConsumerSpec) -> None:
        """A new process comes for it, made of `spec`."""
        self.is_new(spec.incarnation, spec.actor, time.monotonic())
        self.config, self.pid, self.node, self.ready = spec.group.config, 0, "", None


def token_label(token: str) -> str:
    """How the token that a member showed as it joined is kept with it."""
    return f"session:{token}"


def joining_member(
    member: MemberId, incarnation: Incarnation, token: str, config: GroupConfig
) -> Member:
    """A member as its group should know it, whichever way it joins."""
    weight = config.weight_of(member)
    return Member(member, incarnation, weight, config.grace_ms, (token_label(token),))


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


def pid_here(replica: ConsumerReplica) -> int:
    """Its process, where that is known and on this node."""
    is_here = replica.pid and replica.node == ray.get_runtime_context().get_node_id()
    return replica.pid if is_here else NO_PROCESS


def stopped_here(replica: ConsumerReplica) -> int:
    """Its process, where that is on this node and stopped; 0 otherwise."""
    pid = pid_here(replica)
    return pid if pid != NO_PROCESS and is_stopped(pid) else 0


def kill_here(replica: ConsumerReplica) -> None:
    """End its process when it is on this node, frozen or not."""
    if (pid := pid_here(replica)) != NO_PROCESS:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def next_incarnation(
    host: GroupHost, given: dict[MemberId, Incarnation], member: MemberId, lost: Incarnation = 0
) -> Incarnation:
    """A number above every incarnation of `member` that anybody has seen, been given or `lost`."""
    return next_above(given, member, max(host.core.newest_incarnation(member), lost))


def member_is(host: GroupHost, member: MemberId) -> Incarnation | None:
    """As which incarnation it is a member now."""
    known = host.core.state.members.get(member)
    return known.member.incarnation if known is not None else None


async def until_left(host: GroupHost, replica: ConsumerReplica) -> None:
    """Return when it is no member any more."""
    while member_is(host, replica.member) == replica.incarnation:
        await host.change()
