"""More files than may be open: what is in them, what was synced, and who has their locks."""

from __future__ import annotations

import errno
import subprocess
import sys
import threading
from pathlib import Path
from random import Random

import pytest

from pxrs_ray.bounded_files import OPEN_MAX, UNSYNCED_MAX, BoundedFiles, OpenBounds, open_bounds
from pxrs_ray.errors import LockHeld
from pxrs_ray.files import Files
from pxrs_ray.log.partition_log import PartitionLog
from tests.logs import NOW_MS
from tests.settings import log_limits

HOLD = """
import sys, time
from pathlib import Path
from pxrs_ray.bounded_files import BoundedFiles, OpenBounds
files = BoundedFiles(Path(sys.argv[1]) / "locks", OpenBounds(0, 0))
held = [files.lock(Path(each), 0) for each in sys.argv[2:]]
assert all(each.fd < 0 for each in files._held.values())
print("held", flush=True)
sys.stdin.read()
"""


class Watched(Files):
    """Real files that count what is done, and fail where a test says so."""

    def __init__(self) -> None:
        self.syncs: list[str] = []
        self.opened: list[str] = []
        self.sync_error: OSError | None = None
        self.open_error: OSError | None = None

    def open(self, path: Path, *, create: bool = False) -> int:
        self.opened.append(path.name)
        if self.open_error is not None:
            error, self.open_error = self.open_error, None
            raise error
        return super().open(path, create=create)

    def sync(self, fd: int) -> None:
        self.syncs.append(Path(f"/proc/self/fd/{fd}").readlink().name)
        if self.sync_error is not None:
            raise self.sync_error
        super().sync(fd)


def bounded(folder: Path, most: int, inner: Files | None = None) -> BoundedFiles:
    return BoundedFiles(folder / "locks", OpenBounds(most, most), inner=inner)


def open_count(files: BoundedFiles) -> int:
    return sum(held.fd >= 0 for held in files._held.values())


def test_files_are_written_and_read_whichever_of_them_are_open(tmp_path: Path) -> None:
    files, rng = bounded(tmp_path, 3), Random(1)
    numbers = [files.open(tmp_path / f"f{n}", create=True) for n in range(20)]
    told = [bytearray() for _ in numbers]
    for step in range(400):
        at = rng.randrange(20)
        piece = rng.randbytes(rng.randint(1, 9))
        files.write(numbers[at], [piece], len(told[at]))
        told[at] += piece
        if step % 7 == 0:
            files.sync(numbers[at])
        assert open_count(files) <= 3
    for number, expected in zip(numbers, told, strict=True):
        assert files.length(number) == len(expected)
        assert files.read(number, len(expected), 0) == expected
        files.close(number)
    assert open_count(files) == 0


def test_what_was_written_is_synced_before_its_file_is_closed(tmp_path: Path) -> None:
    disk = Watched()
    files = bounded(tmp_path, 1, disk)
    one, other = (files.open(tmp_path / name, create=True) for name in ("one", "other"))
    for each in (one, other):
        files.sync(each)
    disk.syncs.clear()
    files.write(one, [b"1"], 0)
    files.write(other, [b"2"], 0)
    assert disk.syncs == ["one"]
    files.sync(one)  # it was, and nothing was written since: it stays closed
    assert disk.syncs == ["one"] and open_count(files) == 1


def test_a_sync_that_failed_when_a_file_was_closed_is_told_to_its_owner(tmp_path: Path) -> None:
    disk = Watched()
    files = bounded(tmp_path, 1, disk)
    one, other = (files.open(tmp_path / name, create=True) for name in ("one", "other"))
    files.write(one, [b"1"], 0)
    disk.sync_error = OSError(errno.EIO, "lost")
    files.read(other, 1, 0)
    disk.sync_error = None
    for call in (lambda: files.sync(one), lambda: files.write(one, [b"2"], 1)):
        with pytest.raises(OSError, match="lost"):
            call()
    files.sync(other)
    files.close(one)
    assert files.read_file(tmp_path / "one") == b"1"


def test_an_owner_that_syncs_while_a_file_is_closed_hears_what_failed(tmp_path: Path) -> None:
    """Of two syncs of one file the system tells the first one alone what is lost."""
    begun, go_on = threading.Event(), threading.Event()

    class Slow(Watched):
        def sync(self, fd: int) -> None:
            if begun.is_set():
                return
            begun.set()
            assert go_on.wait(10)
            raise OSError(errno.EIO, "lost")

    disk, heard = Watched(), []
    files = bounded(tmp_path, 1, disk)
    one, other = (files.open(tmp_path / name, create=True) for name in ("one", "other"))
    files.sync(other)
    files.write(one, [b"1"], 0)
    files._inner = Slow()
    closing = threading.Thread(target=lambda: files.read(other, 1, 0))

    def sync() -> None:
        try:
            files.sync(one)
        except OSError as error:
            heard.append(str(error))

    syncing = threading.Thread(target=sync)
    closing.start()
    assert begun.wait(10)
    syncing.start()
    syncing.join(0.1)
    go_on.set()
    for thread in (closing, syncing):
        thread.join(10)
    assert heard and "lost" in heard[0]


