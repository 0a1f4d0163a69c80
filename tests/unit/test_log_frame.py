"""Frames: what is encoded comes back, and not one changed byte gets through."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pxrs_ray.data.batch import Batch
from pxrs_ray.data.frame import (
    HEADER_BYTES,
    LARGE_BYTES,
    check_body,
    decode_body,
    frames_in,
    pack_header,
    producer_id,
    unpack_header,
    whole_frame,
)
from pxrs_ray.data.message_form import binary_column
from pxrs_ray.errors import LogCorrupted
from tests.logs import wire

MESSAGES = st.lists(
    st.tuples(
        st.one_of(st.none(), st.binary(max_size=20)),
        st.binary(max_size=200),
        st.one_of(st.none(), st.integers(0, 1 << 50)),
        st.one_of(st.none(), st.dictionaries(st.text(max_size=5), st.binary(max_size=5))),
        st.one_of(st.none(), st.text(max_size=10)),
    ),
    min_size=1,
    max_size=20,
)


@settings(max_examples=100, deadline=None)
@given(messages=MESSAGES, compression=st.sampled_from([None, "lz4", "zstd"]))
def test_every_column_survives_the_wire(messages: list[Any], compression: str | None) -> None:
    keys, payloads, stamps, headers, ids = (list(column) for column in zip(*messages, strict=True))
    batch = Batch.of(keys, payloads, timestamp_ms=7, timestamps_ms=stamps, headers=headers, ids=ids)
    options = pa.ipc.IpcWriteOptions(compression=compression) if compression else None

    header, body = batch.to_wire(b"x" * 16, 3, 4, options)
    again = Batch.from_wire(5, header, body)

    assert [(m.key, m.payload, m.id) for m in again] == list(zip(keys, payloads, ids, strict=True))
    assert [m.timestamp_ms for m in again] == [7 if s is None else s for s in stamps]
    assert [dict(m.headers) for m in again] == [h or {} for h in headers]
    assert len(header) == HEADER_BYTES and len(body) % 8 == 0
    found = unpack_header(header)
    assert (found.producer_epoch, found.sequence, found.messages) == (3, 4, len(messages))
    assert found.timestamp_min_ms == min(m.timestamp_ms for m in again)
    assert found.timestamp_max_ms == max(m.timestamp_ms for m in again)


def test_a_slice_weighs_what_it_holds() -> None:
    batch = Batch.of([b"k"] * 10_000, [b"v" * 100] * 10_000, timestamp_ms=1)
    _, body = batch.slice(10, 20).to_wire(b"x" * 16, 0, 0)
    assert len(body) < 3_000


def test_each_changed_byte_is_noticed() -> None:
    header, body = wire([b"one", b"two"], 0)
    data = bytes(header) + body.to_pybytes()
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x40
        with pytest.raises(LogCorrupted):
            list(frames_in(bytes(damaged)))


def test_each_cut_is_noticed() -> None:
    header, body = wire([b"one", b"two"], 0)
    data = bytes(header) + body.to_pybytes()
    for size in range(1, len(data)):
        with pytest.raises(LogCorrupted):
            list(frames_in(data[:size]))


def test_a_newer_version_is_refused_by_name() -> None:
    header = unpack_header(wire([b"one"], 0)[0])
    with pytest.raises(LogCorrupted, match="flags 64 is newer"):
        unpack_header(pack_header(header._replace(flags=64)))


def test_a_body_that_is_no_batch_or_another_length_is_refused() -> None:
    header, body = wire([b"one"], 0)
    told = unpack_header(header)
    with pytest.raises(LogCorrupted, match="1 messages, not 2"):
        decode_body(told._replace(messages=2), body)
    with pytest.raises(LogCorrupted, match="not a record batch"):
        decode_body(told, b"\0" * 64)
    with pytest.raises(LogCorrupted, match="bytes, not"):
        check_body(told, body.to_pybytes() + b"x")


def test_a_named_producer_has_always_the_same_id() -> None:
    assert producer_id("feed-1/7") == producer_id("feed-1/7") != producer_id("feed-1/8")
    assert len(producer_id("")) == 16


def test_a_large_frame_is_the_same_bytes_made_without_a_join() -> None:
    for size, kind in ((LARGE_BYTES // 4, bytes), (LARGE_BYTES, memoryview)):
        packed, body = wire([b"x" * size], 7)
        frame = whole_frame(unpack_header(packed), body)
        # A join holds the interpreter's lock for as long as it takes; what numpy copies does not.
        assert type(frame) is kind and bytes(frame) == packed + bytes(body)
        ((header, inside),) = frames_in(frame)
        assert Batch.from_frame(0, header, inside)[0].payload == b"x" * size


def test_one_large_value_becomes_a_column_without_a_copy() -> None:
    value = bytes(range(256)) * (LARGE_BYTES // 256)
    column = binary_column([value], "payload")
    assert column.to_pylist() == [value]
    assert column.buffers()[2].address == pa.py_buffer(value).address
    for other in ([value, None], [value[:-1]], [value.decode("latin-1")], pa.array([value])):
        assert len(binary_column(other, "payload")) == len(other)
    batch = Batch.of([None], [value], timestamp_ms=1)
    assert Batch.from_wire(0, *batch.to_wire(b"p" * 16, 0, 0))[0].payload == value
