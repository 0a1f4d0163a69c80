"""What actors are told when they are made: plain frozen data that pickles."""

from __future__ import annotations

from dataclasses import dataclass

from pxrs_ray.actors.handler import HandlerRef
from pxrs_ray.config import GroupConfig
from pxrs_ray.model import Incarnation, MemberId
from pxrs_ray.sources.opening import SourceSpec


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """One group of one topology, as its consumers must know it."""

    topology: str
    group: str
    queue: str
    partitions: int
    buffers: int
    config: GroupConfig
    source: SourceSpec | None = None

    @property
    def quarantine(self) -> str:
        """The full name of the queue where the group puts messages aside; '' when it has none."""
        name = self.config.quarantine_queue
        return self.queue.removesuffix(self.config.queue) + name if name is not None else ""


@dataclass(frozen=True, slots=True)
class ConsumerSpec:
    """One consumer actor, in the incarnation that it is born with."""

    group: GroupSpec
    member: MemberId
    incarnation: Incarnation
    handler: HandlerRef
    actor: str
