"""`ConsumerReplica`: one consumer that a crew wants to have, and what is asked of several."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ray.exceptions import RayError

from pxrs_ray.actors.consumer.consumer_actor import ConsumerInfo
from pxrs_ray.actors.coordinator.group_runtime import GroupRuntime
from pxrs_ray.actors.specs import ConsumerSpec
from pxrs_ray.config import GroupConfig
from pxrs_ray.group.incarnations import next_above
from pxrs_ray.model import Incarnation, MemberId
from pxrs_ray.supervision.restart_rules import Faults, RestartRules
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
    # What it is known to work by; None is not known.
    config: GroupConfig | None = None
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    faults: Faults = field(default_factory=lambda: Faults(RestartRules()))

    def is_made(self, spec: ConsumerSpec) -> None:
        """A new process comes for it, made of `spec`."""
        self.incarnation, self.actor, self.config = spec.incarnation, spec.actor, spec.group.config
        self.state, self.reason, self.born_s = "starting", "", time.monotonic()
        self.pid, self.node = 0, ""


async def infos_of(replicas: Iterable[ConsumerReplica]) -> dict[MemberId, ConsumerInfo]:
    """What each says of itself, leaving out those that do not answer."""

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
