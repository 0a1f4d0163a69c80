"""`begin_producer`: begins a new life of a producer that comes back under its name.

Rules of this file. Every buffer that holds a partition of the queue must know the new life before
it sends anything. From then on whatever the former life still has under way is refused. That is one
call to each buffer, all at once. When a buffer knows a newer life (its clock ran ahead, or two
begin at once), all are called again with a higher number. The last one to begin wins.
"""

from __future__ import annotations

import random
import time
import uuid

from pxrs_ray.actors.buffer.buffer_client import BufferReply
from pxrs_ray.actors.buffer.buffer_clients import BufferClients
from pxrs_ray.actors.buffer.call_failure import CallFailure, failure_of
from pxrs_ray.clock import wall_ms
from pxrs_ray.data.message_form import checked_name
from pxrs_ray.errors import DeadlineExceeded, NotFound, PxrsError, UsageError
from pxrs_ray.log.producer_fence import Generation, named_producer_id
from pxrs_ray.supervision.passing_trouble import passes

BEGIN_WAIT_S = 60.0
CALL_WAIT_S = 10.0
PAUSE_S = 0.1
NAME_CHARS_MAX = 200


def begin_producer(topology: str, queue: str, buffers: int, producer: str) -> bytes:
    """Fence every former life of `producer`, and answer the identity of the new one.

    `queue` is the full name, `buffers` how many of the topology's buffers have partitions of it.
    Raises UsageError for a name that cannot be one, DeadlineExceeded naming the buffers that do
    not answer.
    """
    if not producer or len(checked_name(producer, "a producer_id")) > NAME_CHARS_MAX:
        raise UsageError(f"a producer_id has 1 to {NAME_CHARS_MAX} characters")
    token = uuid.uuid4().hex
    end_s = time.monotonic() + BEGIN_WAIT_S
    # The time is a number that is higher than before, mostly; that it is, the buffers judge.
    number = wall_ms()
    left = set(range(buffers))
    troubles: dict[int, PxrsError] = {}
    clients = BufferClients(topology)
    while left:
        newest = 0
        if time.monotonic() > end_s:
            told = "; ".join(f"buffer {i}: {troubles.get(i, 'a newer life')}" for i in sorted(left))
            raise DeadlineExceeded(
                f"producer {producer!r} of {queue!r} could not begin in {BEGIN_WAIT_S:g} s, for "
                f"not every buffer knows of it: {told}"
            )
        for index, answer in _ask(clients, left, queue, producer, number, token).items():
            if isinstance(answer, PxrsError):
                troubles[index] = answer
            elif answer is not None and answer.token == token and answer.number == number:
                left.discard(index)
            elif answer is not None:
                newest = max(newest, answer.number)
        if newest:
            number, left = newest + 1, set(range(buffers))
            time.sleep(random.uniform(0, PAUSE_S))
        elif left:
            time.sleep(PAUSE_S)
    return named_producer_id(producer, number)


def _ask(
    clients: BufferClients, buffers: set[int], queue: str, producer: str, number: int, token: str
) -> dict[int, Generation | PxrsError | None]:
    """What each buffer says; raises what no waiting mends."""
    calls: dict[int, BufferReply[Generation | None]] = {}
    found: dict[int, Generation | PxrsError | None] = {}
    for index in buffers:
        try:
            calls[index] = clients.of(index).begin_producer(queue, producer, number, token)
        except PxrsError as error:
            found[index] = _may_pass(clients, index, error)
    end_s = time.monotonic() + CALL_WAIT_S
    for index, call in calls.items():
        try:
            found[index] = call.result(max(0.0, end_s - time.monotonic()))
        except PxrsError as error:
            found[index] = _may_pass(clients, index, error)
    return found


def _may_pass(clients: BufferClients, index: int, error: PxrsError) -> PxrsError:
    """The error of a buffer that is worth asking again: it may not have opened the queue yet."""
    clients.failed(index, error)
    if failure_of(error) is CallFailure.AWAY or isinstance(error, NotFound) or passes(error):
        return error
    raise error
