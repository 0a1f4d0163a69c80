"""`Delivery`: a message as a handler gets it, with everything that identifies this attempt.

A handler that acts on the outside world passes on `context.fencing_token` (a receiver refuses a
lower epoch for the same topology and partition) or `context.idempotency_key`. The key is the same
each time this message is delivered, by any consumer, and never that of another message: a topology
or a queue that is made anew under an old name has another `topology_id`. A handler that acts on
something that compares no tokens calls `context.holds()` right before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from functools import partial
from sys import getrefcount
from typing import Any

from pxrs_ray.data.batch import Batch, Fields, Headers
from pxrs_ray.data.reply import answerable
from pxrs_ray.errors import NotHeld, UsageError
from pxrs_ray.group.member_lease import UNBOUND, Title
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Epoch, Incarnation, MemberId, Message, Offset, PartitionId
from pxrs_ray.sink.transaction import (
    SinkPlace,
    SinkTransaction,
    is_applied,
    is_applied_async,
    transaction,
)
from pxrs_ray.supervision.supervisor import off_loop

# Keeps a reply: the message's id, the payload, the headers.
Replier = Callable[[str, bytes | str, Headers], None]


@dataclass(frozen=True, slots=True)
class Context:
    """Where a delivery comes from. `attempt` is 1 for the first, counted across hand-overs.

    `topology_id` is random, made once with the topology's registry; a queue that is made anew
    after it was removed has another one.
    """

    topology_id: str
    queue: str
    group: str
    member: MemberId
    incarnation: Incarnation
    partition: PartitionId
    offset: Offset
    epoch: Epoch
    attempt: int
    title: Title = field(default=UNBOUND, repr=False, compare=False)

    def holds(self) -> bool:
        """Whether the partition is ours at this moment; once it is not, the tokens are void.

        False when the lease is over (cut off, frozen, the coordinator away for longer than a
        lease), when the partition was lost, and in a copy of this in another process.
        """
        return self.title()

    @property
    def fencing_token(self) -> tuple[PartitionId, Epoch, Offset]:
        """Rises with each ownership change of the partition, and with each message in it.

        It is to be compared with others of the same `topology_id`, queue and group.
        """
        return (self.partition, self.epoch, self.offset)

    @property
    def idempotency_key(self) -> str:
        """Names this message's processing by this group, whatever happens in between."""
        return f"{self.topology_id}/{self.queue}/{self.group}/{self.partition}/{self.offset}"

    def __str__(self) -> str:
        return (
            f"offset {self.offset} of partition {self.partition} of {self.queue} for group "
            f"{self.group}, attempt {self.attempt} by {self.member}#{self.incarnation} under "
            f"epoch {self.epoch}"
        )


@dataclass(slots=True)
class DeliveryContext:
    """What all deliveries of one partition under one epoch share, and the present attempt.

    `sink` is the queue and offset under which a fenced sink records a re-delivered quarantined
    message.
    """

    queue: str
    group: str
    member: MemberId
    incarnation: Incarnation
    partition: PartitionId
    epoch: Epoch
    attempt: int = 1
    sink: tuple[str, Offset] | None = None
    topology_id: str = field(kw_only=True)
    title: Title = field(default=UNBOUND, kw_only=True, repr=False, compare=False)
    replier: Replier | None = field(default=None, kw_only=True, repr=False, compare=False)


class Delivery:
    """One message being delivered. Key and payload are bytes; `context` holds the rest."""

    __slots__ = ("_shared", "headers", "id", "key", "offset", "payload", "timestamp_ms")

    offset: Offset
    key: bytes | None
    payload: bytes
    timestamp_ms: int
    headers: tuple[tuple[str, bytes], ...]
    id: str | None

    def __init__(self, message: Message, shared: DeliveryContext) -> None:
        self.offset = message.offset
        self.key = message.key
        self.payload = message.payload
        self.timestamp_ms = message.timestamp_ms
        self.headers = message.headers
        self.id = message.id
        self._shared = shared

    @property
    def partition(self) -> PartitionId:
        """The partition that the message is in."""
        return self._shared.partition

    @property
    def context(self) -> Context:
        """Everything about this attempt."""
        return context_at(self._shared, self.offset)

    def transaction(self, connection: Any) -> SinkTransaction:
        """A block whose rows are in the database exactly once: see `pxrs_ray.sink`.

        `connection` is one of sqlite3, psycopg or oracledb, between transactions; one of an async
        driver of them (psycopg, oracledb, aiosqlite) in an `async with`. Raises Fenced
        when the partition has another owner by now, NotHeld when that may be so, for our lease is
        over, and SinkConflict when it must be tried again.
        """
        place, offset = self._sink_place()
        return transaction(connection, place, offset, offset + 1, holds=self._shared.title)

    def replayed(self, connection: Any) -> bool:
        """Whether a `transaction` of this message is in that database already.

        To be asked before something is done that costs: a call that was paid for need not be made
        again after a crash or a seek back. Changes nothing; raises as `transaction` does.
        """
        place, offset = self._sink_place()
        return is_applied(connection, place, offset, offset + 1)

    async def replayed_async(self, connection: Any) -> bool:
        """As `replayed`, with a connection that `async with message.transaction` takes."""
        place, offset = self._sink_place()
        return await is_applied_async(connection, place, offset, offset + 1)

    def reply(self, payload: bytes | str, headers: Headers = None) -> None:
        """Reply to whoever sent this message and waits for it; returns when the reply is kept.

        For a queue with `replies = true`, and a message with an id. Only the first reply to a
        message counts. Raises UsageError, and NotHeld when the partition may be another's.
        """
        message_id, shared = answerable(self.id), self._shared
        if shared.replier is None:
            raise UsageError("only the consumers of a group reply, and those of a TestTopology")
        if not shared.title():
            raise NotHeld("the lease ended before this reply: the next owner replies")
        shared.replier(message_id, payload, headers)

    async def reply_async(self, payload: bytes | str, headers: Headers = None) -> None:
        """As `reply`, for async handlers."""
        await off_loop(self.reply, payload, headers)

    def _sink_place(self) -> tuple[SinkPlace, Offset]:
        shared = self._shared
        queue, offset = shared.sink or (shared.queue, self.offset)
        place = SinkPlace(shared.topology_id, queue, shared.group, shared.partition, shared.epoch)
        return place, offset

    def __repr__(self) -> str:
        return (
            f"Delivery(partition={self.partition}, offset={self.offset}, key={self.key!r}, "
            f"attempt={self._shared.attempt}, payload={len(self.payload)} bytes)"
        )


