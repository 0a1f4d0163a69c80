"""Checkers: each reads a history and says where one promise of PXRS was broken.

They share no code with what they check, and know nothing of how a history came about: a
simulated run and a run on real Ray are judged alike. `check(history)` runs them all; pass fewer
where a promise is not meant to hold (`InOrder` where keys are worked in parallel). A history of a
real run need not have every kind of record: let the buffers write down `Appended` and `Fetched`,
the handlers `Processed`, the end of the test `Ended`, and what is missing is not judged.
"""

from __future__ import annotations

from functools import cache

from tests.simulation.checkers.base import Checker as Checker
from tests.simulation.checkers.base import Violation as Violation
from tests.simulation.checkers.durability import DurableReplies, LiveRecordsTaken, StoreRefuses
from tests.simulation.checkers.feeds import FeedsExact, FeedsGoOn, ReportsTrue
from tests.simulation.checkers.leases import LeaseBinds
from tests.simulation.checkers.logs import LogsKeep, OffsetsOnce, SeenOffsetsOnce
from tests.simulation.checkers.messages import (
    AppendedOnce,
    CheckpointsCovered,
    DoneOnce,
    InOrder,
    KeysInOrder,
    NothingLost,
    PutAsideForCause,
)
from tests.simulation.checkers.movement import LeastMovement, OnlyWithReason, PromptDeadlines
from tests.simulation.checkers.outage import OutageMovesNobody, RefusalsHold
from tests.simulation.checkers.ownership import CheckpointsHold, ConsumerObeys, OneOwner, OneReader
from tests.simulation.checkers.pauses import PausesWhenAway
from tests.simulation.checkers.rest import ComesToRest, NothingFails
from tests.simulation.history import History, HistoryEvent

CHECKERS: tuple[type[Checker], ...] = (
    NothingFails,
    OneReader,
    OneOwner,
    CheckpointsHold,
    ConsumerObeys,
    LeaseBinds,
    StoreRefuses,
    LiveRecordsTaken,
    DurableReplies,
    AppendedOnce,
    NothingLost,
    LogsKeep,
    OffsetsOnce,
    SeenOffsetsOnce,
    CheckpointsCovered,
    InOrder,
    KeysInOrder,
    DoneOnce,
    PutAsideForCause,
    OnlyWithReason,
    LeastMovement,
    PromptDeadlines,
    OutageMovesNobody,
    RefusalsHold,
    PausesWhenAway,
    FeedsExact,
    ReportsTrue,
    FeedsGoOn,
    ComesToRest,
)


@cache
def _watchers(
    kind: type[HistoryEvent], checkers: tuple[type[Checker], ...]
) -> tuple[str, tuple[int, ...]]:
    """The method that gets this kind of event, and which of the checkers have it."""
    method = f"on_{kind.__name__.lower()}"
    return method, tuple(n for n, checker in enumerate(checkers) if hasattr(checker, method))


def check(
    history: History, checkers: tuple[type[Checker], ...] = CHECKERS
) -> tuple[Violation, ...]:
    """Everything that `checkers` find wrong with `history`, in the order in which it happened."""
    running = [checker() for checker in checkers]
    watchers = {
        kind: [getattr(running[number], method) for number in numbers]
        for kind in {type(event) for event in history}
        for method, numbers in [_watchers(kind, checkers)]
    }
    for event in history:
        for watcher in watchers[type(event)]:
            watcher(event)
    return tuple(
        sorted(
            (violation for checker in running for violation in checker.found),
            key=lambda violation: violation.at_ms,
        )
    )
