"""`FeedRun`: one call that feeds: its plan, what is fed first, and what it reports.

Rules of this file. A call that is repeated, after whatever crash, goes on where the last one ended.
What is in the ledger is first compared with what Spark computes now, and only when all of that is
the same, something is added. The driver has no state whose loss would matter.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

from pxrs_ray.errors import DeadlineExceeded, FeedConflict, UsageError
from pxrs_ray.feed.facts import FeedState
from pxrs_ray.feed.partition_feed import RoutedRows
from pxrs_ray.late_dataclass import dataclass

ROUNDS_MAX = 5
SPARK_PARTITIONS_MAX = 10_000


class FetchFailed(Exception):
    """Raised when RayDP did not give a partition; preparing again may help."""


@dataclass(frozen=True, slots=True)
class FeedReport:
    """What one call fed.

    `rows` and `bytes` (of payload) count the whole feed; `rows_already` of them had been fed by
    an earlier call. `partition_rows` is per partition of the queue. `frames_repeated` were sent
    again after a fault, and the logs had them.
    """

    feed_id: str
    queue: str
    via: str
    rows: int
    rows_already: int
    bytes: int
    seconds: float
    spark_partitions: int
    partition_rows: tuple[int, ...]
    frames_added: int
    frames_repeated: int

    @property
    def rows_per_s(self) -> float:
        """The rate of what was added."""
        return (self.rows - self.rows_already) / self.seconds if self.seconds else 0.0

    @property
    def skew(self) -> float:
        """The fullest partition against the mean: 1.0 is even."""
        if not self.rows:
            return 1.0
        return max(self.partition_rows) * len(self.partition_rows) / sum(self.partition_rows)

    def __str__(self) -> str:
        already = f" ({self.rows_already:,} of them before)" if self.rows_already else ""
        return (
            f"feed {self.feed_id!r} into {self.queue!r} via {self.via}: {self.rows:,} rows"
            f"{already}, {self.bytes / 1e6:,.1f} MB in {self.seconds:.2f} s "
            f"({self.rows_per_s:,.0f} rows/s), {self.spark_partitions} Spark partitions, rows per "
            f"partition {min(self.partition_rows):,} to {max(self.partition_rows):,}, "
            f"skew {self.skew:.2f}"
        )


@dataclass(slots=True)
class FeedCounts:
    """Adds up what the partitions of a feed report, each once."""

    routed: dict[int, RoutedRows] = field(default_factory=dict)
    added: int = 0
    repeated: int = 0

    def note(self, routed: RoutedRows) -> None:
        """Take what became of one Spark partition; a later round says it again."""
        self.routed[routed.number] = routed
        self.added += routed.added
        self.repeated += routed.repeated

    @property
    def rows(self) -> int:
        """The rows of every Spark partition that is done."""
        return sum(one.rows for one in self.routed.values())

    def report(
        self,
        feed_id: str,
        queue: str,
        via: str,
        partitions: int,
        already: frozenset[int],
        seconds: float,
    ) -> FeedReport:
        """The report of all of them; `already` were complete before."""
        every = self.routed.values()
        return FeedReport(
            feed_id,
            queue,
            via,
            self.rows,
            sum(one.rows for one in every if one.number in already),
            sum(one.bytes for one in every),
            seconds,
            len(self.routed),
            tuple(sum(one.counts[p] for one in every) for p in range(partitions)),
            self.added,
            self.repeated,
        )


@dataclass(slots=True)
class Rounds:
    """How often RayDP failed, and whether it is to be tried again."""

    over: bool = False
    failures: int = 0

    def failed(self, failure: FetchFailed) -> int:
        """RayDP failed: the seconds to wait before Spark prepares again.

        Raises DeadlineExceeded after the last round.
        """
        self.failures += 1
        if self.failures == ROUNDS_MAX:
            raise DeadlineExceeded(
                f"RayDP failed {self.failures} times to hand over Spark's data, at last because "
                f"{failure}. What was fed is kept: make the same call again to go on, or use "
                "via='push'"
            ) from failure
        return self.failures


class FeedRun:
    """See the rules at the head of this file. `state` is what the ledger had when it began."""

    def __init__(self, feed_id: str, via: str, schema: str, state: FeedState) -> None:
        self.state = state
        self.counts = FeedCounts()
        self.rounds = Rounds()
        self.already = state.done()
        self.total = 0
        self._feed_id = feed_id
        self._via = via
        self._schema = schema

    def begin(self, spark_partitions: int) -> dict[str, Any] | None:
        """The plan to be put down now; None where it is there. Raises FeedConflict when the feed
        was begun with another one."""
        if spark_partitions > SPARK_PARTITIONS_MAX:
            raise UsageError(
                f"{spark_partitions} Spark partitions are too many, the most is "
                f"{SPARK_PARTITIONS_MAX}: use df.coalesce({SPARK_PARTITIONS_MAX // 10}) or less"
            )
        self.total = spark_partitions
        plan = {"partitions": spark_partitions, "schema": self._schema, "via": self._via}
        known = self.state.plan
        if known is None:
            return plan
        if known != plan:
            differs = [
                f"{what} {known[what]!r}, now {plan[what]!r}"
                for what in plan
                if known[what] != plan[what]
            ]
            raise FeedConflict(
                f"feed {self._feed_id!r} was begun with another DataFrame or in another way: "
                f"{'; '.join(differs)}. Give the same again, or another feed_id"
            )
        return None

    def turns(self) -> list[list[int]]:
        """The Spark partitions to be fed, one turn after the other: what was begun before is
        compared before anything else is added."""
        known = [n for n in range(self.total) if n in self.state.partitions]
        rest = [n for n in range(self.total) if n not in self.state.partitions]
        return [numbers for numbers in (known, rest) if numbers]
