"""What consumers were told and answered, noted in their own processes, for the checkers.

A witness is a handler that also listens to the `ConsumerSession` beside it. Together with the
registry's history and with what the logs hold, that makes a history which most checkers judge;
the rest need to look into a coordinator or a buffer, and are for the simulator.
"""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from pxrs_ray.actors.buffer.partition_client import PartitionClient
from pxrs_ray.consumer.session import ConsumerSession, SessionChanges
from pxrs_ray.group.events import Assignment, PartitionProgress
from pxrs_ray.model import Change, Outcome, PartitionRow, Write, WriteKind
from tests.actors.recording import Note, Recorder
from tests.simulation import checkers
from tests.simulation.history import Answered, Appended, HistoryEvent, Obeyed, Processed, Stored

SUFFIX = ".seen"

# The rest of `checkers.CHECKERS` needs what only a simulated coordinator, store or log tells.
JUDGES = (
    checkers.NothingFails,
    checkers.OneOwner,
    checkers.CheckpointsHold,
    checkers.ConsumerObeys,
    checkers.StoreRefuses,
    checkers.AppendedOnce,
    checkers.NothingLost,
    checkers.InOrder,
    checkers.KeysInOrder,
    checkers.DoneOnce,
    checkers.ComesToRest,
)

# When, in ms since 1970, and what comes first within one.
Timed = tuple[float, int, HistoryEvent]


class Witness(Recorder):
    """Make it in the consumer's process only: give the group a class whose instances are one."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        file = os.open(folder / f"{os.getpid()}{SUFFIX}", os.O_CREAT | os.O_APPEND | os.O_WRONLY)

        def note(event: Callable[[int], HistoryEvent]) -> None:
            at_ms = time.time() * 1_000
            os.write(file, pickle.dumps((at_ms, 0, event(int(at_ms)))))

        _listen(note)


def _listen(note: Callable[[Callable[[int], HistoryEvent]], None]) -> None:
    """Have every session of this process tell `note` what it obeys and is answered."""
    assign, committed = ConsumerSession.assign, ConsumerSession.committed

    def obey(self: ConsumerSession, told: Assignment) -> SessionChanges:
        before = self.seen
        changes = assign(self, told)
        if self.seen != before:
            note(lambda at_ms: Obeyed(at_ms, told))
        return changes

    def hear(
        self: ConsumerSession, rows: Iterable[PartitionProgress], outcomes: Sequence[Outcome]
    ) -> SessionChanges:
        rows, told, who = tuple(rows), tuple(outcomes), (self.member, self.incarnation)
        note(lambda at_ms: Answered(at_ms, self.seen[0], *who, rows, told, False))
        return committed(self, rows, outcomes)

    ConsumerSession.assign, ConsumerSession.committed = obey, hear  # type: ignore[method-assign]


def seen(folder: Path) -> list[Timed]:
    """Everything that witnesses noted there."""
    found: list[Timed] = []
    for file in folder.glob(f"*{SUFFIX}"):
        with file.open("rb") as opened:
            while True:
                try:
                    found.append(pickle.load(opened))
                except EOFError:
                    break
    return found


def appended(topology: str, buffers: int, queue: str, partitions: int) -> list[Timed]:
    """What the logs hold, as of when it was sent.

    A log does not tell which call brought a message, so the order of each producer's sequences,
    which `AppendedOnce` also looks at, is not judged by this.
    """
    found: list[Timed] = []
    for partition in range(partitions):
        latest_ms, number = 0, 0
        for batch in PartitionClient(topology, buffers, queue, partition).read(0):
            for message in batch:
                latest_ms = max(latest_ms, message.timestamp_ms)
                key, text = message.key or b"", message.payload.decode()
                place = (latest_ms, partition, message.offset)
                event = Appended(*place, key, text, f"to {partition}", 0, number)
                found.append((latest_ms, 0, event))
                number += 1
    return found


def stored(changes: Iterable[Change]) -> list[Timed]:
    """What the registry's history says of partitions.

    It knows milliseconds: within one, what was processed comes before what changed.
    """
    found: list[Timed] = []
    rows: dict[int, PartitionRow] = {}
    for change in changes:
        if change.partition < 0:
            continue
        kind = WriteKind(change.kind)
        before = rows.get(change.partition, PartitionRow(change.partition))
        claim, reset = kind is WriteKind.CLAIM, kind is WriteKind.RESET
        rows[change.partition] = after = PartitionRow(
            change.partition,
            change.owner if claim else None,
            change.incarnation if claim else 0,
            change.epoch,
            change.checkpoint,
        )
        write = Write(
            kind,
            change.partition,
            None if reset else change.owner,
            0 if reset else change.incarnation,
            change.epoch - 1,
            change.checkpoint,
            version=change.version,
            cause=change.cause,
            at_ms=change.at_ms,
        )
        event = Stored(change.at_ms, 0, write, Outcome.APPLIED, before, after, False)
        found.append((change.at_ms + 0.999, change.version, event))
    return found


def processed(notes: Iterable[Note]) -> list[Timed]:
    """What handlers have done."""
    return [
        (
            note.at_s * 1_000,
            0,
            Processed(
                round(note.at_s * 1_000),
                note.partition,
                note.epoch,
                note.member,
                note.incarnation,
                note.offset,
                note.key.encode(),
                note.payload,
            ),
        )
        for note in notes
    ]


def in_order(*parts: Iterable[Timed]) -> list[Any]:
    """One history of several accounts."""
    return [event for *_, event in sorted((one for part in parts for one in part), key=_when)]


def _when(one: Timed) -> tuple[float, int]:
    return one[:2]
