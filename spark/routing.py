"""Routes one Spark partition into a queue: carries the steps of `pxrs_ray/feed/partition_feed.py`.

Rule of this file: it decides nothing. Each step is done here, with the blocking clients of Spark's
workers and of Ray's tasks, and what came of it goes back.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import field
from typing import Any, TypeVar

import pyarrow as pa

from pxrs_ray.clock import wall_ms
from pxrs_ray.errors import PxrsError
from pxrs_ray.feed import partition_feed
from pxrs_ray.feed.facts import KnownProgress
from pxrs_ray.feed.partition_feed import (
    Append,
    Drain,
    FeedStep,
    Read,
    RoutedRows,
    Settle,
    SparkPartition,
    TellLedger,
)
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.spark.appender import Appender
from pxrs_ray.spark.ledger import Ledger
from pxrs_ray.spark.queue_ref import Target

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Feed:
    """What a routing task must know. `epoch` is a stream's batch; other feeds have 0.

    A feed with a ledger (`ledgered`) is remembered for long. A stream's batches only need to be
    remembered while they can come again, and the logs do that. `called` says what the user called
    each column of a message.
    """

    target: Target
    feed_id: str
    epoch: int = 0
    ledgered: bool = True
    stall_s: float = 300.0
    called: Mapping[str, str] = field(default_factory=dict)


def route_at_hand(
    feed: Feed, number: int, read: Callable[[], Iterable[pa.RecordBatch]], told: KnownProgress
) -> RoutedRows:
    """Append the rows that are at hand as a whole; all is looked at before any is appended.

    Raises as `route` does.
    """
    carrier = _Carrier(feed, number)
    return carrier.carry(partition_feed.route_at_hand(carrier.work, read, told))


def route(
    feed: Feed,
    number: int,
    rows: Iterable[pa.RecordBatch],
    told: KnownProgress,
) -> RoutedRows:
    """Append the rows of Spark partition `number`, or find that all of them are there already.

    The rows are as they come, so the ledger hears piece by piece what they are.
    Raises FeedConflict when they are not the rows of the last time, UsageError and
    MessageTooLarge for rows that cannot be messages, and what the buffers refuse them with.
    """
    carrier = _Carrier(feed, number)
    return carrier.carry(partition_feed.route(carrier.work, rows, told))


class _Carrier:
    """Does the steps of one Spark partition."""

    def __init__(self, feed: Feed, number: int) -> None:
        self._ledger = Ledger(feed.target.ledger(), feed.feed_id)
        self._appender = Appender(feed.target, feed.stall_s)
        self.work = SparkPartition(
            feed.target,
            feed.feed_id,
            feed.epoch,
            number,
            self._ledger.facts if feed.ledgered else None,
            wall_ms(),
            feed.called,
        )

    def carry(self, steps: Generator[FeedStep, Any, Result]) -> Result:
        """Do every step, and answer what they come to. Raises what they raise."""
        answer: object = None
        error: PxrsError | None = None
        while True:
            try:
                step = steps.send(answer) if error is None else steps.throw(error)
            except StopIteration as end:
                result: Result = end.value
                return result
            answer, error = None, None
            try:
                answer = self._do(step)
            except PxrsError as raised:
                error = raised

    def _do(self, step: FeedStep) -> object:
        match step:
            case TellLedger(frame):
                self._ledger.send(frame)
            case Settle():
                return self._ledger.settle()
            case Read():
                return self._ledger.read().known(self.work.number)
            case Append(frames):
                self._appender.send(frames)
            case Drain():
                self._appender.drain()
                return self._appender.counts
        return None
