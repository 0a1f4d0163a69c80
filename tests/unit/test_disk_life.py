"""Each process of a replica has a number of its own, whatever ends it, and whenever."""

from __future__ import annotations

from pathlib import Path

import pytest

from pxrs_ray.errors import LockHeld, LogCorrupted
from pxrs_ray.files import Files
from pxrs_ray.log.disk_life import LOCK, NAME, DiskLife
from tests.replica_logs import DyingDisk, Ended

FOLDER = Path("/data/.replica")


def test_each_process_counts_on(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        life = DiskLife(Files(), tmp_path, 0)
        assert life.number == number
        life.close()


def test_no_two_lives_have_one_number_whatever_ends_them_and_whenever() -> None:
    for power in (False, True):
        at, ended, told = 0, True, 0
        disk = DyingDisk(7)
        while ended:
            at, ended = at + 1, False
            disk.at = at
            try:
                told, before = DiskLife(disk, FOLDER, 0).number, told
                assert told > before
            except Ended:
                ended = True
            disk.at = -1
            if power:
                disk.cut_power()
            else:
                disk.end_processes()
            told, before = DiskLife(disk, FOLDER, 0).number, told
            assert told > before
            if power:
                disk.cut_power()
            else:
                disk.end_processes()
        assert at > 3


def test_while_one_lives_there_is_no_second(tmp_path: Path) -> None:
    life = DiskLife(Files(), tmp_path, 0)
    with pytest.raises(LockHeld):
        DiskLife(Files(), tmp_path, 0)
    life.close()
    assert DiskLife(Files(), tmp_path, 0).number == 2


def test_a_note_that_cannot_be_read_is_no_beginning(tmp_path: Path) -> None:
    DiskLife(Files(), tmp_path, 0).close()
    (tmp_path / NAME).write_bytes(b"{}x")
    for _ in range(2):  # and it lets go of the lock
        with pytest.raises(LogCorrupted, match="how many lives"):
            DiskLife(Files(), tmp_path, 0)
    assert (tmp_path / LOCK).exists()
