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

import ray
from ray.exceptions import RayError

from pxrs_ray.actors.cluster.process_end import NO_PROCESS
from pxrs_ray.actors.consumer.consumer_actor import ConsumerInfo
from pxrs_ray.actors.consumer.specs import ConsumerSpec
from pxrs_ray.actors.coordinator.group_host import GroupHost
from pxrs_ray.config import GroupConfig
from pxrs_ray.group.incarnations import next_above
from pxrs_ray.model import Incarnation, Member, MemberId
from pxrs_ray.supervision.restart_rules import FaultsInARow, RestartRules
from pxrs_ray.supervision.supervisor import within

INFO_WAIT_S = 0.5
QUICK_DEATH_S = 3.0


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
    # What it is known to work by; None is not known.
    config: GroupConfig | None = None
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    faults: FaultsInARow = field(default_factory=lambda: FaultsInARow(RestartRules()))

    def as_member(self, config: GroupConfig) -> Member:
        """The member as its group should know it; its actor's name is what it will show."""
        return joining_member(self.member, self.incarnation, self.actor, config)

    def note_end(self) -> None:
        """Its process is known to have ended; one that fails to start stays failed.

        The core answers a death by a dismissal: that of one that runs is of one that is silent.
        """
        if self.state == "running":
            self.state = "starting"

    def count_death(self) -> None:
        """It has died now: count how often it did soon after its start."""
        is_quick = time.monotonic() - self.born_s < QUICK_DEATH_S
        self.quick_deaths = self.quick_deaths + 1 if is_quick else 0

    def is_made(self, spec: ConsumerSpec) -> None:
        """A new process comes for it, made of `spec`."""
        self.incarnation, self.actor, self.config = spec.incarnation, spec.actor, spec.group.config
        self.state, self.reason, self.born_s = "starting", "", time.monotonic()
        self.pid, self.node = 0, ""


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


def is_member(host: GroupHost, replica: ConsumerReplica) -> bool:
    """Whether the group has this very incarnation for a member now."""
    known = host.core.state.members.get(replica.member)
    return known is not None and known.member.incarnation == replica.incarnation


async def until_left(host: GroupHost, replica: ConsumerReplica) -> None:
    """Return when it is no member any more."""
    while is_member(host, replica):
        await host.change()
