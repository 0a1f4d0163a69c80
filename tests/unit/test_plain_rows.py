"""Bodies of a few messages without Arrow: the same bytes, and never a wrong one."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pxrs_ray.data import plain_rows
from pxrs_ray.data.batch import Batch
from pxrs_ray.data.frame import SCHEMAS, FrameHeader, decode_body, unpack_header
from pxrs_ray.data.message_form import batch_bytes
from pxrs_ray.data.plain_rows import BYTES_MAX, ROWS_MAX, PlainRows, body_of, rows_in, rows_of
from pxrs_ray.errors import LogCorrupted
from pxrs_ray.partitioning import Partitioner, PartitioningSpec
from pxrs_ray.producer.routing import route, route_columns

KEYS = st.none() | st.binary(max_size=20)
MESSAGES = st.lists(st.tuples(KEYS, st.binary(max_size=40)), min_size=1, max_size=ROWS_MAX)


def arrow_body(rows: PlainRows) -> bytes:
    written: bytes = rows.columns(SCHEMAS[0]).serialize().to_pybytes()
    return written


def rows(messages: list[tuple[bytes | None, bytes]]) -> PlainRows:
    found = rows_of([key for key, _ in messages], [payload for _, payload in messages])
    assert found is not None
    return found


@given(MESSAGES)
def test_they_are_written_byte_for_byte_as_arrow_does_and_read_back(messages: Any) -> None:
    made = rows(messages)
    body = body_of(made)
    assert body == arrow_body(made)
    assert rows_in(len(messages), body) == made
    assert rows_in(len(messages), memoryview(body)) == made
    assert made.columns(SCHEMAS[0]).to_pylist() == [
        {"key": key, "payload": payload} for key, payload in messages
    ]


@given(MESSAGES, st.randoms(use_true_random=False))
def test_a_body_that_was_changed_is_read_as_arrow_reads_it_or_not_at_all(
    messages: Any, rng: random.Random
) -> None:
    made = rows(messages)
    body = bytearray(body_of(made))
    for _ in range(rng.randint(1, 3)):
        body[rng.randrange(len(body))] = rng.randrange(256)
    if rng.random() < 0.2:
        del body[rng.randrange(len(body)) :]
    found = rows_in(len(messages), bytes(body))
    if found is not None:
        header = unpack_header(Batch(-1, 0, 0, made, 1).to_wire(b"i" * 16, 0, 0)[0])
        read = decode_body(header, bytes(body))
        assert read.column(0).to_pylist() == list(found.keys)
        assert read.column(1).to_pylist() == list(found.payloads)


def test_what_is_much_or_has_more_is_left_to_arrow() -> None:
    assert rows_of([b"k"] * (ROWS_MAX + 1), [b""] * (ROWS_MAX + 1)) is None
    assert rows_of([b"k"], [bytes(BYTES_MAX + 1)]) is None
    assert rows_of([bytes(BYTES_MAX + 1)], [b""]) is None
    body = arrow_body(PlainRows([b"k"] * (ROWS_MAX + 1), [b""] * (ROWS_MAX + 1)))
    assert rows_in(ROWS_MAX + 1, body) is None
    assert rows_in(2, arrow_body(PlainRows([b"k"], [b""]))) is None, "another count than it says"
    assert rows_in(0, b"") is None and rows_in(1, b"x" * 10) is None
    stamped = Batch.of([b"k"], [b"p"], timestamp_ms=1, timestamps_ms=[7])
    header, encoded = stamped.to_wire(b"i" * 16, 0, 0)
    assert Batch.from_wire(0, header, encoded).plain_rows is None
    assert [message.timestamp_ms for message in Batch.from_wire(0, header, encoded)] == [7]


def test_texts_are_keys_too() -> None:
    assert rows([("user", b"x"), (None, b"y")]) == PlainRows([b"user", None], [b"x", b"y"])  # type: ignore[list-item]


def test_an_arrow_that_writes_otherwise_does_it_all(monkeypatch: pytest.MonkeyPatch) -> None:
    body = arrow_body(PlainRows([b"k"], [b"p"]))
    monkeypatch.setattr(plain_rows, "_FIXED", ())
    assert rows_of([b"k"], [b"p"]) is None and rows_in(1, body) is None
    batch = Batch.of_few([b"k"], [b"p"], 5)
    header, encoded = batch.to_wire(b"i" * 16, 0, 0)
    assert [m.payload for m in Batch.from_wire(0, header, encoded)] == [b"p"]


def test_a_batch_of_rows_is_as_one_of_columns() -> None:
    keys, payloads = [b"a", None, b"c"], [b"1", b"22", b""]
    few, columns = Batch.of_few(keys, payloads, 9), Batch.of(keys, payloads, timestamp_ms=9)
    assert few.plain_rows is not None and columns.plain_rows is None
    for batch in (few, columns):
        assert len(batch) == 3 and batch.end_offset == 3
        assert list(batch.rows()) == list(zip(keys, payloads, strict=True))
        assert [m.offset for m in batch.slice(1)] == [1, 2]
        assert [m.key for m in batch.slice(1, 2)] == [None]
        assert batch[2].key == b"c" and batch[-3].payload == b"1"
        assert [m.payload for m in batch.pick([(0, 1), (2, 3)])] == [b"1", b""]
        assert batch.payloads.to_pylist() == payloads and batch.keys.null_count == 1
        assert batch_bytes(batch) >= sum(map(len, payloads)) + 2
        assert isinstance(batch.columns, pa.RecordBatch)
    assert few.to_arrow() == columns.to_arrow()
    assert few.to_wire(b"i" * 16, 1, 2) == columns.to_wire(b"i" * 16, 1, 2)
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    assert few.to_wire(b"i" * 16, 1, 2, options) == columns.to_wire(b"i" * 16, 1, 2, options)


@pytest.mark.parametrize("strategy", ["modulo", "jump", "round_robin"])
def test_rows_go_where_columns_go(strategy: str) -> None:
    rng = random.Random(1)
    for _ in range(100):
        count = rng.randint(1, ROWS_MAX)
        keys = [rng.choice([None, b"k%d" % rng.randrange(9)]) for _ in range(count)]
        payloads = [b"%d" % number for number in range(count)]
        one, other = (_partitioner(strategy) for _ in range(2))
        few = route(Batch.of_few(keys, payloads, 1), one)
        many = route_columns(Batch.of(keys, payloads, timestamp_ms=1), other)
        for part, other_part in zip(few.parts, many.parts, strict=True):
            assert part[0] == other_part[0]
            assert list(part[1].rows()) == list(other_part[1].rows())
            header, body = other_part[1].to_wire(b"i" * 16, 0, 0)
            read = rows_in(len(part[1]), body.to_pybytes())
            if None not in [key for key, _ in part[1].rows()]:
                assert read == part[1].plain_rows, "of a slice too"
            assert read in (None, part[1].plain_rows)
            assert [m.payload for m in Batch.from_wire(0, header, body)] == [
                payload for _, payload in part[1].rows()
            ]
        order = range(count) if few.order is None else few.order.tolist()
        assert many.order is not None and list(order) == many.order.tolist()


def _partitioner(strategy: str) -> Partitioner:
    return PartitioningSpec(4, strategy).partitioner()


def test_a_frame_that_says_another_count_than_its_body_is_refused() -> None:
    header, body = Batch.of_few([b"k"], [b"p"], 1).to_wire(b"i" * 16, 0, 0)
    told: FrameHeader = unpack_header(header)
    with pytest.raises(LogCorrupted, match="messages"):
        Batch.from_frame(0, told._replace(messages=2), body)
