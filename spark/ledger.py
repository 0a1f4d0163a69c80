"""`Ledger`: carries the facts of a feed to its ledger and back; see `pxrs_ray/feed/facts.py`.

Rules of this file. The ledger is a log beside the queue, as durable as the queue itself: what makes
the messages vanish makes their ledger vanish too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pxrs_ray.actors.buffer.blocking_buffer_client import BlockingBufferClient
from pxrs_ray.clock import wall_ms
from pxrs_ray.data.batch import batches
from pxrs_ray.data.protocol import OutFrame, Refused
from pxrs_ray.errors import SequenceConflict
from pxrs_ray.feed.facts import FACT_CODEC, LEDGER_PARTITION, PLAN, FeedFacts, FeedState
from pxrs_ray.spark.appender import Appender
from pxrs_ray.spark.queue_ref import Target

READER = "_feeds"


class Ledger:
    """One feed's part of the log `target`, a ledger. Made anew wherever it is used.

    Facts of a higher `epoch` take the place of those before (a stream's next batch).
    """

    def __init__(self, target: Target, feed_id: str, epoch: int = 0) -> None:
        self.facts = FeedFacts(target.queue, feed_id, epoch)
        self._target = target
        self._logs = BlockingBufferClient(target.topology, target.buffers)
        self._appender = Appender(target)

    def open(self) -> None:
        """Have the log made, where it is not there yet."""
        self._logs.open(LEDGER_PARTITION, self._target.spec())

    def read(self) -> FeedState:
        """Everything that the ledger knows of this feed so far."""
        state = FeedState()
        for fact in self._facts():
            state.take(fact)
        return state

    def tell_plan(self, plan: dict[str, Any]) -> None:
        """Begin the feed. Raises FeedConflict when it was begun with another plan.

        Raises ProducerFenced when a higher epoch has begun.
        """
        self.send(self.facts.plan(plan, wall_ms()))
        try:
            self.settle()
        except SequenceConflict:
            raise self.facts.conflict(PLAN) from None

    def send(self, fact: OutFrame) -> None:
        """Send a fact; `settle` waits for the answer."""
        self._appender.send([fact])

    def settle(self) -> int:
        """Return when the ledger has all that was sent: how much of it was there for too long to be
        compared. Raises SequenceConflict for what it has otherwise."""
        self._appender.drain()
        return self._appender.uncompared

    def _facts(self) -> Iterator[dict[str, Any]]:
        offset = 0
        wanted = self.facts.feed_id.encode()
        while True:
            reply = self._logs.fetch(self._target.queue, READER, LEDGER_PARTITION, offset)
            if reply is None:
                return
            if isinstance(reply, Refused):
                raise reply.error
            for batch in batches(reply, offset):
                for key, text in batch.rows():
                    if key == wanted:
                        yield FACT_CODEC.decode(text)
            offset = reply.next_offset
