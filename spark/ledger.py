"""`Ledger`: the record of a feed: its plan, and how far each of its Spark partitions has come.

Rules of this file. The ledger is a log beside the queue, as durable as the queue itself: what makes
the messages vanish makes their ledger vanish too. A fact is written once. A writer that repeats it
writes the same, or is refused: the log compares a repeat under one producer identity with what it
had (SequenceConflict), so no two writers can disagree, whatever crashes when.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pxrs_ray.actors.buffer.blocking_buffer_client import BlockingBufferClient
from pxrs_ray.clock import wall_ms
from pxrs_ray.codec import Codec, from_json, register
from pxrs_ray.data.batch import Batch, batches
from pxrs_ray.data.frame import producer_id
from pxrs_ray.data.protocol import Refused
from pxrs_ray.errors import FeedConflict, SequenceConflict
from pxrs_ray.spark.appender import Appender
from pxrs_ray.spark.queue_ref import Target

# Sorted, for the log compares a repeat byte by byte with what it has.
FACT_CODEC: Codec[dict[str, Any]] = register(
    Codec(
        "spark: fact of a feed",
        dict[str, Any],
        lambda fact: json.dumps(fact, sort_keys=True).encode(),
        from_json,
    )
)

LEDGER_PARTITION = 0
READER = "_feeds"


@dataclass(slots=True)
class KnownProgress:
    """What the ledger has of one Spark partition: fingerprints after some chunks, and the end."""

    marks: dict[int, str] = field(default_factory=dict)
    done: dict[str, Any] | None = None


@dataclass(slots=True)
class FeedState:
    """Everything that the ledger has of one feed; `plan` is None for a feed that never began."""

    plan: dict[str, Any] | None = None
    partitions: dict[int, KnownProgress] = field(default_factory=dict)


class Ledger:
    """One feed's part of the log `target`, a ledger. Made anew wherever it is used.

    Facts of a higher `epoch` take the place of those before (a stream's next batch).
    """

    def __init__(self, target: Target, feed_id: str, epoch: int = 0) -> None:
        self._target = target
        self._feed = feed_id
        self._epoch = epoch
        self._logs = BlockingBufferClient(target.topology, target.buffers)
        self._appender = Appender(target)
        self._sent = ""

    def open(self) -> None:
        """Have the log made, where it is not there yet."""
        self._logs.open(LEDGER_PARTITION, self._target.spec())

    def read(self) -> FeedState:
        """Everything that the ledger knows of this feed so far."""
        state = FeedState()
        for fact in self._facts():
            if "plan" in fact:
                state.plan = fact["plan"]
                continue
            told = state.partitions.setdefault(fact["number"], KnownProgress())
            if "digest" in fact:
                told.marks[fact["step"]] = fact["digest"]
            else:
                told.done = fact["done"]
        return state

    def tell_plan(self, plan: dict[str, Any]) -> None:
        """Begin the feed. Raises FeedConflict when it was begun with another plan.

        Raises ProducerFenced when a higher epoch has begun.
        """
        self._tell("plan", 0, {"plan": plan})

    def send_mark(self, number: int, step: int, digest: str) -> None:
        """Say what a Spark partition's frames are up to the step; `settle` waits for the answer."""
        self._send(f"{number}", step, {"number": number, "step": step, "digest": digest})

    def tell_done(self, number: int, done: dict[str, Any]) -> None:
        """Say that all frames of a Spark partition are in the logs. Raises FeedConflict."""
        self._tell(f"{number}/done", 0, {"number": number, "done": done})

    def settle(self) -> None:
        """Return when the ledger has all that was sent. Raises FeedConflict."""
        try:
            self._appender.drain()
        except SequenceConflict:
            raise FeedConflict(
                f"{self._target.queue.split('.', 1)[1]!r} was fed other data by {self._feed!r} "
                f"before: its {_called(self._sent)} is not what it was"
            ) from None

    def _tell(self, identity: str, sequence: int, fact: dict[str, Any]) -> None:
        self._send(identity, sequence, fact)
        self.settle()

    def _send(self, identity: str, sequence: int, fact: dict[str, Any]) -> None:
        self._sent = identity
        row = Batch.of([self._feed.encode()], [FACT_CODEC.encode(fact)], timestamp_ms=wall_ms())
        writer = producer_id(f"ledger/{self._target.queue}/{self._feed}/{identity}")
        header, body = row.to_wire(writer, self._epoch, sequence)
        self._appender.send([(LEDGER_PARTITION, header, body)])

    def _facts(self) -> Iterator[dict[str, Any]]:
        offset = 0
        wanted = self._feed.encode()
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


def _called(identity: str) -> str:
    return identity if identity == "plan" else f"Spark partition {identity.split('/')[0]}"
