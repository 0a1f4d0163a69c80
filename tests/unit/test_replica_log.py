"""A replica's log: its leader epochs, what is taken from a leader, and what is cut off again."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from pxrs_ray.errors import LogCorrupted, OffsetOutOfRange, SequenceGap, UsageError
from pxrs_ray.files import Files
from pxrs_ray.log.partition_log import PartitionLog
from pxrs_ray.log.replica_log import ReplicaLog
from pxrs_ray.log.segment import segment_paths
from tests.logs import MEMORY, NOW_MS, SMALL, contents, put
from tests.replica_logs import ALL, TINY, everything, opened, ship


def test_readers_see_what_is_below_the_high_watermark_and_followers_all(tmp_path: Path) -> None:
    log = opened(tmp_path)
    for sequence in range(30):
        put(log, sequence)
    assert (log.visible_end, contents(log)) == (0, {})
    log.advance(12)
    log.advance(7)
    assert log.visible_end == 12
    assert list(contents(log)) == list(range(12))
    assert log.ends().end_offset == 12
    assert log.read_unsettled(29, 1 << 20).next_offset == 30
    assert log.read_unsettled(0, 1).next_offset == 1
    log.close()


def test_leader_epochs_begin_segments_and_outlive_the_process(tmp_path: Path) -> None:
    log = opened(tmp_path)
    assert log.epochs() == [(0, 0)]
    log.begin_epoch(3, NOW_MS)
    put(log, 0)
    put(log, 1)
    log.begin_epoch(3, NOW_MS)
    log.begin_epoch(5, NOW_MS)
    log.begin_epoch(6, NOW_MS)
    put(log, 2)
    with pytest.raises(UsageError, match="older"):
        log.begin_epoch(5, NOW_MS)
    for sequence in range(3, 60):  # a segment of its own epoch follows one that is full
        put(log, sequence)
    assert len(log._on_disk.segments) > 3
    assert log.epochs() == [(3, 0), (6, 2)]
    log.abandon()
    log = opened(tmp_path)
    assert (log.epochs(), log.leader_epoch) == ([(3, 0), (6, 2)], 6)
    assert list(everything(log)) == list(range(60))
    log.close()


def test_a_log_without_replicas_is_written_as_it_always_was(tmp_path: Path) -> None:
    log = PartitionLog.open(tmp_path, "q", 0, SMALL, now_ms=NOW_MS, boot="boot-1")
    log.confirm(0, NOW_MS)
    head = segment_paths(tmp_path)[0].read_bytes()
    assert head.hex() == "50585345474d01000000000000000000e803000000000000" + head[24:].hex()
    log.close()
    replica = opened(tmp_path)  # and becomes a replica as it is
    assert replica.epochs() == [(0, 0)]
    replica.close()


def test_a_log_in_memory_is_no_replica(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="memory"):
        opened(tmp_path, MEMORY)
    PartitionLog.open(tmp_path, "q", 0, MEMORY, now_ms=NOW_MS, boot="b", lock_wait_ms=0).close()


def test_a_follower_has_the_leaders_bytes_epochs_and_memory_of_producers(tmp_path: Path) -> None:
    leader, follower = opened(tmp_path / "a"), opened(tmp_path / "b")
    for epoch in (1, 2, 4):
        leader.begin_epoch(epoch, NOW_MS)
        for number in range(20):
            put(leader, number, [b"%d.%d" % (epoch, number)] * (1 + number % 3), epoch=epoch)
    ship(leader, follower)
    assert follower.epochs() == leader.epochs()
    assert follower.end_offset == leader.end_offset

    def frames(log: ReplicaLog) -> bytes:
        return b"".join(path.read_bytes()[32:] for path in segment_paths(log.folder))

    assert frames(follower) == frames(leader)
    assert everything(follower) == everything(leader)
    assert put(follower, 19, [b"4.19"] * 2, epoch=4).repeated
    with pytest.raises(SequenceGap):
        put(follower, 22, epoch=4)
    leader.close()
    follower.close()


def test_frames_are_taken_at_the_end_and_whole_or_not_at_all(tmp_path: Path) -> None:
    leader, follower = opened(tmp_path / "a"), opened(tmp_path / "b")
    for sequence in range(6):
        put(leader, sequence)
    run = b"".join(leader.read_unsettled(0, ALL).chunks)
    for first in (1, -1):
        with pytest.raises(OffsetOutOfRange):
            follower.append_replicated(first, run, [(0, 0)], NOW_MS)
    for damaged in (run[:-8], run[:200] + bytes([run[200] ^ 1]) + run[201:]):
        with pytest.raises(LogCorrupted):
            follower.append_replicated(0, damaged, [(0, 0)], NOW_MS)
        assert follower.end_offset == 0
    follower.append_replicated(0, run, [(0, 0)], NOW_MS)
    with pytest.raises(LogCorrupted):
        follower.append_replicated(6, run, [(0, 0)], NOW_MS)
    follower.begin_epoch(2, NOW_MS)
    put(leader, 6)
    with pytest.raises(UsageError):
        last = b"".join(leader.read_unsettled(6, ALL).chunks)
        follower.append_replicated(6, last, [(1, 6)], NOW_MS)
    assert follower.end_offset == 6
    leader.close()
    follower.close()


def test_a_gap_of_the_leaders_is_one_of_the_followers(tmp_path: Path) -> None:
    leader, follower = opened(tmp_path / "a"), opened(tmp_path / "b")
    put(leader, 0)
    leader._skip_to(40, NOW_MS)
    put(leader, 1)
    leader.begin_epoch(2, NOW_MS)
    put(leader, 2)
    ship(leader, follower)
    assert [(gap.first, gap.end) for gap in follower.gaps] == [(1, 40)]
    assert follower.epochs() == [(0, 0), (2, 41)]
    for again in (False, True):
        if again:
            follower.abandon()
            follower = opened(tmp_path / "b")
        assert follower.state == "open"
        assert list(everything(follower)) == [0, 40, 41]
    leader.close()
    follower.close()


def test_a_cut_takes_back_messages_epochs_gaps_and_what_is_known_of_producers(
    tmp_path: Path,
) -> None:
    log = opened(tmp_path)
    log.begin_epoch(1, NOW_MS)
    for sequence in range(30):
        put(log, sequence)
    log.begin_epoch(2, NOW_MS)
    put(log, 30)
    log._skip_to(50, NOW_MS)
    put(log, 0, epoch=1)
    log.cut(17, NOW_MS)
    assert (log.end_offset, log.epochs(), log.gaps) == (17, [(1, 0)], ())
    assert not log.dirty
    for again in (False, True):
        if again:
            log.abandon()
            log = opened(tmp_path)
        assert log.state == "open"
        assert log.end_offset == 17
        with pytest.raises(SequenceGap):
            put(log, 18)
        assert put(log, 16).repeated
    assert put(log, 17, [b"another"]).base_offset == 17
    log.begin_epoch(5, NOW_MS)
    assert put(log, 18).base_offset == 18
    assert everything(log)[17] == b"another"
    with pytest.raises(UsageError, match="high watermark"):
        log.cut(18, NOW_MS)
    log.close()


def test_a_leader_epoch_that_has_no_frame_yet_is_cut_as_well(tmp_path: Path) -> None:
    leader, follower = opened(tmp_path / "a"), opened(tmp_path / "b")
    leader.begin_epoch(1, NOW_MS)
    put(leader, 0)
    ship(leader, follower)
    put(leader, 1)
    follower.begin_epoch(2, NOW_MS)
    follower.cut(1, NOW_MS)
    assert (follower.leader_epoch, follower.end_offset) == (1, 1)
    ship(leader, follower)
    assert (follower.epochs(), follower.end_offset) == ([(1, 0)], 2)
    for log in (leader, follower):
        log.cut(2, NOW_MS)
        assert len(everything(log)) == 2
        log.close()


def test_what_was_appended_together_is_cut_together(tmp_path: Path) -> None:
    log = opened(tmp_path)
    put(log, 0, [b"a", b"b", b"c"])
    with pytest.raises(UsageError, match="together"):
        log.cut(1, NOW_MS)
    assert log.state == "open"
    log.cut(0, NOW_MS)
    assert (log.end_offset, log.read_unsettled(0, ALL).chunks) == (0, [])
    put(log, 0, [b"d"])
    assert everything(log) == {0: b"d"}
    log.close()


def test_a_snapshot_of_what_was_cut_is_not_believed_once_the_log_is_as_long_again(
    tmp_path: Path,
) -> None:
    log = opened(tmp_path)
    for sequence in range(6):
        put(log, sequence)
    log.begin_epoch(1, NOW_MS)  # with a snapshot
    log.cut(3, NOW_MS)
    for sequence in range(4):
        put(log, sequence, producer=b"o" * 16)
    log.abandon()
    log = opened(tmp_path)
    assert put(log, 3).base_offset == 7
    log.close()


def test_an_index_of_what_was_cut_is_not_believed(tmp_path: Path) -> None:
    log = opened(tmp_path, TINY)
    sequence = 0
    while len(log._on_disk.segments) < 3:
        put(log, sequence, [b"x" * 100])
        sequence += 1
    full = log._on_disk.segments[0]
    log.cut(full.base_offset + 1, NOW_MS)
    assert not list(tmp_path.glob("*.idx"))
    log.close()


def test_a_sync_that_began_before_a_cut_vouches_for_nothing_after_it(tmp_path: Path) -> None:
    class Slow(Files):
        began, go = threading.Event(), threading.Event()
        slow = False

        def sync(self, fd: int) -> None:
            if self.slow and threading.current_thread() is not threading.main_thread():
                self.began.set()
                assert self.go.wait(10)
            super().sync(fd)

    files = Slow()
    log = opened(tmp_path, files=files)
    put(log, 0)
    log.sync()
    for sequence in range(1, 9):
        put(log, sequence)
    files.slow = True
    original, lock = log._on_disk._syncing, threading.Lock()
    log._on_disk._syncing = threading.Lock()  # the cut's own sync need not wait for the slow one
    thread = threading.Thread(target=log.sync)
    thread.start()
    assert files.began.wait(10)
    log._on_disk._syncing = lock
    assert original is not lock
    log.cut(1, NOW_MS)
    put(log, 1, [b"another"])
    files.go.set()
    thread.join(10)
    assert log.durable_offset == 1
    assert log.dirty
    log.close()
