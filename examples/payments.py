"""The handler of payments.toml: what happens with each payment, once for each delivery."""

from __future__ import annotations

import json
import logging

from pxrs_ray import Delivery

logger = logging.getLogger("payments")


def charge(message: Delivery) -> None:
    """Charge one account. What must not happen twice is given the idempotency key."""
    payment = json.loads(message.payload)
    if payment["amount"] < 0:
        raise ValueError(f"a payment of {payment['amount']}")
    logger.info("%s: %s", message.context.idempotency_key, payment)
