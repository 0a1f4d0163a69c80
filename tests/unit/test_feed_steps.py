"""The steps of one Spark partition, driven by hand: what a ledger is asked, told and refuses."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from pxrs_ray.data.batch import Batch
from pxrs_ray.data.frame import unpack_header
from pxrs_ray.data.protocol import Appended, OutFrame, Refused
from pxrs_ray.errors import (
    BufferAway,
    DeadlineExceeded,
    FeedConflict,
    LogLost,
    PartitionFull,
    SequenceConflict,
    SequenceGap,
)
from pxrs_ray.feed.facts import FACT_CODEC, FeedFacts, FeedState, KnownProgress
from pxrs_ray.feed.feed_calls import PAUSE_MS, FeedCalls
from pxrs_ray.feed.feed_round import FeedRound
from pxrs_ray.feed.feed_run import FeedRun, FetchFailed
from pxrs_ray.feed.partition_feed import (
    Append,
    Drain,
    FeedStep,
    Read,
    Settle,
    SparkPartition,
    TellLedger,
    route,
)
from pxrs_ray.partitioning import Partitioner, PartitioningSpec


@dataclass(frozen=True)
class Queue:
    queue: str = "q"
    spread: PartitioningSpec = field(default_factory=lambda: PartitioningSpec(1))
    message_bytes_max: int = 100
    partitions: int = 1

    def partitioner(self, turn: int) -> Partitioner:
        return self.spread.partitioner(turn)


def rows(*texts: str) -> list[pa.RecordBatch]:
    payloads = pa.array([text.encode() for text in texts], pa.binary())
    keys = pa.array([b"k"] * len(texts), pa.binary())
    return [pa.RecordBatch.from_arrays([keys, payloads], names=["key", "payload"])]


class Ledger:
    """A log that compares a repeat with the latest `remembers` facts of each writer."""

    def __init__(self, remembers: int = 64) -> None:
        self.facts: dict[tuple[bytes, int], bytes] = {}
        self.state = FeedState()
        self.uncompared = 0
        self._remembers = remembers
        self._refused = False

    def do(self, step: FeedStep) -> Any:
        match step:
            case TellLedger((_, packed, body)):
                header = unpack_header(packed)
                place, data = (header.producer_id, header.sequence), bytes(body)
                known = self.facts.setdefault(place, data)
                latest = max(n for who, n in self.facts if who == place[0])
                if known is data:
                    [(_, text)] = Batch.from_wire(0, packed, body).rows()
                    self.state.take(FACT_CODEC.decode(text))
                elif latest - place[1] >= self._remembers:
                    self.uncompared += 1
                elif known != data:
                    self._refused = True
            case Settle():
                if self._refused:
                    self._refused = False
                    raise SequenceConflict("other content")
                return self.uncompared
            case Read():
                return self.state.known(0)
            case Drain():
                return 0, 0
        return None


def drive(
    steps: Generator[FeedStep, Any, Any], ledger: Ledger, steps_max: int = 1_000
) -> list[FeedStep]:
    """The steps done, until the end or `steps_max` of them: as if the task died then."""
    done: list[FeedStep] = []
    answer: Any = None
    error: SequenceConflict | None = None
    while len(done) < steps_max:
        try:
            step = steps.throw(error) if error else steps.send(answer)
        except StopIteration:
            break
        done.append(step)
        answer, error = None, None
        try:
            answer = ledger.do(step)
        except SequenceConflict as raised:
            error = raised
    return done


def partition(*texts: str, told: KnownProgress | None = None) -> Generator[FeedStep, Any, Any]:
    """In pieces of one row."""
    facts = FeedFacts("_feeds.q", "f")
    work = SparkPartition(Queue(), "f", 0, 0, facts, 1_000, rows_max=1)
    return route(work, rows(*texts), told or KnownProgress())


def appended(done: list[FeedStep]) -> list[OutFrame]:
    return [frame for step in done if isinstance(step, Append) for frame in step.frames]


def test_nothing_is_appended_before_the_ledger_has_its_fingerprint() -> None:
    done = drive(partition("a", "b", "c"), Ledger())
    told = 0
    for step, after in pairwise(done):
        told += isinstance(step, TellLedger)
        if isinstance(after, Append) and after.frames:
            sent = sum(len(s.frames) for s in done[: done.index(after)] if isinstance(s, Append))
            assert told > sent
    assert len(appended(done)) == 3


def test_who_comes_out_shorter_where_a_piece_ends_is_refused() -> None:
    """A died behind its third piece; the same Spark partition comes again with the first two."""
    ledger = Ledger()
    drive(partition("a", "b", "c"), ledger, steps_max=9)
    assert len(ledger.state.known(0).marks) == 3
    with pytest.raises(FeedConflict, match="is not what was fed"):
        drive(partition("a", "b"), ledger)
    assert ledger.state.known(0).done is None


def test_a_fingerprint_that_the_log_does_not_compare_any_more_is_compared_here() -> None:
    ledger = Ledger(remembers=2)
    drive(partition("a", "b", "c", "d", "e"), ledger, steps_max=14)
    assert len(ledger.state.known(0).marks) >= 4
    with pytest.raises(FeedConflict, match="another fingerprint"):
        drive(partition("x", "y"), ledger)
    done = drive(partition("a", "b", "c", "d", "e"), ledger)
    assert sum(isinstance(step, Read) for step in done) == 1
    assert ledger.state.known(0).done is not None


def test_a_call_is_made_again_until_patience_ends() -> None:
    calls = FeedCalls("t", "q", 1, stall_ms=1_000, now_ms=0)
    frame: OutFrame = (0, b"", b"")
    [call] = calls.put([frame, (1, b"", b"")], 0)
    gap = Refused(1, SequenceGap("a hole"))
    assert not calls.answered(call, [Appended(0, 0, 1), gap], 10)
    assert (call.frames, call.not_before_ms) == ([(1, b"", b"")], 10 + PAUSE_MS)
    assert not calls.failed(call, BufferAway("gone"), 500)
    with pytest.raises(DeadlineExceeded, match=r"partitions \[1\] of queue 'q' \(buffer 0 of"):
        calls.failed(call, BufferAway("gone"), 1_100)


def test_a_full_partition_is_asked_again_at_once_and_a_lost_one_never() -> None:
    calls = FeedCalls("t", "q", 1, stall_ms=1_000, now_ms=0)
    [call] = calls.put([(0, b"", b"")], 0)
    assert not calls.answered(call, [Refused(0, PartitionFull("full"))], 7)
    assert call.not_before_ms == 7
    with pytest.raises(LogLost):
        calls.answered(call, [Refused(0, LogLost("gone"))], 8)


def test_a_writer_has_a_window_a_buffer() -> None:
    calls = FeedCalls("t", "q", 2, stall_ms=1_000, now_ms=0, window=2)
    for _ in range(2):
        assert calls.crowded([(0, b"", b"")]) is None
        calls.put([(0, b"", b"")], 0)
    first = calls.crowded([(0, b"", b""), (1, b"", b"")])
    assert first is calls.oldest()
    assert calls.crowded([(1, b"", b"")]) is None
    assert first is not None
    assert calls.answered(first, [Appended(0, 0, 1)], 1)
    assert calls.crowded([(0, b"", b"")]) is None


def test_an_executor_gives_one_partition_at_a_time_and_in_time() -> None:
    round_ = FeedRound([0, 1, 2], ["a", "a", "b"], cpus=8, fetch_ms_max=100)
    assert round_.fetches(0) == [0, 2]
    round_.fetched(0)
    assert round_.fetches(50) == [1]
    round_.look(100)
    with pytest.raises(FetchFailed, match="b did not give"):
        round_.look(101)
    for number in (1, 2):
        round_.fetched(number)
    for number in (0, 1, 2):
        assert not round_.over
        round_.routed(number)
    assert round_.over


def test_what_was_begun_is_compared_before_anything_else_is_fed() -> None:
    state = FeedState({"partitions": 3, "schema": "s", "via": "v"}, {1: KnownProgress({0: "x"})})
    run = FeedRun("f", "v", "s", state)
    assert run.begin(3) is None
    assert run.turns() == [[1], [0, 2]]
    with pytest.raises(FeedConflict, match="partitions 3, now 4"):
        run.begin(4)


def test_raydp_is_tried_five_times() -> None:
    run = FeedRun("f", "v", "s", FeedState())
    assert [run.rounds.failed(FetchFailed("gone")) for _ in range(4)] == [1, 2, 3, 4]
    with pytest.raises(DeadlineExceeded, match="RayDP failed 5 times"):
        run.rounds.failed(FetchFailed("gone"))
