"""The same rows always become the same frames, however Spark cut them into batches."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pxrs_ray.data.batch import Batch
from pxrs_ray.data.frame import HEADERS_TYPE
from pxrs_ray.data.protocol import OutFrame
from pxrs_ray.errors import MessageTooLarge, UsageError
from pxrs_ray.feed.frames import Framer, chunks
from pxrs_ray.partitioning import Partitioner, PartitioningSpec
from pxrs_ray.spark.queue_ref import Target
from tests.settings import log_limits


def target(partitions: int = 4, strategy: str = "modulo", message_bytes_max: int = 100) -> Target:
    return Target(
        "t", "q", PartitioningSpec(partitions, strategy), 1, message_bytes_max, log_limits(), ""
    )


def table(rows: list[tuple[bytes | None, bytes]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            pa.array([key for key, _ in rows], pa.binary()),
            pa.array([payload for _, payload in rows], pa.binary()),
            pa.array([[("n", payload)] for _, payload in rows], HEADERS_TYPE),
        ],
        names=["key", "payload", "headers"],
    )


def cut(batch: pa.RecordBatch, seed: int) -> list[pa.RecordBatch]:
    random, parts, at = Random(seed), [], 0
    while at < batch.num_rows:
        size = random.randint(0, 5)
        parts.append(batch.slice(at, size))
        at += size
    return parts


def frames(
    batches: list[pa.RecordBatch], to: Target, rows_max: int = 3, bytes_max: int = 40
) -> tuple[list[OutFrame], Framer]:
    framer = Framer(to, 2, bytes(16), 0, 1_000)
    made = [f for chunk in chunks(batches, rows_max, bytes_max) for f in framer.frames(chunk)]
    return [(p, header, bytes(body)) for p, header, body in made], framer


ROWS = st.lists(st.tuples(st.none() | st.binary(max_size=8), st.binary(max_size=30)), max_size=40)


@given(ROWS, st.integers(0, 1_000), st.integers(0, 1_000))
def test_frames_do_not_depend_on_how_the_rows_were_cut(
    rows: list[tuple[bytes | None, bytes]], one: int, other: int
) -> None:
    first, framer = frames(cut(table(rows), one), target())
    again, framer_again = frames(cut(table(rows), other), target())
    assert first == again
    assert framer.digest == framer_again.digest
    assert framer.rows == len(rows) == int(framer.counts.sum())
    assert framer.payload_bytes == sum(len(payload) for _, payload in rows)


@given(ROWS)
def test_every_row_is_in_one_frame_in_order_on_its_partition(
    rows: list[tuple[bytes | None, bytes]],
) -> None:
    made, _ = frames([table(rows)], target())
    found: dict[int, list[tuple[bytes | None, bytes]]] = {}
    sequences: dict[int, list[int]] = {}
    for partition, header, body in made:
        batch = Batch.from_wire(partition, header, body)
        found.setdefault(partition, []).extend(batch.rows())
        sequences.setdefault(partition, []).append(int.from_bytes(header[48:56], "little"))
    where = Partitioner(4, turn=2).partition_column(pa.array([k for k, _ in rows], pa.binary()))
    for partition in range(4):
        here = [row for row, at in zip(rows, where, strict=True) if at == partition]
        assert found.get(partition, []) == here
        assert sequences.get(partition, []) == list(range(len(sequences.get(partition, []))))


@given(ROWS)
def test_chunks_keep_to_their_bounds(rows: list[tuple[bytes | None, bytes]]) -> None:
    pieces = list(chunks([table(rows)], 3, 40))
    assert sum(piece.num_rows for piece in pieces) == len(rows)
    for piece in pieces:
        assert piece.num_rows <= 3
        # Key, payload, and the header ("n", payload).
        sizes = [len(k or b"") + 2 * len(p) + 1 for k, p in zip(*_columns(piece), strict=True)]
        assert sum(sizes[:-1]) < 40


def _columns(piece: pa.RecordBatch) -> tuple[list[bytes | None], list[bytes]]:
    return piece.column(0).to_pylist(), piece.column(1).to_pylist()


def test_broadcast_gives_every_partition_every_row() -> None:
    _, framer = frames([table([(b"a", b"1"), (b"b", b"2")])], target(3, "broadcast"))
    assert framer.counts.tolist() == [2, 2, 2]


@pytest.mark.parametrize("rows_max", [1, 2, 100])
def test_a_row_above_the_limit_is_named(rows_max: int) -> None:
    rows: list[tuple[bytes | None, bytes]] = [(b"a", b"x"), (b"b", b"y" * 60)]
    with pytest.raises(MessageTooLarge, match=r"row 1 of Spark partition 2, with 122 bytes"):
        frames([table(rows)], target(), rows_max=rows_max, bytes_max=1_000)


def test_a_null_payload_is_named() -> None:
    batch = pa.RecordBatch.from_arrays(
        [pa.array([b"a", b"b"]), pa.array([b"x", None], pa.binary())], names=["key", "payload"]
    )
    with pytest.raises(UsageError, match=r"payload is null in 1 of 2 rows \(the first is row 1"):
        frames([batch], target())


def test_a_difference_anywhere_changes_the_digest() -> None:
    base: list[tuple[bytes | None, bytes]] = [(b"a", b"1"), (b"b", b"2"), (b"c", b"3")]
    digests = {frames([table(base)], target())[1].digest}
    for at in range(3):
        for row in ((b"z", base[at][1]), (base[at][0], b"9"), (None, base[at][1])):
            digests.add(frames([table([*base[:at], row, *base[at + 1 :]])], target())[1].digest)
    digests.add(frames([table(base[:2])], target())[1].digest)
    assert len(digests) == 11


def test_another_order_of_one_key_changes_the_digest() -> None:
    rows: list[tuple[bytes | None, bytes]] = [(b"a", b"1"), (b"a", b"2")]
    digests = {frames([table(r)], target())[1].digest for r in (rows, rows[::-1])}
    assert len(digests) == 2
