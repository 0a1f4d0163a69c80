"""Carries the offer of another configuration to a running consumer; `taken_over` decides."""

from __future__ import annotations

import logging

from ray.exceptions import RayError

from pxrs_ray.actors.cluster.ray_errors import is_gone
from pxrs_ray.actors.coordinator.consumer_replica import ConsumerReplica
from pxrs_ray.config import GroupConfig
from pxrs_ray.config.declare import Effect
from pxrs_ray.errors import HandlerError
from pxrs_ray.group.taking_over import Offered
from pxrs_ray.supervision.supervisor import within

logger = logging.getLogger(__name__)

TAKE_WAIT_S = 5.0
OF_CONSUMERS = frozenset((Effect.CONSUMERS, Effect.WORKERS, Effect.NEW_CONSUMERS))


async def offer(replica: ConsumerReplica, config: GroupConfig) -> Offered:
    """Offer it this configuration. Raises HandlerError when its handler cannot serve that."""
    try:
        taken: bool = await within(TAKE_WAIT_S, replica.handle.reconfigure.remote(config))
    except HandlerError:
        raise  # Ray raises one that is an error of its own, too
    except (RayError, TimeoutError) as error:
        if is_gone(error):
            return Offered.GONE
        logger.warning("%s does not take its configuration over: %r", replica.member, error)
        return Offered.SILENT
    if not taken:
        return Offered.REFUSED
    replica.config = config
    return Offered.TAKEN
