"""A replica that lacks what the others have dropped begins anew: whole, and knows producers."""

from __future__ import annotations

from pathlib import Path

import pytest

from pxrs_ray.errors import LogCorrupted, LogError, OffsetOutOfRange
from pxrs_ray.log.replica_log import ReplicaLog
from tests.logs import NOW_MS, put, wire
from tests.replica_logs import ALL, Ended, TwoLogs, everything, opened, ship

NAMES = [bytes([65 + n]) * 16 for n in range(3)]


class Joining(TwoLogs):
    """A log whose oldest part was dropped, and another one that is to follow it."""

    def __init__(self, seed: int, old: int = 3) -> None:
        super().__init__(seed, "/leader")
        self.leader.passed("g", 0)
        for number in range(old):
            self.appends()
            ship(self.leader, self.log)
            self.leader.begin_epoch(number + 1, NOW_MS)
        self.log.sync()
        for _ in range(12):
            self.appends()
        self.drops(self.leader.end_offset - self.dice.randint(0, 6))

    @property
    def leader(self) -> ReplicaLog:
        return self.other

    def appends(self) -> None:
        for _ in range(3):
            name = self.dice.choice(NAMES)
            payload = [b"%d" % self.dice.randrange(1 << 60)] * self.dice.randint(1, 3)
            header = wire(payload, 0, producer=name)[0]
            put(self.leader, self.leader.expected_sequence(header), payload, producer=name)
        self.leader.sync()

    def drops(self, start: int) -> None:
        self.leader.advance(self.leader.end_offset)
        self.leader.truncate_before(start, NOW_MS, force=True)
        assert self.leader.first_offset > 0

    def begins(self) -> None:
        self.log.begin_at(*self.leader.beginning(), NOW_MS)

    def judge(self) -> None:
        ship(self.leader, self.log)
        self.log.sync()
        assert (self.log.state, self.log.gaps) == ("open", ())
        self.log.advance(self.log.end_offset)
        self.log.follow_start(self.leader.start_offset, NOW_MS)
        self.leader.advance(self.leader.end_offset)
        assert everything(self.log) == everything(self.leader)
        assert self.log.epochs()[-1][0] == self.leader.epochs()[-1][0]
        self.knows_the_same()

    def knows_the_same(self) -> None:
        for name in NAMES:
            for asked in (0, 1):
                header = wire([b"x"], 0, producer=name, epoch=asked)[0]
                assert self.log.heard(header) == self.leader.heard(header)


@pytest.mark.parametrize("seed", range(24))
def test_who_begins_anew_has_all_and_knows_all_that_the_leader_does(seed: int) -> None:
    """However it is cut off on its way, and however far that has brought it."""
    it = Joining(seed)
    it.begins()
    assert it.log.end_offset == it.log.start_offset == it.leader.first_offset
    for _ in range(it.dice.randint(0, 6)):
        ship(it.leader, it.log, it.dice.choice((1, 300, 900)), it.dice.randint(0, 3))
        if it.dice.random() < 0.6:
            it.restarts()
        if it.dice.random() < 0.3:
            it.appends()
        assert it.log.end_offset >= it.leader.first_offset
    it.judge()
    for again in range(3):  # and it outlives what it began with
        it.appends()
        ship(it.leader, it.log)
        it.log.begin_epoch(20 + again, NOW_MS)
        it.leader.begin_epoch(20 + again, NOW_MS)
        it.restarts()
    it.judge()


@pytest.mark.parametrize("how", ["kill", "power", "EIO"])
def test_whatever_ends_a_beginning_in_its_middle_it_is_done_or_was_never_begun(how: str) -> None:
    at = 0
    while True:
        at += 1
        it = Joining(at)
        end, first = it.log.end_offset, it.leader.first_offset
        it.disk.at, it.disk.fails = at, how == "EIO"
        ended = False
        try:
            it.begins()
        except (Ended, LogError):
            ended = True
        it.disk.at = -1
        if ended:
            it.log.abandon()
            if how != "EIO":
                it.dies(power=how == "power")
            it.open()
            assert (it.log.start_offset, it.log.end_offset) in ((0, end), (first, first))
            it.begins()
        it.judge()
        if not ended:
            assert at > 10, "a beginning changes files"
            return


