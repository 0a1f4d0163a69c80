"""A feed that is done is in the logs, each row once and in order, and nothing else of its name."""

from __future__ import annotations

from collections.abc import Mapping

from pxrs_ray.model import Offset, PartitionId
from tests.simulation.checkers.base import Checker
from tests.simulation.history import Ended, FeedDone, FeedEnded, Kept

Place = tuple[PartitionId, Offset]


def _feed_of(message: str) -> tuple[str, int] | None:
    """The feed and the Spark partition of a row's text; None for what no feed has written."""
    parts = message.split("|")
    return (parts[0], int(parts[1])) if len(parts) > 2 else None


class FeedsExact(Checker):
    """Each row of a feed that reported that it is done is in the log once, in order per key within
    its Spark partition, and no other row of its name; nothing is added afterwards.

    A Spark partition that came out in several ways is there in one of them, as a whole. A feed that
    never came to its end has each row at most once.
    """

    def __init__(self) -> None:
        super().__init__()
        self._done: dict[str, FeedDone] = {}
        self._kept: dict[tuple[str, int], dict[str, list[Place]]] = {}

    def on_feeddone(self, event: FeedDone) -> None:
        """Judged when all is at rest; of several reports the last one knows all that was given."""
        self._done[event.feed] = event

    def on_kept(self, event: Kept) -> None:
        """Note what is where, and look at the feeds that are done."""
        for offset, message in sorted(event.messages.items()):
            found = _feed_of(message)
            if found is not None:
                places = self._kept.setdefault(found, {}).setdefault(message, [])
                places.append((event.partition, offset))
                if len(places) > 1:
                    self.broken(event.at_ms, f"{message} is there twice: {places}")

    def on_ended(self, event: Ended) -> None:
        """Every log was told: compare with what was given."""
        at_ms = event.at_ms
        for feed, done in self._done.items():
            for number, given in done.given.items():
                there = self._kept.get((feed, number), {})
                self._compare(at_ms, f"{feed}, Spark partition {number}", given, there)
            for other, number in self._kept:
                if other == feed and number not in done.given:
                    self.broken(at_ms, f"{feed} has no Spark partition {number}, and rows of it")

    def _compare(
        self,
        at_ms: int,
        what: str,
        given: tuple[tuple[str, ...], ...],
        there: Mapping[str, list[Place]],
    ) -> None:
        whole = [rows for rows in given if set(rows) == set(there)]
        if not whole:
            missing = sorted(set(given[0]) - set(there))[:3] if given else []
            more = sorted(set(there) - set(given[0]))[:3] if given else sorted(there)[:3]
            self.broken(at_ms, f"{what} is done: {missing} are missing, {more} are too many")
            return
        if not any(_in_order(rows, there) for rows in whole):
            self.broken(at_ms, f"{what}: the rows of a key are not in their order")


def _in_order(rows: tuple[str, ...], there: Mapping[str, list[Place]]) -> bool:
    last: dict[str, Place] = {}
    for row in rows:
        key = row.split("|")[3]
        place = there[row][0]
        if key and key in last and not (place[0] == last[key][0] and place > last[key]):
            return False
        last[key] = place
    return True


class ReportsTrue(Checker):
    """What a feed's report counts is in the logs, partition by partition."""

    def __init__(self) -> None:
        super().__init__()
        self._done: list[FeedDone] = []
        self._counts: dict[tuple[str, PartitionId], int] = {}

    def on_feeddone(self, event: FeedDone) -> None:
        """Judged when all is at rest."""
        self._done.append(event)

    def on_kept(self, event: Kept) -> None:
        """Count."""
        for message in event.messages.values():
            found = _feed_of(message)
            if found is not None:
                place = (found[0], event.partition)
                self._counts[place] = self._counts.get(place, 0) + 1

    def on_ended(self, event: Ended) -> None:
        """Compare."""
        for done in self._done:
            told = done.partition_rows
            there = tuple(self._counts.get((done.feed, p), 0) for p in range(len(told)))
            if told != there or done.rows != sum(there):
                self.broken(done.at_ms, f"{done.feed} reports {done.rows}, {told}: it is {there}")
            if not 0 <= done.rows_already <= done.rows:
                self.broken(done.at_ms, f"{done.feed}: {done.rows_already} of {done.rows} before")
            if done.spark_partitions != len(done.given):
                self.broken(done.at_ms, f"{done.feed} reports {done.spark_partitions} partitions")


class FeedsGoOn(Checker):
    """Who feeds the same data again is never refused for it."""

    def on_feedended(self, event: FeedEnded) -> None:
        """A conflict needs somebody else's data."""
        if event.conflict and event.alone:
            self.broken(event.at_ms, f"{event.feed} was only fed the same data: {event.error}")
