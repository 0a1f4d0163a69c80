"""What a message may be is checked where it is given: nothing that passes fails later."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pxrs_ray.clock import Instant
from pxrs_ray.config import PxrsConfig
from pxrs_ray.data.batch import Batch
from pxrs_ray.data.message_form import row_sizes
from pxrs_ray.errors import ConfigError, MessageTooLarge, PxrsError, UsageError
from pxrs_ray.log.partition_log import PartitionLog
from pxrs_ray.partitioning import PartitioningSpec
from pxrs_ray.producer.accumulator import Accumulator
from pxrs_ray.producer.receipt import Receipt
from pxrs_ray.producer.sender import Sender
from tests.logs import MEMORY, open_log
from tests.settings import producer_limits, sender_limits

NOW = Instant(1_000, 5_000)
HALF = "a\udcff"


class Way:
    """An accumulator, and the real log behind it."""

    def __init__(
        self, log: PartitionLog, spread: PartitioningSpec | None = None, **limits: Any
    ) -> None:
        self.log = log
        self.sender = Sender(1, sender_limits())
        partitioner = (spread or PartitioningSpec(1)).partitioner()
        self.accumulator = Accumulator(partitioner, self.sender, producer_limits(**limits))

    def deliver(self) -> None:
        self.accumulator.close_open(1_000)
        while calls := list(self.sender.calls(1_000)):
            for call in calls:
                answers = [self.log.append(header, body, 1) for _, header, body in call.arguments()]
                self.sender.answered(call, answers, 1_000)


BAD: list[tuple[Any, Any, dict[str, Any]]] = [
    (HALF, b"", {}),
    (7, b"", {}),
    (bytearray(b"k"), b"", {}),
    (b"k", HALF, {}),
    (b"k", {"a": 1}, {}),
    (b"k", b"", {"timestamp_ms": 1 << 63}),
    (b"k", b"", {"timestamp_ms": -(1 << 63) - 1}),
    (b"k", b"", {"timestamp_ms": True}),
    (b"k", b"", {"timestamp_ms": 1.5}),
    (b"k", b"", {"message_id": HALF}),
    (b"k", b"", {"message_id": b"id"}),
    (b"k", b"", {"headers": {HALF: b""}}),
    (b"k", b"", {"headers": {"h": HALF}}),
    (b"k", b"", {"headers": {"h": None}}),
    (b"k", b"", {"headers": "text"}),
    (b"k", b"", {"headers": 5}),
    (b"k", b"", {"headers": [("h",)]}),
    (b"k", b"", {"scope": HALF}),
    (b"k", b"", {"scope": 5}),
    (b"k", b"", {"headers": {"h": b"x" * 2_000}}),
    (b"k", b"", {"headers": {f"h{i}": b"" for i in range(100)}}),
    (b"k", b"", {"message_id": "x" * 2_000}),
    ("ä" * 600, b"", {}),
]


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: ascii(bad)[:40])
def test_a_bad_message_is_refused_and_its_neighbours_arrive(tmp_path: Any, bad: Any) -> None:
    key, payload, options = bad
    with closing(open_log(tmp_path / "log", MEMORY)) as log:
        way = Way(log, message_bytes_max=1_000)
        receipts = [way.accumulator.add(b"k", b"%d" % i, NOW) for i in range(3)]
        with pytest.raises((UsageError, MessageTooLarge)):
            way.accumulator.add(key, payload, NOW, **options)
        receipts.append(way.accumulator.add(b"k", b"3", NOW))
        way.deliver()
        assert [receipt.result(0).offset for receipt in receipts] == [0, 1, 2, 3]


def test_what_was_given_cannot_be_changed_afterwards(tmp_path: Any) -> None:
    headers: dict[str, Any] = {"h": bytearray(b"1")}
    payload = bytearray(b"x")
    with closing(open_log(tmp_path / "log", MEMORY)) as log:
        way = Way(log)
        receipt = way.accumulator.add(b"k", payload, NOW, headers)  # type: ignore[arg-type]
        headers["h"][0] = 50
        headers["bad"] = None
        payload[0] = 50
        way.deliver()
        assert receipt.result(0).offset == 0
        [chunk] = log.read(0).chunks
        [message] = Batch.from_wire(0, bytes(chunk[:HEADER]), bytes(chunk[HEADER:]))
        assert (message.payload, message.headers) == (b"x", (("h", b"1"),))


HEADER = len(Batch.of([b""], [b""], timestamp_ms=1).to_wire(b"p" * 16, 0, 0)[0])

texts = st.text(st.characters(codec=None), max_size=8)
wild = st.one_of(
    st.none(), st.binary(max_size=40), texts, st.integers(), st.floats(), st.just(object())
)
stamps = st.one_of(st.none(), st.integers(-(1 << 64), 1 << 64), wild)
pairs = st.one_of(
    st.none(),
    st.dictionaries(texts, st.one_of(st.binary(max_size=40), texts), max_size=3),
    st.lists(st.tuples(texts, st.binary(max_size=9)), max_size=3),
    st.dictionaries(wild, wild, max_size=2),
    st.lists(wild, max_size=2),
    wild,
)
messages = st.tuples(wild, wild, pairs, stamps, wild, wild)


@settings(max_examples=150, deadline=None)
@given(given_messages=st.lists(messages, max_size=12), strategy=st.sampled_from([0, 1, 2]))
def test_fuzz_whatever_is_accepted_arrives_and_the_rest_is_refused(
    tmp_path_factory: Any, given_messages: list[Any], strategy: int
) -> None:
    spreads = (
        PartitioningSpec(1),
        PartitioningSpec(1, "tenant"),
        PartitioningSpec(1, "label", labels=(("gpu", 1),)),
    )
    with closing(open_log(tmp_path_factory.mktemp("fuzz") / "log", MEMORY)) as log:
        way = Way(log, spreads[strategy], message_bytes_max=120, batch_records_max=1_000)
        accepted: list[tuple[Receipt, Any]] = []
        for key, payload, headers, stamp, message_id, scope in given_messages:
            label = "gpu" if strategy == 2 else scope
            try:
                receipt = way.accumulator.add(key, payload, NOW, headers, stamp, message_id, label)
            except PxrsError:
                continue
            as_bytes = payload.encode() if isinstance(payload, str) else bytes(payload)
            accepted.append((receipt, as_bytes))
        way.deliver()
        assert [receipt.result(0).offset for receipt, _ in accepted] == list(range(len(accepted)))
        assert log.end_offset == len(accepted)


@settings(max_examples=150, deadline=None)
@given(
    keys=st.lists(wild, max_size=4),
    payloads=st.lists(wild, max_size=4),
    headers=st.one_of(st.none(), st.lists(pairs, max_size=4), wild),
    ids=st.one_of(st.none(), st.lists(wild, max_size=4), wild),
    times=st.one_of(st.none(), st.lists(stamps, max_size=4), wild),
    scopes=st.one_of(st.none(), st.lists(wild, max_size=4), wild),
)
def test_fuzz_columns_are_taken_whole_or_refused_whole(
    tmp_path_factory: Any,
    keys: Any,
    payloads: Any,
    headers: Any,
    ids: Any,
    times: Any,
    scopes: Any,
) -> None:
    with closing(open_log(tmp_path_factory.mktemp("fuzz") / "log", MEMORY)) as log:
        way = Way(log, message_bytes_max=150)
        try:
            batch = Batch.of(
                keys, payloads, timestamp_ms=1, timestamps_ms=times, headers=headers, ids=ids
            )
            found = way.accumulator.pieces(batch, scopes)
        except PxrsError:
            assert log.end_offset == 0
            return
        shipments = [way.accumulator.add_batch(piece, 1_000, part) for piece, part in found]
        way.deliver()
        assert sum(each.messages for s in shipments for each in s.placed()) == len(payloads)


def test_columns_of_every_make_are_taken() -> None:
    moments = pd.Series(pd.to_datetime(["2026-01-01", "2026-01-02"], utc=True))
    for times in (moments, pa.array(moments), moments.dt.tz_localize(None), np.array([1, 2])):
        batch = Batch.of(["a", "b"], np.array([b"1", b"2"]), timestamp_ms=0, timestamps_ms=times)
        assert batch.timestamps_ms.tolist() in ([1_767_225_600_000, 1_767_312_000_000], [1, 2])
    hostile = pa.Array.from_buffers(
        pa.utf8(), 1, [None, pa.array([0, 2], pa.int32()).buffers()[1], pa.py_buffer(b"\xff\xfe")]
    )
    with pytest.raises(UsageError, match="'id' must hold str"):
        Batch.of([b"k"], [b"x"], timestamp_ms=0, ids=hostile)


def test_sizes_count_what_single_messages_count(tmp_path: Any) -> None:
    headers: list[Any] = [{"h": b"12345"}, None, [("a", b""), ("bb", b"c")]]
    batch = Batch.of(
        [b"k", None, b"kk"], [b"", b"x" * 50, b"y"], timestamp_ms=1, headers=headers, ids=["i"] * 3
    )
    with closing(open_log(tmp_path / "log", MEMORY)) as log:
        way = Way(log)
        before = 0
        for message, pairs_, size in zip(batch, headers, row_sizes(batch), strict=True):
            way.accumulator.add(message.key, message.payload, NOW, pairs_, None, "i")
            assert way.accumulator.pending_bytes - before == size
            before = way.accumulator.pending_bytes
        assert row_sizes(batch.slice(1)).tolist() == row_sizes(batch).tolist()[1:]


@pytest.mark.parametrize("compression", [None, "lz4"])
def test_a_batch_larger_than_the_log_takes_becomes_several_frames(
    tmp_path: Any, compression: str | None
) -> None:
    rng = np.random.default_rng(1)
    with closing(open_log(tmp_path / "log")) as log:
        limit = log.limits.frame_bytes_max
        way = Way(
            log,
            message_bytes_max=limit,
            frame_bytes_max=limit,
            batch_bytes_max=50 * limit,
            chunk_bytes_max=50 * limit,
            compression=compression,
        )
        sizes = [*rng.integers(0, 30_000, 40).tolist(), limit * 99 // 100 - 2_000]
        receipts = [way.accumulator.add(b"k", rng.bytes(size), NOW) for size in sizes]
        columns = Batch.of([b"k"] * 41, [rng.bytes(size) for size in sizes], timestamp_ms=1)
        way.deliver()
        for piece, part in way.accumulator.pieces(columns):
            way.accumulator.add_batch(piece, 1_000, part)
        way.deliver()
        assert [receipt.result(0).offset for receipt in receipts] == list(range(41))
        assert log.end_offset == 82
        with pytest.raises(MessageTooLarge):
            way.accumulator.add(b"k", rng.bytes(limit), NOW)


def test_a_log_takes_every_message_that_the_configuration_allows() -> None:
    mib = 1 << 20
    for message_bytes_max in (mib, 64 * mib, 65 * mib, 1_024 * mib):
        config = PxrsConfig(
            name="shop",
            queues={"q": {"message_bytes_max": message_bytes_max}},  # type: ignore[dict-item]
        )
        limits = config.queues["q"].log_limits()
        assert limits.frame_bytes_max > message_bytes_max
    with pytest.raises(ConfigError, match="message_bytes_max"):
        PxrsConfig(name="shop", message_bytes_max=2 << 30)


def test_limits_below_one_are_refused() -> None:
    for name in ("batch_records_max", "batch_bytes_max", "message_bytes_max", "pending_bytes_max"):
        with pytest.raises(ConfigError, match=name):
            producer_limits(**{name: 0})