def test_another_file_in_the_place_of_ours_is_not_taken_for_it(tmp_path: Path) -> None:
    files = bounded(tmp_path, 1)
    one = files.open(tmp_path / "one", create=True)
    files.write(one, [b"1"], 0)
    files.open(tmp_path / "other", create=True)
    (tmp_path / "one").rename(tmp_path / "aside")
    with pytest.raises(FileNotFoundError):
        files.read(one, 1, 0)
    (tmp_path / "one").write_bytes(b"2")
    with pytest.raises(OSError, match="another file"):
        files.write(one, [b"3"], 1)
    assert (tmp_path / "one").read_bytes() == b"2"


def test_numbers_that_are_used_up_are_made_free(tmp_path: Path) -> None:
    disk = Watched()
    files = bounded(tmp_path, 8, disk)
    held = [files.open(tmp_path / f"f{n}", create=True) for n in range(8)]
    disk.open_error = OSError(errno.EMFILE, "too many open files")
    files.close(files.open(tmp_path / "more", create=True))
    assert open_count(files) == 4
    assert [files.length(each) for each in held] == [0] * 8


def test_a_lock_outlasts_the_closing_of_its_file(tmp_path: Path) -> None:
    paths = [tmp_path / f"p{n}" / "lock" for n in range(4)]
    for path in paths:
        path.parent.mkdir()
    command = [sys.executable, "-c", HOLD, str(tmp_path), *map(str, paths)]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        files = bounded(tmp_path, 0)
        for path in paths:
            with pytest.raises(LockHeld, match="in use by another process"):
                files.lock(path, 0)
        assert open_count(files) == 0
        holder.kill()
        holder.wait(10)
        numbers = [files.lock(path, 5_000) for path in paths]
        assert open_count(files) == 0
    finally:
        holder.kill()
        holder.communicate()
    for number in numbers:
        files.write(number, [b"note"], 0)
        assert files.read(number, 4, 0) == b"note"
        files.close(number)
    assert bounded(tmp_path, 0).lock(paths[0], 0)


def test_a_lock_is_held_once_also_within_a_process(tmp_path: Path) -> None:
    files = bounded(tmp_path, 0)
    held = files.lock(tmp_path / "lock", 0)
    for other in (files, bounded(tmp_path, 0)):
        with pytest.raises(LockHeld):
            other.lock(tmp_path / "lock", 0)
    files.close(held)
    files.close(files.lock(tmp_path / "lock", 0))


def test_a_lock_that_can_only_be_held_on_its_file_keeps_it_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pxrs_ray.files._SET_LOCK", None)
    files = bounded(tmp_path, 0)
    held = files.lock(tmp_path / "lock", 0)
    assert open_count(files) == 1
    with pytest.raises(LockHeld):
        bounded(tmp_path, 0).lock(tmp_path / "lock", 0)
    files.close(held)
    assert open_count(files) == 0


def test_threads_that_write_and_sync_share_few_files(tmp_path: Path) -> None:
    files, failed = bounded(tmp_path, 2), []
    numbers = [files.open(tmp_path / f"f{n}", create=True) for n in range(8)]

    def work(number: int) -> None:
        try:
            for at in range(300):
                files.write(number, [b"%03d" % at], 3 * at)
                if at % 10 == 0:
                    files.sync(number)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in numbers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failed
    expected = b"".join(b"%03d" % at for at in range(300))
    assert [(tmp_path / f"f{n}").read_bytes() for n in range(8)] == [expected] * 8


def test_many_logs_are_open_on_few_files(tmp_path: Path) -> None:
    files, limits = bounded(tmp_path, 4), log_limits()
    logs = []
    for partition in range(60):
        log = PartitionLog.open(
            tmp_path / f"p{partition}", "q", partition, limits, now_ms=NOW_MS, files=files
        )
        log.confirm(0, NOW_MS)
        logs.append(log)
    assert open_count(files) <= 4
    for log in logs:
        log.close()
    assert open_count(files) == 0


def test_what_needs_no_sync_is_closed_first_and_the_others_when_there_are_far_too_many(
    tmp_path: Path,
) -> None:
    """Whoever appends must not wait for the sync of another log."""
    disk = Watched()
    files = BoundedFiles(tmp_path / "locks", OpenBounds(2, 5), inner=disk)
    numbers = [files.open(tmp_path / f"f{n}", create=True) for n in range(5)]
    assert open_count(files) == 5 and disk.syncs == []
    files.sync(numbers[3])
    files.write(numbers[4], [b"4"], 0)
    disk.syncs.clear()
    numbers.append(files.open(tmp_path / "f5", create=True))
    assert open_count(files) == 5 and disk.syncs == [], "f3 has gone, which was synced"
    assert files._held[numbers[3]].fd < 0
    numbers.append(files.open(tmp_path / "f6", create=True))
    assert open_count(files) == 5 and disk.syncs == ["f0"]
    for number in numbers:
        files.sync(number)
    files.length(numbers[0])
    assert open_count(files) == 2


def test_the_bound_follows_what_the_process_may_open(monkeypatch: pytest.MonkeyPatch) -> None:
    unlimited = (OPEN_MAX, UNSYNCED_MAX)
    for allowed, expected in (
        (1_024, (512, 768)),
        (20_000, (OPEN_MAX, 15_000)),
        (1 << 20, unlimited),
        (-1, unlimited),
        (8, (16, 16)),
    ):
        monkeypatch.setattr("resource.getrlimit", lambda _, a=allowed: (a, a))
        assert open_bounds() == expected
