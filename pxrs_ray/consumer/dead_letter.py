"""A dead letter: the message as it was, where it is from, and what went wrong. Pure.

Rules of this file. A letter is appended under an identity of its own: the log that has it does not
take it again, whoever sends it, after a crash or a seek back. So each message has one letter for
each group, for as long as the log of the dead-letter queue remembers its producers. Key, payload
and headers are the message's; further headers after them describe the failure.
"""

from __future__ import annotations

from dataclasses import replace

from pxrs_ray.consumer.delivery import Context
from pxrs_ray.data.batch import Batch
from pxrs_ray.data.frame import producer_id
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import NOT_FOR_DEAD_LETTERS, Message, Offset, PartitionId, Strategy
from pxrs_ray.partitioning import PartitioningSpec

PREFIX = "pxrs-"
# What a letter says, in the order of its headers.
TOLD = ("queue", "group", "partition", "attempts", "error", "offset", "timestamp-ms")


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter, taken apart: its place among the letters, what failed where, and the message
    with the headers and the time that it had before."""

    partition: PartitionId
    offset: Offset
    queue: str
    group: str
    failed_partition: PartitionId
    failed_offset: Offset
    attempts: int
    error: str
    at_ms: int
    message: Message


def letter_identity(message: Message, context: Context) -> bytes:
    """The producer that a letter about `message` is appended as."""
    place = f"{context.topology_id}/{context.queue}/{context.group}/{context.partition}"
    return producer_id(f"letter of {place}/{message.offset}")


def letter_of(message: Message, context: Context, error: str, at_ms: int) -> Batch:
    """The letter, as a batch of one."""
    values = (
        context.queue,
        context.group,
        context.partition,
        context.attempt,
        error,
        message.offset,
        message.timestamp_ms,
    )
    extra = [
        (f"{PREFIX}{name}", str(value).encode(errors="backslashreplace"))
        for name, value in zip(TOLD, values, strict=True)
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


def letter_from(found: Message) -> Letter | None:
    """Take a letter apart. None where it is none: anybody may send to a dead-letter queue."""
    told: dict[str, str] = {}
    own = len(found.headers)
    # Ours stand last; a header of the same name before them is the message's.
    while own:
        name, value = found.headers[own - 1]
        name = name.removeprefix(PREFIX) if name.startswith(PREFIX) else ""
        if name not in TOLD or name in told:
            break
        own -= 1
        told[name] = value.decode(errors="replace")
    try:
        partition, offset = int(told["partition"]), int(told["offset"])
        message = replace(
            found,
            partition=partition,
            offset=offset,
            timestamp_ms=int(told.get("timestamp-ms", found.timestamp_ms)),
            headers=found.headers[:own],
        )
        return Letter(
            found.partition,
            found.offset,
            told["queue"],
            told["group"],
            partition,
            offset,
            int(told["attempts"]),
            told["error"],
            found.timestamp_ms,
            message,
        )
    except (KeyError, ValueError):
        return None