class DeliveredBatch:
    """Consecutive messages of one partition, in columns, for a batch handler."""

    __slots__ = ("_shared", "batch")

    def __init__(self, batch: Batch, shared: DeliveryContext) -> None:
        self.batch = batch
        self._shared = shared

    def __len__(self) -> int:
        return len(self.batch)

    def __iter__(self) -> Iterator[Delivery]:
        return deliveries(self.batch, self._shared)

    @property
    def context(self) -> Context:
        """Everything about this attempt; the offset is that of the first message."""
        return context_at(self._shared, self.batch.base_offset)

    def transaction(self, connection: Any) -> SinkTransaction:
        """As `Delivery.transaction`, for all messages at once.

        Where a former delivery got some of them into the database, this batch holds only the
        others from here on, which may be nothing.
        """
        first, end = self.batch.base_offset, self.batch.end_offset
        holds = self._shared.title
        return transaction(connection, self._sink_place(), first, end, self._narrow, holds=holds)

    def replayed(self, connection: Any) -> bool:
        """As `Delivery.replayed`: whether all of these messages are in that database already."""
        first, end = self.batch.base_offset, self.batch.end_offset
        return is_applied(connection, self._sink_place(), first, end)

    async def replayed_async(self, connection: Any) -> bool:
        """As `Delivery.replayed_async`, of all these messages."""
        first, end = self.batch.base_offset, self.batch.end_offset
        return await is_applied_async(connection, self._sink_place(), first, end)

    def _sink_place(self) -> SinkPlace:
        shared = self._shared
        return SinkPlace(
            shared.topology_id, shared.queue, shared.group, shared.partition, shared.epoch
        )

    def _narrow(self, missing: Sequence[tuple[Offset, Offset]]) -> None:
        if list(missing) != [(self.batch.base_offset, self.batch.end_offset)]:
            self.batch = self.batch.pick(missing)

    def __repr__(self) -> str:
        return f"DeliveredBatch({self.batch!r}, attempt={self._shared.attempt})"


def context_at(shared: DeliveryContext, offset: Offset) -> Context:
    """The context of the delivery at `offset`."""
    return Context(
        shared.topology_id,
        shared.queue,
        shared.group,
        shared.member,
        shared.incarnation,
        shared.partition,
        offset,
        shared.epoch,
        shared.attempt,
        shared.title,
    )


def delivery_of(fields: Fields, shared: DeliveryContext) -> Delivery:
    """One message as a delivery, made of what `Batch.fields` says of it."""
    delivery = Delivery.__new__(Delivery)
    (
        delivery.offset,
        delivery.key,
        delivery.payload,
        delivery.timestamp_ms,
        delivery.headers,
        delivery.id,
    ) = fields
    delivery._shared = shared
    return delivery


def blank_delivery(batch: Batch, shared: DeliveryContext) -> Delivery:
    """A delivery with what all messages of `batch` have, where `Batch.cells` says nothing else:
    its key, payload and offset are to be filled in."""
    delivery = Delivery.__new__(Delivery)
    delivery.timestamp_ms, delivery.headers, delivery.id = batch.timestamp_fixed_ms, (), None
    delivery._shared = shared
    return delivery


# What `getrefcount` says of an object that one local variable holds, and nobody else.
OURS_ALONE = 2


def deliveries(batch: Batch, shared: DeliveryContext) -> Iterator[Delivery]:
    """Each message of `batch` as a delivery.

    A hot loop. It goes from the columns to the delivery with nothing between them. And to make an
    object costs more than to fill one: a delivery that nobody holds any more, as those that a
    handler has returned from, is filled again, as `zip` does with its tuples. One is still in the
    caller's hands when the next is asked for, so two of them take turns. Whoever keeps one keeps it
    for good: it is another object then that goes on in its place.
    """
    make, references = partial(blank_delivery, batch, shared), getrefcount
    next_one, other = make(), make()
    for offset, key, payload, beside in batch.cells():
        delivery = next_one if references(next_one) == OURS_ALONE else make()
        next_one, other = other, delivery
        delivery.offset = offset
        delivery.key = key
        delivery.payload = payload
        if beside is not None:
            delivery.timestamp_ms, delivery.headers, delivery.id = beside
        del delivery
        yield other
