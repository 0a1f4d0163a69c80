"""The write queue against a dumb model: nothing is called durable before it is written."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pxrs_ray.errors import CoordinatorDeposed, StoreCorrupted
from pxrs_ray.group.write_queue import WriteBatch, WriteQueue, check_stored
from pxrs_ray.model import (
    Member,
    MemberWrite,
    PartitionRow,
    Record,
    Snapshot,
    Write,
    WriteKind,
)


def commit(partition: int, checkpoint: int, epoch: int = 1) -> Write:
    return Write(WriteKind.COMMIT, partition, "A", 1, epoch, checkpoint)


def release(partition: int, epoch: int = 1, version: int = 1) -> Write:
    return Write(WriteKind.RELEASE, partition, "A", 1, epoch, version=version)


def claim(partition: int, epoch: int, version: int = 1) -> Write:
    return Write(WriteKind.CLAIM, partition, "A", 1, epoch, version=version)


# What a group could decide: progress of a partition, or its passing into another epoch.
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), st.integers(0, 3)),
        st.tuples(st.just("move"), st.integers(0, 3)),
        st.tuples(st.just("take"), st.integers(1, 5)),
        st.tuples(st.just("done"), st.just(0)),
    ),
    max_size=80,
)


@settings(max_examples=300)
@given(STEPS)
def test_durable_never_passes_what_is_not_written(steps: list[tuple[str, int]]) -> None:
    queue = WriteQueue()
    decided: list[Record] = []
    written: list[Record] = []
    epochs = dict.fromkeys(range(4), 1)
    under_way: WriteBatch | None = None
    version = 0
    for step, number in [*steps, *[("done", 0), ("take", 99)] * 3, ("done", 0)]:
        if step == "commit":
            fresh: list[Record] = [commit(number, len(decided), epochs[number])]
        elif step == "move":
            epoch = epochs[number]
            fresh = [release(number, epoch, version + 1), claim(number, epoch + 1, version + 2)]
            version, epochs[number] = version + 2, epoch + 2
        else:
            fresh = []
        decided += fresh
        queue.push(fresh)
        if step == "take":
            batch = queue.take(number)
            assert batch is None or under_way is None, "one batch is under way at a time"
            under_way = batch or under_way
        elif step == "done" and under_way is not None:
            written += under_way.records
            queue.done()
            under_way = None
        for record in decided[: queue.durable]:
            assert any(_stands_for(one, record) for one in written), record
        waiting = len(queue) + (len(under_way.records) if under_way else 0) + len(written)
        assert waiting <= len(decided)
    assert queue.durable == len(decided) and len(queue) == 0
    ownership = [record for record in decided if record.version]
    assert [record for record in written if record.version] == ownership, "in order, each once"


def _stands_for(written: Record, decided: Record) -> bool:
    """Whether `written` makes `decided` unnecessary: itself, or later progress of its ownership."""
    if written == decided:
        return True
    return (
        isinstance(written, Write)
        and isinstance(decided, Write)
        and written.kind is decided.kind is WriteKind.COMMIT
        and (written.partition, written.epoch) == (decided.partition, decided.epoch)
        and written.checkpoint >= decided.checkpoint
    )


@given(st.lists(st.integers(0, 4), min_size=1, max_size=200))
def test_what_waits_is_bounded_by_partitions(partitions: list[int]) -> None:
    queue = WriteQueue()
    for checkpoint, partition in enumerate(partitions):
        queue.push([commit(partition, checkpoint)])
        assert len(queue) <= 5
    batch = queue.take(100)
    assert batch is not None and len(batch.records) == len(set(partitions))
    newest = {p: checkpoint for checkpoint, p in enumerate(partitions)}
    assert {r.partition: r.checkpoint for r in batch.records if isinstance(r, Write)} == newest
    queue.done()
    assert queue.durable == len(partitions)


def test_a_superseded_commit_waits_for_its_successor() -> None:
    queue = WriteQueue()
    queue.push([commit(0, 1)])
    queue.push([commit(1, 1)])
    queue.push([commit(0, 2)])
    batch = queue.take(1)
    assert batch is not None and batch.records == (commit(1, 1),)
    queue.done()
    assert queue.durable == 0, "number 1 was replaced by number 3, which is not written yet"
    assert queue.take(1) is not None
    queue.done()
    assert queue.durable == 3


def test_a_commit_under_way_is_not_replaced() -> None:
    queue = WriteQueue()
    queue.push([commit(0, 1)])
    batch = queue.take(10)
    queue.push([commit(0, 2)])
    assert batch is not None and batch.records == (commit(0, 1),) and len(queue) == 1
    assert queue.take(10) is None
    queue.done()
    assert queue.durable == 1


def test_an_empty_queue_gives_nothing_and_done_needs_a_batch() -> None:
    queue = WriteQueue()
    assert queue.take(5) is None
    with pytest.raises(AssertionError):
        queue.done()


# --- check_stored ---------------------------------------------------------------------------------


def snapshot(
    *rows: PartitionRow, generation: int = 3, members: tuple[Member, ...] = ()
) -> Snapshot:
    return Snapshot("g", generation, rows, members, 9)


def batch(*records: Record) -> WriteBatch:
    return WriteBatch(records, len(records))


def test_a_batch_that_was_applied_before_is_recognised() -> None:
    records = batch(
        MemberWrite("left", Member("B", 1), 10, 1),
        MemberWrite("joined", Member("A", 1), 10, 2),
        commit(0, 5),
        release(0, version=3),
        Write(WriteKind.RESET, 0, None, 0, 2, 7, version=4),
        claim(0, 3, version=5),
        commit(1, 8),
    )
    stored = snapshot(
        PartitionRow(0, "A", 1, 4, 7), PartitionRow(1, "A", 1, 1, 8), members=(Member("A", 1),)
    )
    check_stored(records, stored, 3)


def test_a_newer_generation_deposes() -> None:
    with pytest.raises(CoordinatorDeposed, match="generation 3 of g was replaced by 4"):
        check_stored(batch(commit(0, 5)), snapshot(PartitionRow(0), generation=4), 3)


@pytest.mark.parametrize(
    ("stored", "told"),
    [
        (None, "holds nothing"),
        (snapshot(PartitionRow(0), generation=2), "generation 2"),
        (snapshot(PartitionRow(0, "A", 1, 1, 4)), "has lost"),
        (snapshot(PartitionRow(0, None, 0, 2, 5)), "has lost"),
    ],
)
def test_a_store_that_contradicts_accepted_writes_is_corrupt(
    stored: Snapshot | None, told: str
) -> None:
    with pytest.raises(StoreCorrupted, match=told):
        check_stored(batch(commit(0, 5)), stored, 3)


@pytest.mark.parametrize(
    ("record", "members"),
    [
        (MemberWrite("joined", Member("A", 2), 10, 1), (Member("A", 1),)),
        (MemberWrite("left", Member("A", 1), 10, 1), (Member("A", 2),)),
    ],
)
def test_a_membership_that_is_not_stored_is_corrupt(
    record: MemberWrite, members: tuple[Member, ...]
) -> None:
    with pytest.raises(StoreCorrupted):
        check_stored(batch(record), snapshot(members=members), 3)


def test_a_join_that_lands_again_after_the_end_is_no_corruption() -> None:
    left = MemberWrite("left", Member("A", 1), 10, 1)
    check_stored(batch(left), snapshot(members=(Member("A", 1),)), 3)