def test_what_it_began_with_is_no_snapshot_of_less_than_that() -> None:
    """A segment may end, or the log be closed, before it is as long as the snapshot tells of."""
    shorter = 0
    for seed in range(12):
        it = Joining(seed)
        it.begins()
        ship(it.leader, it.log, 1, 1)
        shorter += it.log.end_offset < it.log._covered
        it.log.begin_epoch(9, NOW_MS)
        it.log.close()
        it.open()
        it.log.cut(it.log.end_offset, NOW_MS)
        it.judge()
    assert shorter


def test_an_old_snapshot_is_good_enough_where_what_is_newer_may_be_cut() -> None:
    """What the leader knows of messages that are not safe yet is not told to who begins anew."""
    it = Joining(3)
    safe = it.leader.end_offset
    it.leader.begin_epoch(7, NOW_MS)
    it.appends()
    it.leader.begin_epoch(8, NOW_MS)
    it.begins()
    ship(it.leader, it.log)
    it.log.cut(safe, NOW_MS)
    it.leader.cut(safe, NOW_MS)
    it.knows_the_same()


def test_nothing_is_dropped_above_the_high_watermark(tmp_path: Path) -> None:
    log = opened(tmp_path)
    for sequence in range(30):
        put(log, sequence)
    log.advance(20)
    with pytest.raises(OffsetOutOfRange, match="high watermark"):
        log.truncate_before(21, NOW_MS, force=True)
    assert not log.follow_start(0, NOW_MS)
    assert log.follow_start(25, NOW_MS), "as far as it is safe"
    assert log.start_offset == 20
    assert list(everything(log)) == list(range(20, 30))


def test_what_is_no_snapshot_begins_nothing(tmp_path: Path) -> None:
    log = opened(tmp_path)
    put(log, 0)
    with pytest.raises(LogError) as caught:
        log.begin_at(7, b"no snapshot", NOW_MS)
    assert isinstance(caught.value.__cause__, LogCorrupted)
    log.abandon()
    log = opened(tmp_path)
    assert list(everything(log)) == [0]


def test_a_segment_that_a_power_cut_brings_back_is_not_followed(tmp_path: Path) -> None:
    """What was deleted is not synced: of several that were, some may come back, and others not."""
    log = opened(tmp_path)
    for sequence in range(200):
        put(log, sequence)
    log.advance(200)
    log.sync()
    segments = sorted(tmp_path.glob("*.seg"))
    back = segments[1].name, segments[1].read_bytes()
    log.begin_epoch(1, NOW_MS)
    put(log, 200)
    log.advance(201)
    log.truncate_before(200, NOW_MS, force=True)
    first = log.first_offset
    assert first > int(segments[2].stem)
    log.abandon()
    (tmp_path / back[0]).write_bytes(back[1])
    log = opened(tmp_path)
    assert (log.first_offset, log.end_offset, log.gaps) == (first, 201, ())
    assert not (tmp_path / back[0]).exists()


def test_what_was_dropped_is_followed_as_long_as_it_is_here(tmp_path: Path) -> None:
    leader, follower = opened(tmp_path / "a"), opened(tmp_path / "b")
    for sequence in range(5):
        put(leader, sequence)
    leader.advance(5)
    leader.truncate_before(3, NOW_MS, force=True)
    assert (leader.first_offset, leader.start_offset) == (0, 3)
    assert _first_of(leader, 1) == 1
    ship(leader, follower, ALL)
    assert follower.end_offset == 5


def _first_of(log: ReplicaLog, offset: int) -> int:
    run = log.read_unsettled(offset, 1)
    return run.next_offset - 1
