"""Histories written by hand of what feeds report and logs keep: the smallest broken promises."""

from __future__ import annotations

from collections.abc import Sequence

from tests.simulation.history import Ended, FeedDone, FeedEnded, HistoryEvent, Kept

ROWS = ("f|0|0|a", "f|0|1|a")
DONE = FeedDone(1, "f", 2, 0, (2,), 1, {0: (ROWS,)})
END = Ended(9, (), {}, ())


def _kept(*messages: str) -> Kept:
    return Kept(8, 0, 0, dict(enumerate(messages)))


GOOD_FEED: list[HistoryEvent] = [DONE, _kept(*ROWS), END]

FEED_HISTORIES: Sequence[tuple[str, str, list[HistoryEvent]]] = (
    ("FeedsExact", "a row is missing", [DONE, _kept(ROWS[0]), END]),
    ("FeedsExact", "a row is there twice", [_kept(*ROWS, ROWS[0]), END]),
    ("FeedsExact", "a key's rows are out of order", [DONE, _kept(ROWS[1], ROWS[0]), END]),
    ("FeedsExact", "another's row", [DONE, _kept(*ROWS, "f|0|2|a"), END]),
    ("FeedsExact", "a Spark partition too many", [DONE, _kept(*ROWS, "f|1|0|a"), END]),
    (
        "ReportsTrue",
        "a row that was not counted",
        [FeedDone(1, "f", 1, 0, (1,), 1, {0: (ROWS,)}), _kept(*ROWS), END],
    ),
    (
        "ReportsTrue",
        "more before than at all",
        [FeedDone(1, "f", 2, 3, (2,), 1, {0: (ROWS,)}), _kept(*ROWS), END],
    ),
    (
        "ReportsTrue",
        "a Spark partition that was not counted",
        [FeedDone(1, "f", 2, 0, (2,), 0, {0: (ROWS,)}), _kept(*ROWS), END],
    ),
    ("FeedsGoOn", "the same data is refused", [FeedEnded(1, "f", "no", conflict=True, alone=True)]),
)
