"""What consumer actors are given when they are made: plain frozen data that pickles."""

from __future__ import annotations

from pxrs_ray.actors.consumer.handler import HandlerRef
from pxrs_ray.config import GroupConfig, PxrsConfig
from pxrs_ray.config.beside import gaps_queue
from pxrs_ray.data.protocol import QueueSpec
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Incarnation, MemberId
from pxrs_ray.sources.open_source import SourceSpec


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """One group of one topology, as its consumers must know it.

    `topology_id` is random, made once with the topology's registry, and includes how often a queue
    of that name was removed. Whatever is kept outside carries it, because names can be used again.
    """

    topology: str
    topology_id: str
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
        return self._prefix + name if name is not None else ""

    @property
    def gaps(self) -> str:
        """The full name of the queue where the group keeps gap maps beyond what rows hold."""
        return gaps_queue(self.queue, self.group.removeprefix(self._prefix))

    @property
    def _prefix(self) -> str:
        return self.queue.removesuffix(self.config.queue)


@dataclass(frozen=True, slots=True)
class ConsumerSpec:
    """One consumer actor, and the incarnation that it starts with."""

    group: GroupSpec
    member: MemberId
    incarnation: Incarnation
    handler: HandlerRef
    actor: str


def queue_spec(config: PxrsConfig, name: str) -> QueueSpec:
    """A queue as buffers know it. Raises NotFound."""
    queue = config.resolved_queue(name)
    limits, external = queue.log_limits(), queue.source is not None
    return QueueSpec(config.full_name(name), queue.partitions, limits, external)
