"""Called by the consumers of the groups in the topology file."""

from __future__ import annotations

import logging

from pxrs_ray import Delivery

logger = logging.getLogger("handlers")


def handle(message: Delivery) -> None:
    """Process one message; an exception means: again, or what failure_policy says.

    Messages of one key come in order. One can come twice, after a crash: give
    message.context.idempotency_key along to whatever must not happen twice.
    """
    logger.info("%s: %d bytes", message.key, len(message.payload))
