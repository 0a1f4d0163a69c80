"""Records of a source: each is taken by exactly one reader, and a bad one takes no other down."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pxrs_ray.actors.consumer.handler import Handler, handler_ref
from pxrs_ray.actors.consumer.sequential_worker import SequentialWorker
from pxrs_ray.actors.consumer.source_fetcher import SourceFetcher
from pxrs_ray.config import GroupConfig, PxrsConfig, QueueConfig
from pxrs_ray.config.scheduling import retry_rules
from pxrs_ray.consumer.delivery import Delivery, DeliveryContext
from pxrs_ray.consumer.session import ConsumerSession
from pxrs_ray.consumer.unsound_records import refuse_unsound_records
from pxrs_ray.data.batch import Batch
from pxrs_ray.errors import BadRecord, ConfigError
from pxrs_ray.group.events import Assignment
from pxrs_ray.model import Grant
from pxrs_ray.partitioning import PartitioningSpec
from pxrs_ray.sources import SourceRecord, SourceSpec
from pxrs_ray.sources.file import FileSource
from pxrs_ray.sources.soundness import ERROR_HEADER, runs, sound
from tests.actors.recording import eventually
from tests.actors.worker_bench import WorkerCallbacks
from tests.works import Works

PARTITIONS = 4


def test_a_line_that_nests_too_deeply_is_a_bad_record_and_its_neighbours_are_read(
    tmp_path: Path,
) -> None:
    path = tmp_path / "lines"
    deep = "[" * 200_000
    path.write_text(f'{{"a": "x"}}\n{{"a": {deep}\n{{"a": "y"}}\n')
    source = FileSource(path, "a")
    first, bad, last = source.read(0, 10, 0)
    assert (first.key, last.key, first.error, last.error) == (b"x", b"y", "", "")
    assert "RecursionError" in bad.error and bad.payload.startswith(b'{"a": [[[')
    source.close()


anything: Any = st.one_of(st.none(), st.text(), st.binary(), st.integers(), st.lists(st.none()))
pairs: Any = st.lists(st.tuples(st.text(max_size=4), st.binary(max_size=4)), max_size=2).map(tuple)


@settings(max_examples=300)
@given(key=anything, payload=anything, stamp=anything, headers=st.one_of(pairs, anything))
def test_whatever_a_source_returns_becomes_a_message(
    key: Any, payload: Any, stamp: Any, headers: Any
) -> None:
    found = sound(SourceRecord(7, key, payload, stamp, headers))
    batch = Batch.of(
        [found.key],
        [found.payload],
        timestamp_ms=0,
        timestamps_ms=[found.timestamp_ms],
        headers=[found.headers],
    )
    [message] = batch
    told = dict(message.headers).get(ERROR_HEADER)
    assert (told is not None) == bool(found.error)
    if not found.error:
        assert (message.key, message.payload) == (key, payload)
    elif isinstance(payload, bytes):
        assert message.payload == payload, "its bytes are kept"


@pytest.mark.parametrize("offset", [-1, 1 << 63, None, "7", True])
def test_an_offset_that_is_none_is_the_sources_trouble(offset: Any) -> None:
    with pytest.raises(BadRecord, match="offset"):
        sound(SourceRecord(offset, None, b""))


def test_a_bad_record_is_a_run_of_its_own() -> None:
    errors = {3, 4, 9}
    records = [SourceRecord(n, None, b"", error="bad" * (n in errors)) for n in range(10) if n != 6]
    found = [[r.offset for r in run] for run in runs(records)]
    assert found == [[0, 1, 2], [3], [4], [5], [7, 8], [9]]


class Taken:
    """What one reader hands on."""

    def __init__(self) -> None:
        self.offsets: list[int] = []

    def received(self, partition: int, epoch: int, batch: Batch, size_bytes: int) -> None:
        self.offsets += [message.offset for message in batch]

    def skipped(self, partition: int, epoch: int, to: int) -> None: ...

    def queued_bytes(self, partition: int) -> int:
        return 0


def reader(spread: PartitioningSpec, partitions: set[int]) -> tuple[SourceFetcher, Taken]:
    session = ConsumerSession("m", 1, Works())
    grants = tuple(Grant(p, 1, 0) for p in sorted(partitions))
    session.assign(Assignment(1, 1, "m", 1, grants))
    spec = SimpleNamespace(config=SimpleNamespace(pull_bytes_max=1 << 20))
    runtime: Any = SimpleNamespace(session=session, spec=spec, name="m")
    taken: Any = Taken()
    return SourceFetcher(runtime, taken, SourceSpec("file:///x", spread)), taken


@pytest.mark.parametrize("strategy", ["modulo", "jump"])
@pytest.mark.parametrize("seed", range(5))
def test_each_record_is_taken_by_exactly_one_reader(strategy: str, seed: int) -> None:
    draw = random.Random(seed)
    spread = PartitioningSpec(PARTITIONS, strategy)
    mine = {p for p in range(PARTITIONS) if draw.random() < 0.5}
    readers = [reader(spread, part) for part in (mine, set(range(PARTITIONS)) - mine)]
    offset, records = 0, []
    for _ in range(100):
        offset += draw.choice((1, 1, 1, 5))
        key = draw.choice((None, b"%d" % draw.randrange(20)))
        records.append(SourceRecord(offset, key, b"x", error=draw.choice(("", "", "", "bad"))))
    for reading, _ in readers:
        at = 0
        while at < len(records):
            count = draw.randint(1, 30)
            part = [sound(record) for record in records[at : at + count]]
            read = reading._next(False)
            if read is not None:  # one that holds nothing reads nothing
                reading._take_in(read, part, False)
            at += count
    found = sorted(o for _, taken in readers for o in taken.offsets)
    assert found == [record.offset for record in records]


@pytest.mark.parametrize("strategy", ["round_robin", "broadcast", "label", "tenant"])
def test_a_strategy_that_readers_cannot_share_is_refused(strategy: Any) -> None:
    labels = {"gpu": 1, "cpu": 1} if strategy == "label" else None
    queue = QueueConfig(partitions=2, source="file:///x", strategy=strategy, labels=labels)
    with pytest.raises(ConfigError, match="must be modulo or jump, as it has a source"):
        PxrsConfig(name="t", queues={"q": queue})


def test_a_bad_record_meets_the_policy_without_its_handler() -> None:
    calls: list[int] = []
    handler = Handler(handler_ref(_stand_in))
    handler.call = lambda message: calls.append(message.offset)
    handler.check_first(refuse_unsound_records)
    config = GroupConfig(queue="q", failure_policy="skip", attempts_max=2, backoff_ms=1)
    callbacks, shared = WorkerCallbacks(), DeliveryContext("q", "g", "m", 1, 3, 7, topology_id="t1")
    worker = SequentialWorker(
        Grant(3, 7, 0), shared, handler, retry_rules(config), callbacks, config, None
    )
    worker.start()
    bad = sound(SourceRecord(1, None, b"bytes", error="no key"))
    messages = [SourceRecord(0, b"k", b"x"), bad, SourceRecord(2, b"k", b"y")]
    batch = Batch.of(
        [m.key for m in messages],
        [m.payload for m in messages],
        timestamp_ms=0,
        headers=[m.headers for m in messages],
    )
    worker.put(Batch(3, 0, batch.flags, batch.columns, 0), 1)
    eventually(lambda: worker.progress().checkpoint == 3, 10)
    worker.stop()
    assert worker.join(10) and calls == [0, 2]
    [(failure, offsets)] = callbacks.given_up
    assert offsets == [1] and "no key" in failure.error


def _stand_in(message: Delivery) -> None: ...
