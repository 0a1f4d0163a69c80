"""How running consumers take another configuration over, each as its options declare it.

Rules of this file. The coordinator asks each consumer that runs; one that is not up yet is asked
when it is let begin. A consumer that takes it keeps its process, its membership and its partitions.
One that cannot (an option that only a new process can have), or does not answer, is replaced by
whoever asked.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from ray.exceptions import RayError

from pxrs_ray.actors.cluster.ray_errors import is_gone
from pxrs_ray.actors.coordinator.consumer_replica import ConsumerReplica
from pxrs_ray.config import GroupConfig
from pxrs_ray.config.declare import Effect
from pxrs_ray.errors import HandlerError
from pxrs_ray.model import MemberId
from pxrs_ray.supervision.supervisor import within

logger = logging.getLogger(__name__)

TAKE_WAIT_S = 5.0
OF_CONSUMERS = frozenset((Effect.CONSUMERS, Effect.WORKERS, Effect.NEW_CONSUMERS))


async def taken_over(replica: ConsumerReplica, config: GroupConfig) -> bool:
    """Have one consumer take the configuration over; False when a new one must take its place.

    Raises HandlerError when its handler cannot serve these options: then nothing has changed.
    """
    if replica.config == config:
        return True
    if replica.state == "failed":
        return False
    if replica.state in ("starting", "pending", "leaving"):
        return True  # it is asked when it begins
    try:
        taken: bool = await within(TAKE_WAIT_S, replica.handle.reconfigure.remote(config))
    except HandlerError:
        raise
    except (RayError, TimeoutError) as error:
        if is_gone(error):
            return True  # it is dead: who comes in its place is made of this configuration
        logger.warning("%s does not take its configuration over: %r", replica.member, error)
        return False
    if taken:
        replica.config = config
    return taken


async def take_over(replicas: Iterable[ConsumerReplica], config: GroupConfig) -> list[MemberId]:
    """Have all consumers take it over together; answers who must be replaced."""
    asked = list(replicas)
    taken = await asyncio.gather(*(taken_over(replica, config) for replica in asked))
    return [replica.member for replica, done in zip(asked, taken, strict=True) if not done]
