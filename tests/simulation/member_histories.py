"""Histories written by hand of what members ask and logs keep: the smallest broken promises."""

from __future__ import annotations

from collections.abc import Sequence

from pxrs_ray.group.events import Assignment, Heartbeat, Tick
from pxrs_ray.model import Grant
from tests.simulation.histories import appended, decided, told
from tests.simulation.history import (
    Acknowledged,
    Asked,
    Ended,
    HandlersDied,
    Harmed,
    HistoryEvent,
    Kept,
    Obeyed,
    PutAside,
    Raised,
    Unserved,
)

HEARD = [decided(Heartbeat("A", 1, (0, 0)), now_ms=5), decided(Tick(), now_ms=106)]
PAUSED = Assignment(1, 1, "A", 1, (Grant(0, 1, 0),), frozenset(), 0, paused=True)


def put_aside(offset: int = 0, attempts_max: int = 1) -> PutAside:
    return PutAside(1, 0, 1, "A", 1, offset, b"k", f"m{offset}", attempts_max)


ACKNOWLEDGED = [appended(0), Acknowledged(1, 0, 0, "m0")]

MEMBER_HISTORIES: Sequence[tuple[str, str, list[HistoryEvent]]] = (
    ("LeaseBinds", "a commit without a lease", [*HEARD, Asked(1, "A", 1, "Commit", (0,))]),
    ("LeaseBinds", "a release without a lease", [*HEARD, Asked(1, "A", 1, "Release", (0,))]),
    ("LeaseBinds", "a fetch without a lease", [*HEARD, Asked(1, "A", 1, "fetch", (0,))]),
    (
        "ConsumerObeys",
        "ready for what does not come",
        [Obeyed(1, told("A", Grant(0, 1, 0))), Asked(1, "A", 1, "Prepared", (1,))],
    ),
    (
        "ConsumerObeys",
        "reading while paused",
        [Obeyed(1, PAUSED), Asked(1, "A", 1, "fetch", (0,))],
    ),
    (
        "PausesWhenAway",
        "asking a buffer that is away without end",
        [Unserved(1, "A", 1), Asked(5, "A", 1, "fetch", (0,))],
    ),
    ("LogsKeep", "what was acknowledged is gone", [*ACKNOWLEDGED, Kept(1, 0, 0, {})]),
    ("LogsKeep", "what was acknowledged is elsewhere", [*ACKNOWLEDGED, Kept(1, 0, 0, {1: "m0"})]),
    (
        "OffsetsOnce",
        "an offset is another message's",
        [*ACKNOWLEDGED, Acknowledged(2, 0, 0, "m1")],
    ),
    (
        "SeenOffsetsOnce",
        "an offset is given out again after a power cut",
        [appended(0), Harmed(2, "power", loses=True), appended(0, message="m7")],
    ),
    ("LogsKeep", "a message twice", [Kept(1, 0, 0, {0: "m0", 1: "m0"})]),
    (
        "PutAsideForCause",
        "one failure too few",
        [Raised(1, 0, 0), HandlersDied(1, "A", ((0, 0, 2),)), put_aside(attempts_max=2)],
    ),
    ("NothingLost", "beside what was put aside", [put_aside(), Ended(1, (), {0: 2}, ())]),
    ("AppendedOnce", "what was acknowledged never came", [ACKNOWLEDGED[1], Ended(1, (), {}, ())]),
)
