"""What fails for a passing reason heals by itself, and is never taken for what it is not."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pxrs_ray.actors.buffer.log_reader import LogReader
from pxrs_ray.actors.buffer.log_writer import LogWriter
from pxrs_ray.data.frame import pack_header, unpack_header
from pxrs_ray.data.log_limits import LogLimits
from pxrs_ray.data.protocol import Fetched, QueueSpec, Refused
from pxrs_ray.errors import DiskFull, LockHeld, LogAway, LogError
from pxrs_ray.files import Files
from pxrs_ray.log.log_manager import LogManager
from pxrs_ray.log.log_opening import RESERVE_OFFSETS
from pxrs_ray.log.producer_state import STEP_MS_MAX
from pxrs_ray.log.read_fence import ReadFence
from pxrs_ray.log.segment import segment_paths
from tests.faults.faulty_files import Fault, FaultyFiles
from tests.logs import ALWAYS, NOW_MS, SMALL, contents, open_log, put, wire
from tests.settings import log_limits

PASSED = replace(SMALL, retention_passed=True)
DAY_MS = 24 * 3_600_000


class SmallDisk(Files):
    """A disk of `bytes_max` for everything below `root`; the last byte can be taken."""

    def __init__(self, root: Path, bytes_max: int) -> None:
        self._root, self._bytes_max = root, bytes_max

    def used(self) -> int:
        return sum(path.stat().st_size for path in self._root.rglob("*") if path.is_file())

    def write_some(self, fd: int, pieces: Sequence[Any], position: int) -> int:
        grows = max(0, position + sum(map(len, pieces)) - os.fstat(fd).st_size)
        if grows and self.used() + grows > self._bytes_max:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write_some(fd, pieces, position)

    def fill(self) -> None:
        """Others take what is left."""
        (self._root / "others").write_bytes(bytes(self._bytes_max - self.used()))


@pytest.mark.parametrize("sealed", [True, False])
def test_a_disk_that_is_full_to_the_last_byte_gets_room_by_retention(
    tmp_path: Path, sealed: bool
) -> None:
    disk = SmallDisk(tmp_path, 200_000)
    limits = PASSED if sealed else replace(PASSED, segment_bytes_max=1 << 20)
    log = open_log(tmp_path / "log", limits, files=disk)
    log.passed("g", 0)
    for sequence in range(60):
        put(log, sequence, [b"x" * 500])
    disk.fill()
    log.passed("g", log.end_offset)
    with pytest.raises(DiskFull):
        put(log, 60, [b"x" * 5_000])
    assert log.retain(NOW_MS) > 0
    assert log.size_bytes < 1_000
    put(log, 60, [b"x" * 5_000])
    log.abandon()
    log = open_log(tmp_path / "log", limits, files=disk)
    assert list(contents(log)) == [60] and log.gaps == ()
    assert put(log, 3, [b"x" * 500]).repeated, "what the dropped frames knew is known"
    log.close()


def test_a_log_opens_on_a_disk_that_is_full_to_the_last_byte(tmp_path: Path) -> None:
    """Only a log that is open can make room by retention."""
    disk = SmallDisk(tmp_path, 200_000)
    log = open_log(tmp_path / "log", PASSED, files=disk)
    log.passed("g", 0)
    for sequence in range(60):
        put(log, sequence, [b"x" * 500])
    log.retain(NOW_MS)
    disk.fill()
    log.abandon()
    log = open_log(tmp_path / "log", PASSED, files=disk)
    log.passed("g", log.end_offset)
    assert log.retain(NOW_MS) > 0
    put(log, 60, [b"x" * 500])
    log.close()


def test_a_confirmation_that_meets_a_full_disk_leaves_the_log_waiting(tmp_path: Path) -> None:
    disk = FaultyFiles()
    log = open_log(tmp_path, boot="one", files=disk)
    put(log, 0, [b"a", b"b"])
    log.abandon()
    for at in range(100):
        log = open_log(tmp_path, boot=f"after {at}", files=disk, expected_end=None)
        disk.put(Fault("ENOSPC", at, burst=1_000))
        try:
            log.confirm(50, NOW_MS)
        except LogError:
            assert log.state != "open", "and nobody gets an offset from it"
        else:
            break
        disk.put(None)
        if log.state == "failed":  # it was a sync: the gap is written down, and stands
            log.abandon()
            log = open_log(tmp_path, boot=f"after {at}", files=disk, expected_end=None)
        log.confirm(50, NOW_MS)
        assert log.state == "open" and log.end_offset >= 50 + RESERVE_OFFSETS
        log.abandon()
    disk.put(None)
    assert at > 3
    log.close()


@pytest.mark.parametrize("limits", [SMALL, ALWAYS], ids=["interval", "always"])
def test_what_a_failed_sync_left_in_memory_alone_is_written_again(
    tmp_path: Path, limits: LogLimits
) -> None:
    disk = FaultyFiles()
    log = open_log(tmp_path, limits, files=disk)
    put(log, 0, [b"a"])
    disk.put(Fault("EIO", 0))
    with pytest.raises(LogAway, match="sync failed"):
        log.sync()
    disk.put(None)
    with pytest.raises(LogAway):
        log.sync()
    log.abandon()
    log = open_log(tmp_path, limits, files=disk)
    assert put(log, 0, [b"a"]).repeated, "it can still be read"
    log.sync()
    log.abandon()
    disk.cut_power(tmp_path, Random(1))
    log = open_log(tmp_path, limits, files=disk, boot="another")
    assert contents(log) == {0: b"a"}
    log.close()


def test_a_sync_that_fails_while_retention_seals_is_not_passed_over(tmp_path: Path) -> None:
    disk = FaultyFiles()
    log = open_log(tmp_path, PASSED, files=disk)
    log.passed("g", 0)
    put(log, 0)
    log.passed("g", 1)
    disk.put(Fault("EIO", 0))
    with pytest.raises(LogAway):
        log.retain(NOW_MS)
    disk.put(None)
    with pytest.raises(LogAway):
        put(log, 1)
    assert (log.state, log.durable_offset) == ("failed", 0)
    log.abandon()


def mended(library: LogManager, place: tuple[str, int] = ("q", 0)) -> bool:
    assert place in library.due(1 << 60)
    return library.mend(place, NOW_MS, 0)


def test_a_lock_that_was_held_is_tried_again_until_it_is_free(tmp_path: Path) -> None:
    spec = QueueSpec("q", 1, log_limits())
    library = LogManager(tmp_path, 0, 1, NOW_MS)
    library.open(spec, {}, NOW_MS, make=True)
    put(library.log("q", 0), 0)
    library.close()
    holder = Files().lock(tmp_path / "q" / "p00000" / "lock", 0)
    library = LogManager(tmp_path, 0, 1, NOW_MS)
    library.open(spec, {0: 1}, NOW_MS, make=True)
    with pytest.raises(LockHeld):
        library.log("q", 0)
    assert not mended(library)
    assert library.due(0) == [], "not at once"
    os.close(holder)
    assert mended(library)
    assert library.due(1 << 60) == []
    assert contents(library.log("q", 0)) == {0: b"m000000"}
    library.close()


def test_a_log_that_failed_is_given_back_what_memory_held_of_it(tmp_path: Path) -> None:
    disk = FaultyFiles()
    library = LogManager(tmp_path, 0, 1, NOW_MS, files=disk)
    library.open(QueueSpec("q", 1, SMALL), {}, NOW_MS, make=True)
    log = library.log("q", 0)
    for sequence in range(4):
        put(log, sequence)
    whole = contents(log)
    disk.put(Fault("EIO", 0))
    with pytest.raises(LogAway):
        log.sync()
    disk.put(None)
    (path,) = segment_paths(log.folder)
    os.truncate(path, path.stat().st_size - 150)  # the system let go of pages it took for clean
    assert mended(library)
    log = library.log("q", 0)
    assert contents(log) == whole and log.gaps == ()
    assert put(log, 4).base_offset == 4
    library.close()


def test_what_memory_gave_back_survives_a_power_cut_without_another_append(tmp_path: Path) -> None:
    disk = FaultyFiles()
    library = LogManager(tmp_path, 0, 1, NOW_MS, files=disk)
    library.open(QueueSpec("q", 1, SMALL), {}, NOW_MS, make=True)
    log = library.log("q", 0)
    for sequence in range(4):
        put(log, sequence)
    whole = contents(log)
    disk.put(Fault("EIO", 0))
    with pytest.raises(LogAway):
        log.sync()
    disk.put(None)
    (path,) = segment_paths(log.folder)
    os.truncate(path, path.stat().st_size - 150)
    assert mended(library)
    log = library.log("q", 0)
    assert not log.dirty, "nobody else knows that it is to be synced"
    folder, end = log.folder, log.end_offset
    library.abandon()
    disk.cut_power(tmp_path, Random(1))
    log = open_log(folder, files=disk, boot="another", expected_end=end)
    assert contents(log) == whole
    log.close()


def test_one_partition_that_cannot_be_read_is_refused_alone(tmp_path: Path) -> None:
    class Ill(Files):
        ill = False

        def open_to_read(self, path: Path) -> int:
            if self.ill and "p00000" in str(path):
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return super().open_to_read(path)

    disk = Ill()
    library = LogManager(tmp_path, 0, 1, NOW_MS, files=disk)
    library.open(QueueSpec("q", 2, log_limits(tail_bytes_max=1)), {}, NOW_MS, make=True)
    for partition in (0, 1):
        for sequence in range(3):
            put(library.log("q", partition), sequence)
    disk.ill = True
    reader = LogReader(library, ReadFence(tmp_path / "fence.jsonl"), Counter())
    positions = {0: (1, 0), 1: (1, 0)}
    ill, well = asyncio.run(reader.fetch("q", "g", positions, 1 << 20, True))
    assert isinstance(ill, Refused) and isinstance(ill.error, LogAway)
    assert isinstance(well, Fetched) and well.partition == 1
    reader.close()
    library.close()


@pytest.mark.parametrize("limits", [SMALL, ALWAYS], ids=["interval", "always"])
def test_a_sync_that_cannot_begin_leaves_nobody_waiting_and_nothing_forgotten(
    tmp_path: Path, limits: LogLimits, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path, limits)
    working, tries = log.sync, 0

    def refuses() -> None:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        working()

    monkeypatch.setattr(type(log), "sync", lambda _: refuses())

    async def run() -> None:
        writer = LogWriter(lambda _: None)
        frame = wire([b"a"], 0)
        _, unsynced = await asyncio.wait_for(
            writer.do_each(lambda: log.append(*frame, NOW_MS), {log}, 100), 5
        )
        assert bool(unsynced) is (limits is ALWAYS), "what is not synced is not acknowledged"
        for _ in range(500):
            if log.durable_offset == 1:
                break
            await asyncio.sleep(0.01)
        await writer.close()

    asyncio.run(run())
    assert log.durable_offset == 1 and tries >= 3
    log.close()


def test_the_mended_clock_of_a_machine_makes_no_producer_silent(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append(*wire([b"row"], 0, producer=b"f" * 16), 0)
    put(log, 0)
    now_ms = 50 * 365 * DAY_MS
    log.append(*wire([b"x"], 1), now_ms)
    assert log.append(*wire([b"row"], 0, producer=b"f" * 16), now_ms + 1).repeated
    log.close()
    log = open_log(tmp_path)
    assert log.append(*wire([b"row"], 0, producer=b"f" * 16), 2 * now_ms).repeated
    steps = SMALL.producer_idle_ms // STEP_MS_MAX + 1
    for step in range(steps):
        log.append(*wire([b"x"], 2 + step), 2 * now_ms + step * STEP_MS_MAX)
    log.append(*wire([b"x"], 2 + steps), 2 * now_ms + steps * STEP_MS_MAX)
    again = log.append(*wire([b"row"], 0, producer=b"f" * 16), 3 * now_ms)
    assert not again.repeated, "whoever is silent for that long by any clock is forgotten"
    log.close()


def test_a_payload_that_holds_a_frame_cannot_stop_a_log(tmp_path: Path) -> None:
    header, body = wire([b"inner"], 7)
    inner = pack_header(unpack_header(header)._replace(base_offset=10**9)) + bytes(body)
    log = open_log(tmp_path, log_limits())
    put(log, 0)
    put(log, 1, [inner * 3 + b"y" * 4_096])
    log.abandon()
    (path,) = segment_paths(tmp_path)
    whole = path.read_bytes()
    start = whole.index(b"PXFR", whole.index(b"PXFR") + 4)
    for size in range(start + 100, len(whole), 97):
        path.write_bytes(whole[:size])
        log = open_log(tmp_path, log_limits())
        assert (log.state, log.end_offset) == ("open", 1)
        log.abandon()


@pytest.mark.parametrize("lost", range(0, 4_000, 500))
def test_pages_that_a_power_cut_left_in_any_order_are_a_torn_tail(
    tmp_path: Path, lost: int
) -> None:
    log = open_log(tmp_path, log_limits(), boot="one")
    put(log, 0)
    log.sync()
    (path,) = segment_paths(tmp_path)
    synced = path.stat().st_size
    for sequence in range(1, 20):
        put(log, sequence, [b"x" * 300])
    log.abandon()
    data = bytearray(path.read_bytes())
    data[synced + lost : synced + lost + 512] = bytes(512)
    path.write_bytes(data)
    log = open_log(tmp_path, log_limits(), boot="two", expected_end=None)
    assert log.state == "waiting"
    log.confirm(0, NOW_MS)
    assert log.end_offset > 20, "and no offset is given out twice"
    assert 0 in contents(log)
    log.close()


@pytest.mark.parametrize("seed", range(8))
def test_what_dropped_frames_knew_outlives_a_power_cut(tmp_path: Path, seed: int) -> None:
    disk = FaultyFiles()
    log = open_log(tmp_path, PASSED, files=disk)
    log.passed("g", 0)
    put(log, 0, [b"row of a feed"], producer=b"f" * 16)
    for sequence in range(60):
        put(log, sequence, [b"x" * 100])
    log.passed("g", log.end_offset - 1)
    log.retain(NOW_MS)
    assert log.start_offset > 1
    log.sync()
    log.abandon()
    disk.cut_power(tmp_path, Random(seed))
    log = open_log(tmp_path, PASSED, files=disk, boot="another", expected_end=60)
    assert put(log, 0, [b"row of a feed"], producer=b"f" * 16).repeated
    log.close()


def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        library = LogManager(tmp_path / "new" / "data", 0, 1, NOW_MS)
        library.open(QueueSpec("q", 1, PASSED), {}, NOW_MS, make=True)
        log = library.log("q", 0)
        for sequence in range(60):
            put(log, sequence, [b"x" * 100])
        ReadFence(tmp_path / "new" / "data" / "fence.jsonl").close()
        library.close()
    finally:
        os.umask(before)
    found = {path: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "new").rglob("*")}
    assert len(found) > 8
    assert {path: mode for path, mode in found.items() if mode & 0o077} == {}
