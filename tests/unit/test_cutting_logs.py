"""A cut of a log is whole, whatever ends it, and leaves nothing of what it took."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from pxrs_ray.errors import LogError
from pxrs_ray.log.replica_log import ReplicaLog
from tests.logs import NOW_MS, SMALL, put, wire
from tests.replica_logs import ALL, TINY, DyingDisk, Ended, TwoLogs, everything, opened, ship


def test_what_is_before_a_gap_outlives_a_power_cut_wherever_that_is() -> None:
    at, ended = 0, True
    while ended:
        at, ended = at + 1, False
        disk = DyingDisk(at)
        log = opened(Path("/log"), files=disk, boot=disk.boot_id())
        for sequence in range(5):
            put(log, sequence)
        disk.at = at
        try:
            log._skip_to(40, NOW_MS)
        except Ended:
            ended = True
        disk.at = -1
        log.abandon()
        disk.cut_power()
        log = opened(Path("/log"), files=disk, boot=disk.boot_id())
        assert log.state == "open"
        if log.end_offset >= 40:
            assert [(gap.first, gap.end) for gap in log.gaps] == [(5, 40)]
            assert (log.end_offset, list(everything(log))) == (40, list(range(5)))
        else:
            assert not log.gaps
            assert ended
    assert at > 5


@pytest.mark.parametrize("seed", range(4))
def test_a_torn_tail_stays_cut_though_the_first_sync_of_that_failed(seed: int) -> None:
    """A sync that fails forgets what it was to write: also that a file is shorter now."""
    at, failed = 0, True
    while failed:
        at, failed = at + 1, False
        disk = DyingDisk(seed)
        log = opened(Path("/log"), SMALL, files=disk, boot=disk.boot_id())
        for sequence in range(3):
            put(log, sequence)
        log.sync()
        put(log, 3, [b"x" * 900])
        log.abandon()
        disk.cut_power()
        disk.at, disk.fails = at, True
        try:
            log = opened(Path("/log"), SMALL, files=disk, boot=disk.boot_id())
        except OSError:
            failed = True
            disk.at = -1
            disk.end_processes()
            log = opened(Path("/log"), SMALL, files=disk, boot=disk.boot_id())
        disk.at = -1
        log.begin_epoch(1, NOW_MS)
        end = log.end_offset
        put(log, end)
        log.sync()
        log.abandon()
        disk.cut_power()
        log = opened(Path("/log"), SMALL, files=disk, boot=disk.boot_id())
        assert (log.state, log.end_offset) == ("open", end + 1)
    assert at > 3


class Twins(TwoLogs):
    """A log that is cut now and then, and one that took only what was never cut."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, "/twin", replace(TINY, retention_passed=False))
        self.epochs = {bytes([65 + n]) * 16: 0 for n in range(3)}
        self.log.passed("g", 0)

    @property
    def twin(self) -> ReplicaLog:
        return self.other

    def appends(self) -> None:
        for _ in range(self.dice.randint(1, 4)):
            name = self.dice.choice(list(self.epochs))
            payload = [b"%d" % self.dice.randrange(1 << 60)] * self.dice.randint(1, 4)
            header = wire(payload, 0, producer=name, epoch=self.epochs[name])[0]
            at = {"producer": name, "epoch": self.epochs[name]}
            put(self.log, self.log.expected_sequence(header), payload, **at)

    def cuts(self) -> None:
        """Back to where the twin has come."""
        self.log.cut(self.twin.end_offset, NOW_MS)

    def settles(self) -> None:
        """The twin follows, sometimes up to somewhere in the middle."""
        self.log.sync()
        ship(self.log, self.twin, self.dice.choice((300, ALL)), self.dice.choice((1, 1 << 30)))
        self.log.advance(self.twin.end_offset)
        self.log.passed("g", max(0, self.twin.end_offset - self.dice.randint(0, 5)))
        self.log.retain(NOW_MS)

    def leads(self) -> None:
        self.log.begin_epoch(self.log.leader_epoch + self.dice.randint(1, 3), NOW_MS)

    def ages(self) -> None:
        self.epochs[self.dice.choice(list(self.epochs))] += 1

    def judge(self) -> None:
        self.log.sync()
        ship(self.log, self.twin)
        assert self.log.state == "open"
        assert not self.log.gaps
        found, whole = everything(self.log), everything(self.twin)
        assert found == {at: whole[at] for at in range(self.log.start_offset, self.twin.end_offset)}
        assert [epoch_at(self.log, at) for at in found] == [epoch_at(self.twin, at) for at in found]
        for name, epoch in self.epochs.items():
            for asked in (epoch, epoch + 1):
                header = wire([b"x"], 0, producer=name, epoch=asked)[0]
                assert self.log.heard(header) == self.twin.heard(header)


def epoch_at(log: ReplicaLog, offset: int) -> int:
    return max(epoch for epoch, begin in log.epochs() if begin <= offset)


STEPS = {
    Twins.appends: 12,
    Twins.cuts: 2,
    Twins.settles: 3,
    Twins.leads: 1,
    Twins.ages: 1,
    Twins.restarts: 1,
}


@pytest.mark.parametrize("seed", range(int(os.environ.get("PXRS_LOG_CUTS", "40"))))
def test_a_log_that_was_cut_is_as_if_the_rest_had_never_been(seed: int) -> None:
    twins = Twins(seed)
    for step in twins.dice.choices(list(STEPS), list(STEPS.values()), k=150):
        step(twins)
    twins.judge()


@pytest.mark.parametrize("how", ["kill", "power", "EIO"])
def test_whatever_ends_a_cut_in_its_middle_it_is_done_or_was_never_begun(how: str) -> None:
    at = 0
    while True:
        at += 1
        twins = Twins(at)
        for number in range(6):
            twins.appends()
            twins.settles()
            if number % 2:
                twins.leads()
        for _ in range(3):
            twins.appends()
            twins.leads()
            twins.ages()
        settled, end = twins.twin.end_offset, twins.log.end_offset
        twins.disk.at, twins.disk.fails = at, how == "EIO"
        ended = False
        try:
            twins.cuts()
        except (Ended, LogError):
            ended = True
        twins.disk.at = -1
        if ended:
            assert how != "EIO" or twins.log.state == "failed" or twins.log.end_offset == end
            twins.log.abandon()
            if how != "EIO":
                twins.dies(power=how == "power")
            twins.open()
            assert twins.log.end_offset in (settled, end)
            twins.cuts()
        assert twins.log.end_offset == settled
        for _ in range(5):  # beyond everything that was known of what is gone
            twins.appends()
        twins.restarts()
        twins.judge()
        if not ended:
            assert at > 10, "a cut changes files"
            return
