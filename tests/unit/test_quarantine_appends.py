"""A quarantine's log whose answers are lost: what is put aside is kept once, and all goes on."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from pxrs_ray.actors.consumer import quarantine_log
from pxrs_ray.actors.consumer.quarantine_log import QuarantineLog
from pxrs_ray.data.batch import Batch
from pxrs_ray.errors import BufferAway, MessageTooLarge, SequenceConflict
from pxrs_ray.model import Message
from pxrs_ray.processing.numbered_appends import NumberedAppends
from pxrs_ray.processing.quarantine_state import Quarantine, QuarantineRecord, headers_of


def told(batch: Batch) -> list[object]:
    return [(message.key, message.timestamp_ms, message.headers) for message in batch]


class Log:
    """Takes each number once, as a partition's log does; `raises` says what callers get."""

    def __init__(self) -> None:
        self.taken: list[Batch] = []
        self.raises: list[tuple[BaseException, bool]] = []
        self.dropped_to = self.start = 0

    def append(self, batch: Batch, producer: bytes, epoch: int, sequence: int) -> None:
        error, arrives = self.raises.pop(0) if self.raises else (None, True)
        if arrives and sequence < len(self.taken):
            if told(self.taken[sequence]) != told(batch):
                raise SequenceConflict(f"{sequence} was appended before with other content")
        elif arrives:
            self.taken.append(Batch(3, len(self.taken), batch.flags, batch.columns, 1))
        if error is not None:
            raise error

    def read(self, position: int) -> Iterator[Batch]:
        if position < self.start:
            position = self.dropped_to = self.start
        return iter(self.taken[position:])


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> QuarantineLog:
    times = itertools.count(1_000)
    monkeypatch.setattr(quarantine_log, "wall_ms", lambda: next(times))
    made: Any = QuarantineLog.__new__(QuarantineLog)
    made.queue, made.partition, made.epoch = "q.quarantine.g", 3, 7
    made.state, made.lock, made._log = Quarantine(), threading.RLock(), Log()
    made._producer, made._sequence, made._appends = b"p", 0, NumberedAppends()
    return made  # type: ignore[no-any-return]


@pytest.mark.parametrize("arrives", [True, False])
def test_what_was_not_answered_is_kept_once_and_the_next_behind_it(
    log: QuarantineLog, arrives: bool
) -> None:
    kept: Any = log._log
    kept.raises = [(BufferAway("no answer"), arrives)]
    with pytest.raises(BufferAway):
        log.note(QuarantineRecord.RETRY, b"a")
    # It is told again, later: with another time, so as another record.
    log.note(QuarantineRecord.RETRY, b"b")
    log.refresh()
    assert [[message.key for message in batch] for batch in kept.taken] == [[b"a"], [b"b"]]


def test_what_was_refused_for_good_is_in_nobodys_way(log: QuarantineLog) -> None:
    kept: Any = log._log
    kept.raises = [(MessageTooLarge("too large"), False)]
    with pytest.raises(MessageTooLarge):
        log.note(QuarantineRecord.RETRY, b"a")
    log.note(QuarantineRecord.RETRY, b"b")
    assert [[message.key for message in batch] for batch in kept.taken] == [[b"b"]]


def test_who_looks_hears_of_a_key_that_flows_though_its_log_was_dropped_meanwhile(
    log: QuarantineLog,
) -> None:
    """The owner drops the log once nothing is aside: an operator's look may come too late."""
    kept: Any = log._log
    log.append([Message(3, -1, b"k", b"m", 1, headers_of(QuarantineRecord.PARKED, offset=7))])
    log.note(QuarantineRecord.RETRY, b"k")
    assert log.state.keys[b"k"].retrying
    owner = {"position": 0}
    for kind, values in ((QuarantineRecord.REDRIVEN, owner), (QuarantineRecord.RELEASED, {})):
        record = Message(3, -1, b"k", b"", 1, headers_of(kind, **values))
        batch = Batch.of([b"k"], [b""], timestamp_ms=1, headers=[record.headers])
        kept.append(batch, b"o", 8, len(kept.taken))
    kept.start = len(kept.taken)
    assert not log.refresh().keys
    assert log.state.next_position == 4
    log._appends._sequence = len(kept.taken)  # of another producer in a log of its own count
    log.append([Message(3, -1, b"k", b"m", 1, headers_of(QuarantineRecord.PARKED, offset=9))])
    assert [entry.offset for entry in log.state.keys[b"k"].entries.values()] == [9]
