"""Batches: columns in, columns and messages out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pxrs_ray.data.batch import ARROW_SCHEMA, Batch, batches
from pxrs_ray.data.frame import HAS_HEADERS, HAS_IDS, SCHEMAS
from pxrs_ray.data.protocol import Fetched
from pxrs_ray.errors import UsageError
from pxrs_ray.model import Message
from tests.logs import open_log, put


def sample() -> Batch:
    batch = Batch.of(["a", b"b", None], ["x", b"", b"\0"], timestamp_ms=5)
    return Batch(3, 10, batch.flags, batch.columns, batch.timestamp_fixed_ms)


def test_rows_and_messages_agree() -> None:
    assert list(sample().rows()) == [(b"a", b"x"), (b"b", b""), (None, b"\0")]
    assert sample()[1] == Message(3, 11, b"b", b"", 5)
    assert sample()[-1].offset == 12
    with pytest.raises(IndexError):
        sample()[3]


def test_a_slice_keeps_its_offsets() -> None:
    part = sample().slice(1)
    assert (part.base_offset, part.end_offset, len(part)) == (11, 13, 2)
    assert [m.offset for m in part] == [11, 12]
    assert len(sample().slice(1, 1)) == 0
    with pytest.raises(UsageError, match=r"slice 4\.\.None"):
        sample().slice(4)


def test_arrow_has_all_columns_always() -> None:
    table = sample().to_arrow()
    assert table.schema == ARROW_SCHEMA
    assert table.column("offset").to_pylist() == [10, 11, 12]
    assert table.column("partition").to_pylist() == [3, 3, 3]
    assert table.column("headers").null_count == 3


@pytest.mark.parametrize(
    "column",
    [
        ["a", "b"],
        [b"a", b"b"],
        np.array([b"a", b"b"], dtype=object),
        pa.array(["a", "b"]),
        pa.array(["a", "b"], pa.large_string()),
        pa.array([b"a", b"b"], pa.large_binary()),
        pa.chunked_array([["a"], ["b"]]),
    ],
    ids=lambda column: f"{type(column).__name__}-{getattr(column, 'type', '')}",
)
def test_columns_of_every_kind_are_taken(column: object) -> None:
    batch = Batch.of(column, column, timestamp_ms=1)
    assert list(batch.rows()) == [(b"a", b"a"), (b"b", b"b")]


def test_wrong_columns_are_refused_by_name() -> None:
    with pytest.raises(UsageError, match="column 'key'"):
        Batch.of([1, 2], [b"a", b"b"], timestamp_ms=1)
    with pytest.raises(UsageError, match="row 1 is null"):
        Batch.of([b"a", b"b"], [b"a", None], timestamp_ms=1)
    with pytest.raises(UsageError, match="do not fit"):
        Batch.of([b"a"], [b"a", b"b"], timestamp_ms=1)


def test_a_fetch_begins_exactly_at_the_asked_offset(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, 0, [b"0", b"1", b"2"])
    put(log, 1, [b"3"])
    run = log.read(1)
    found = batches(Fetched(0, tuple(run.chunks), run.next_offset, 0, 4), 1)
    assert [m.offset for batch in found for m in batch] == [1, 2, 3]
    log.close()


def not_utf8(texts: list[str]) -> pa.StringArray:
    """The texts with their first letters spoiled, as another writer might leave them."""
    good = pa.array(texts)
    raw = bytearray(good.buffers()[2].to_pybytes())
    raw[0] = 0xFF
    return pa.StringArray.from_buffers(len(texts), good.buffers()[1], pa.py_buffer(bytes(raw)))


def test_what_is_no_utf8_is_told_by_its_bytes_and_the_message_is_whole() -> None:
    ids = not_utf8(["aa", "bb"])
    names = not_utf8(["name", "good"])
    headers = pa.MapArray.from_arrays([0, 1, 2], names, pa.array([b"1", b"2"]))
    columns = pa.RecordBatch.from_arrays(
        [pa.array([b"k", None]), pa.array([b"x", b"y"]), headers, ids],
        schema=SCHEMAS[HAS_HEADERS | HAS_IDS],
    )
    batch = Batch(3, 10, HAS_HEADERS | HAS_IDS, columns, 5)
    first, second = batch
    assert (first.id, first.headers, first.payload) == ("\\xffa", (("\\xffame", b"1"),), b"x")
    assert (second.id, second.headers, second.payload) == ("bb", (("good", b"2"),), b"y")
    [again] = batch.slice(1)
    assert again == second
