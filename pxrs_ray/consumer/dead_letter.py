"""A dead letter: the message as it was, where it is from, and what went wrong. Pure.

Rules of this file. A letter is appended under an identity of its own: the log that has it does not
take it again, whoever sends it, after a crash or a seek back. So each message has one letter for
each group, for as long as the log of the dead-letter queue remembers its producers. Key, payload
and headers are the message's; further headers after them describe the failure.
"""

from __future__ import annotations

from pxrs_ray.consumer.delivery import Context
from pxrs_ray.data.batch import Batch
from pxrs_ray.data.frame import producer_id
from pxrs_ray.model import NOT_FOR_DEAD_LETTERS, Message, PartitionId, Strategy
from pxrs_ray.partitioning import PartitioningSpec


def letter_identity(message: Message, context: Context) -> bytes:
    """The producer that a letter about `message` is appended as."""
    place = f"{context.topology_id}/{context.queue}/{context.group}/{context.partition}"
    return producer_id(f"letter of {place}/{message.offset}")


def letter_of(message: Message, context: Context, error: str, at_ms: int) -> Batch:
    """The letter, as a batch of one."""
    told = {
        "queue": context.queue,
        "group": context.group,
        "partition": context.partition,
        "attempts": context.attempt,
        "error": error,
        "offset": message.offset,
    }
    extra = [
        (f"pxrs-{name}", str(value).encode(errors="backslashreplace"))
        for name, value in told.items()
    ]
    return Batch.of(
        [message.key],
        [message.payload],
        timestamp_ms=at_ms,
        headers=[(*message.headers, *extra)],
        ids=[message.id],
    )


def letter_partition(spread: PartitioningSpec, message: Message) -> PartitionId:
    """Where a letter goes in its queue: always the same, also where no key says so."""
    if spread.strategy in NOT_FOR_DEAD_LETTERS:
        spread = PartitioningSpec(spread.partitions, Strategy.MODULO, spread.hash_name, spread.seed)
    return spread.partitioner(message.offset).partition(message.key)
