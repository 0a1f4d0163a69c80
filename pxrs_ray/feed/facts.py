"""The facts of a feed: its plan, and how far each of its Spark partitions has come.

Rules of this file. A fact is a message of the ledger, a log beside the queue, and is written once.
Each has a producer identity and a sequence of its own, so who repeats it writes the same, or is
refused by the log (SequenceConflict): no two writers can disagree, whatever crashes when. Facts of
a higher epoch take the place of those before (a stream's next batch).
"""

from __future__ import annotations

import json
from dataclasses import field
from typing import Any

from pxrs_ray.codec import Codec, from_json, register
from pxrs_ray.data.batch import Batch
from pxrs_ray.data.frame import producer_id
from pxrs_ray.data.protocol import OutFrame
from pxrs_ray.errors import FeedConflict
from pxrs_ray.late_dataclass import dataclass

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
PLAN = "plan"
# The fingerprint of the piece behind the last one: there is none.
NO_PIECE = "end"


@dataclass(slots=True)
class KnownProgress:
    """What the ledger has of one Spark partition: fingerprints after some pieces, and the end."""

    marks: dict[int, str] = field(default_factory=dict)
    done: dict[str, Any] | None = None


@dataclass(slots=True)
class FeedState:
    """Everything that the ledger has of one feed; `plan` is None for a feed that never began."""

    plan: dict[str, Any] | None = None
    partitions: dict[int, KnownProgress] = field(default_factory=dict)

    def take(self, fact: dict[str, Any]) -> None:
        """Learn one fact, in the order of the ledger."""
        if "plan" in fact:
            self.plan = fact["plan"]
            return
        told = self.partitions.setdefault(fact["number"], KnownProgress())
        if "digest" in fact:
            told.marks[fact["step"]] = fact["digest"]
        else:
            told.done = fact["done"]

    def known(self, number: int) -> KnownProgress:
        """How far one Spark partition has come."""
        return self.partitions.get(number) or KnownProgress()

    def done(self) -> frozenset[int]:
        """The Spark partitions that are in the logs as a whole."""
        return frozenset(number for number, told in self.partitions.items() if told.done)


@dataclass(frozen=True, slots=True)
class FeedFacts:
    """One feed as a writer of the ledger `ledger`, a queue by its full name."""

    ledger: str
    feed_id: str
    epoch: int = 0

    def plan(self, plan: dict[str, Any], now_ms: int) -> OutFrame:
        """The feed begins, as planned."""
        return self._frame(PLAN, 0, {"plan": plan}, now_ms)

    def mark(self, number: int, step: int, digest: str, now_ms: int) -> OutFrame:
        """What a Spark partition's rows are up to the step."""
        fact = {"number": number, "step": step, "digest": digest}
        return self._frame(f"{number}", step, fact, now_ms)

    def done(self, number: int, done: dict[str, Any], now_ms: int) -> OutFrame:
        """All frames of a Spark partition are in the logs."""
        return self._frame(f"{number}/done", 0, {"number": number, "done": done}, now_ms)

    def conflict(self, what: str) -> FeedConflict:
        """The error for a fact that the ledger has otherwise; `what` says which."""
        queue = self.ledger.split(".", 1)[-1]
        return FeedConflict(
            f"{queue!r} was fed other data by {self.feed_id!r} before: its {what} is not what it "
            "was"
        )

    def _frame(self, identity: str, sequence: int, fact: dict[str, Any], now_ms: int) -> OutFrame:
        row = Batch.of([self.feed_id.encode()], [FACT_CODEC.encode(fact)], timestamp_ms=now_ms)
        writer = producer_id(f"ledger/{self.ledger}/{self.feed_id}/{identity}")
        header, body = row.to_wire(writer, self.epoch, sequence)
        return LEDGER_PARTITION, header, body
