"""`begin_producer`: begins a new life of a producer that comes back under its name.

Rules of this file. Whom to ask, with which number, and whether the life is begun, a `LifeStart`
says. Here the buffers are called, all at once. What no waiting mends is raised.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Iterable

from pxrs_ray.actors.buffer.buffer_client import BufferReply
from pxrs_ray.actors.buffer.buffer_clients import BufferClients
from pxrs_ray.actors.buffer.call_failure import CallFailure, failure_of
from pxrs_ray.clock import wall_ms
from pxrs_ray.errors import NotFound, PxrsError
from pxrs_ray.log.producer_fence import ProducerLife
from pxrs_ray.producer.life_start import CALL_WAIT_S, LifeStart, check_producer_name
from pxrs_ray.supervision.passing_trouble import passes


def begin_producer(topology: str, queue: str, buffers: int, producer: str) -> bytes:
    """Fence every former life of `producer`, and answer the identity of the new one.

    `queue` is the full name, `buffers` how many of the topology's buffers have partitions of it.
    Raises UsageError for a name that cannot be one, DeadlineExceeded naming the buffers that do
    not answer.
    """
    check_producer_name(producer)
    start = LifeStart(producer, buffers, wall_ms(), uuid.uuid4().hex, time.monotonic())
    clients = BufferClients(topology)
    while not start.begun:
        start.check_time(queue, time.monotonic())
        answers = _ask(clients, start.left, queue, producer, start.number, start.token)
        pause_s = start.answered(answers, random.random())
        if pause_s is not None:
            time.sleep(pause_s)
    return start.identity


def _ask(
    clients: BufferClients,
    buffers: Iterable[int],
    queue: str,
    producer: str,
    number: int,
    token: str,
) -> dict[int, ProducerLife | PxrsError | None]:
    """What each buffer says; raises what no waiting mends."""
    calls: dict[int, BufferReply[ProducerLife | None]] = {}
    found: dict[int, ProducerLife | PxrsError | None] = {}
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
