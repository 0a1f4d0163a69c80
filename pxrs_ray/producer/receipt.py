"""What a producer returns: where each message was stored, once that is known."""

from __future__ import annotations

import asyncio
import threading
from bisect import bisect_right
from collections.abc import Generator, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from pxrs_ray.data.protocol import Appended
from pxrs_ray.errors import DeadlineExceeded, PxrsError
from pxrs_ray.model import Offset, PartitionId


class MessagePlace(NamedTuple):
    """Where a message is. `offset` is None only for a repeat that nobody remembers in detail."""

    partition: PartitionId
    offset: Offset | None


class Placed(NamedTuple):
    """Where consecutive messages of one partition are; `repeated`: they had been there before."""

    partition: PartitionId
    base_offset: Offset | None
    messages: int
    repeated: bool = False


class Shipment:
    """Messages that were routed and sent together. Settled frame by frame, from any thread."""

    def __init__(self) -> None:
        self.done: Future[None] = Future()
        # Running: who waits for it and gives up must not cancel it for the others.
        self.done.set_running_or_notify_cancel()
        self._placed: list[Placed] = []
        self._errors: dict[int, PxrsError] = {}
        self._starts: list[int] = []
        self._order: Any = None
        self._inverse: Any = None
        self._open = 0
        self._lock = threading.Lock()

    def routed(self, parts: Sequence[tuple[PartitionId, int]], order: Any) -> None:
        """The messages became these frames: (partition, count) each, reordered by `order`."""
        self._placed = [Placed(partition, None, count) for partition, count in parts]
        self._starts = list(accumulate((count for _, count in parts), initial=0))[:-1]
        self._order = order
        self._open = len(parts)
        if not parts:
            self.done.set_result(None)

    def broken(self, error: BaseException) -> None:
        """The messages could not be sent at all."""
        self.done.set_exception(error)

    def settle(self, index: int, answer: Appended | PxrsError) -> None:
        """Frame `index` is in the log, or was given up."""
        with self._lock:
            if isinstance(answer, Appended):
                self._placed[index] = self._placed[index]._replace(
                    base_offset=answer.base_offset, repeated=answer.repeated
                )
            else:
                self._errors[index] = answer
            self._open -= 1
            finished = self._open == 0
        if finished:
            self.done.set_result(None)

    def placed(self) -> list[Placed]:
        """Where all messages are. Raises the first frame's error; only once `done`."""
        for error in self._errors.values():
            raise error
        return list(self._placed)

    def place(self, message: int) -> MessagePlace:
        """Where one message is. Raises its error; only once `done`."""
        if self._order is not None:
            if self._inverse is None:
                inverse = np.empty(len(self._order), np.intp)
                inverse[self._order] = np.arange(len(self._order))
                self._inverse = inverse
            message = int(self._inverse[message])
        at = bisect_right(self._starts, message) - 1
        if at in self._errors:
            raise self._errors[at]
        found = self._placed[at]
        if found.base_offset is None:
            return MessagePlace(found.partition, None)
        return MessagePlace(found.partition, found.base_offset + message - self._starts[at])


def _wait(done: Future[None], timeout_s: float | None, what: str) -> None:
    try:
        done.result(timeout_s)
    except FutureTimeout as error:
        if done.done():
            raise
        raise DeadlineExceeded(f"{what} was not acknowledged within {timeout_s} s") from error


class Receipt(tuple[Shipment, int]):
    """One message's: wait with `result`, or `await` it. Raises why the message was given up.

    One is made with every single send. As a tuple (of the shipment, and the message's place in it)
    it takes half the time of an object with attributes.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        if not self.done():
            return "<Receipt: on its way>"
        error = self[0].done.exception()
        return f"<Receipt: {error!r}>" if error else f"<Receipt: {self[0].place(self[1])}>"

    def done(self) -> bool:
        """Whether it is known what became of the message."""
        return self[0].done.done()

    def result(self, timeout_s: float | None = None) -> MessagePlace:
        """Where the message is, as durable as its queue promises.

        Raises DeadlineExceeded when that is not known after `timeout_s`.
        """
        shipment, message = self
        _wait(shipment.done, timeout_s, "the message")
        return shipment.place(message)

    def __await__(self) -> Generator[Any, None, MessagePlace]:
        shipment, message = self
        yield from asyncio.wrap_future(shipment.done).__await__()
        return shipment.place(message)


class BatchReceipt:
    """Many messages' at once: wait with `result`, or `await` it."""

    __slots__ = ("_shipments",)

    def __init__(self, shipments: Sequence[Shipment]) -> None:
        self._shipments = shipments

    def done(self) -> bool:
        """Whether it is known what became of every message."""
        return all(shipment.done.done() for shipment in self._shipments)

    def result(self, timeout_s: float | None = None) -> list[Placed]:
        """Where the messages are, as runs; raises the first error, or DeadlineExceeded."""
        for shipment in self._shipments:
            _wait(shipment.done, timeout_s, "the batch")
        return [placed for shipment in self._shipments for placed in shipment.placed()]

    def __await__(self) -> Generator[Any, None, list[Placed]]:
        for shipment in self._shipments:
            yield from asyncio.wrap_future(shipment.done).__await__()
        return [placed for shipment in self._shipments for placed in shipment.placed()]
