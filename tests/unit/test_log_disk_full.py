"""A full or failing disk: told at once, nothing spoilt, and writing goes on when there is room."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pxrs_ray.errors import DiskFull, LogError
from pxrs_ray.files import Files
from tests.logs import MEMORY, SMALL, contents, open_log, put


class SmallDisk(Files):
    """Takes `room` more bytes, and half of the write that does not fit; then it is full."""

    def __init__(self) -> None:
        self.room = 1 << 40
        self.broken_sync = False

    def write_some(self, fd: int, pieces: Sequence[Any], position: int) -> int:
        if self.room <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        data = b"".join(pieces)[: self.room]
        self.room -= len(data)
        return super().write_some(fd, [data], position)

    def sync(self, fd: int) -> None:
        if self.broken_sync:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().sync(fd)


@pytest.mark.parametrize("room", [0, 1, 60, 200, 3_990, 4_100, 8_500])
def test_a_full_disk_is_told_and_outlived(tmp_path: Path, room: int) -> None:
    disk = SmallDisk()
    log = open_log(tmp_path, files=disk)
    put(log, 0, [b"x" * 100])
    disk.room = room
    sequence = 1
    with pytest.raises(DiskFull, match="nothing of them was kept; free disk space"):
        while True:
            put(log, sequence, [b"x" * 100])
            sequence += 1
    for _ in range(3):
        with pytest.raises(DiskFull):
            put(log, sequence, [b"x" * 100])
    assert list(contents(log)) == list(range(sequence))
    disk.room = 1 << 40
    for more in range(sequence, sequence + 60):
        assert put(log, more, [b"y" * 100]).base_offset == more
    log.abandon()
    log = open_log(tmp_path)
    assert list(contents(log)) == list(range(sequence + 60))
    assert log.recovery is None
    log.close()


def fill_a_file_to_the_limit(folder: str) -> None:
    """Write until the system refuses. For a process of its own: the limit holds for all files."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limit))
    log = open_log(Path(folder), replace(SMALL, segment_bytes_max=1 << 30))
    sequence = 0
    with pytest.raises(DiskFull):
        while True:
            put(log, sequence, [b"x" * 1_000])
            sequence += 1
    assert sequence > 5
    assert len(contents(log)) == sequence
    log.abandon()
    log = open_log(Path(folder))
    assert len(contents(log)) == sequence
    log.close()


def test_the_systems_own_limit_is_a_full_disk(tmp_path: Path) -> None:
    code = "import sys; from tests.unit.test_log_disk_full import *; "
    code += "fill_a_file_to_the_limit(sys.argv[1])"
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_a_failed_sync_ends_the_log_until_it_is_recovered(tmp_path: Path) -> None:
    disk = SmallDisk()
    log = open_log(tmp_path, files=disk)
    put(log, 0)
    disk.broken_sync = True
    with pytest.raises(LogError, match="sync failed"):
        log.sync()
    disk.broken_sync = False
    with pytest.raises(LogError, match=r"sync failed .* opened anew"):
        put(log, 1)
    assert (log.state, log.durable_offset) == ("failed", 0)
    log.close()
    log = open_log(tmp_path)
    assert log.state == "open"
    assert list(contents(log)) == [0]
    log.close()


def test_a_full_disk_stops_no_memory_log_from_staying_monotone(tmp_path: Path) -> None:
    disk = SmallDisk()
    log = open_log(tmp_path, MEMORY, files=disk)
    disk.room = 0
    for _ in range(2):
        with pytest.raises(DiskFull):
            put(log, 0)
    disk.room = 1 << 40
    assert put(log, 0).base_offset == 0
    log.abandon()
    assert open_log(tmp_path, MEMORY).end_offset > 0


class NoMore(Files):
    """A disk that has room for what a log must note (the reserve's), and for no message."""

    def write_some(self, fd: int, pieces: Sequence[Any], position: int) -> int:
        is_segment = Path(f"/proc/self/fd/{fd}").readlink().suffix == ".seg"
        end = position + sum(map(len, pieces))
        if is_segment and position and end > self.length(fd):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write_some(fd, pieces, position)


@pytest.mark.parametrize("boot", ["boot-1", "boot-2"])
def test_a_log_opens_after_an_unclean_end_though_its_disk_is_full(
    tmp_path: Path, boot: str
) -> None:
    """Only what is open can make room: retention drops what may go."""
    log = open_log(tmp_path)
    for sequence in range(2):
        put(log, sequence, [b"x" * 100])
    log.abandon()
    again = open_log(tmp_path, files=NoMore(), boot=boot, expected_end=2)
    assert list(contents(again)) == [0, 1]
    with pytest.raises(DiskFull):
        put(again, 2, [b"x" * 100])
    again.abandon()
