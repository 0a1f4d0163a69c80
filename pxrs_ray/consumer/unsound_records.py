"""Records of an external queue that its source could make no sense of, as a handler meets them."""

from __future__ import annotations

from pxrs_ray.consumer.delivery import DeliveredBatch, Delivery
from pxrs_ray.sources.soundness import refuse_unsound


def refuse_unsound_records(argument: Delivery | DeliveredBatch) -> None:
    """Fail what stands for a record that its source could not make sense of: it comes alone."""
    if isinstance(argument, Delivery):
        refuse_unsound(argument)
    elif len(argument) == 1:
        refuse_unsound(argument.batch[0])
