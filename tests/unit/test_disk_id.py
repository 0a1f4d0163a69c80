"""A data folder has one id, whoever makes it, and whatever happens while it is made."""

from __future__ import annotations

import random
import stat
import threading
from pathlib import Path

import pytest

from pxrs_ray.errors import LogCorrupted
from pxrs_ray.files import Files
from pxrs_ray.log.disk_id import NAME, make_disk_id, read_disk_id
from tests.faults.faulty_files import KINDS, Ended, Fault, FaultyFiles


def test_it_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    files = Files()
    assert read_disk_id(files, tmp_path / "data") == ""
    made = make_disk_id(files, tmp_path / "data")
    assert made and make_disk_id(files, tmp_path / "data") == made
    assert read_disk_id(files, tmp_path / "data") == made
    assert make_disk_id(files, tmp_path / "other") != made
    assert stat.S_IMODE((tmp_path / "data" / NAME).stat().st_mode) == 0o600
    assert [path.name for path in (tmp_path / "data").iterdir()] == [NAME]


@pytest.mark.parametrize("content", [b"", b"{", b'{"disk_id": ""}', b"[]"])
def test_what_cannot_be_read_is_no_new_disk(tmp_path: Path, content: bytes) -> None:
    (tmp_path / NAME).write_bytes(content)
    with pytest.raises(LogCorrupted, match="which disk this is"):
        make_disk_id(Files(), tmp_path)


class AllFindNone(Files):
    """All of `count` find no disk; then one after the other names its own, and reads."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self._barrier = threading.Barrier(count)
        self._turn = threading.Semaphore()

    def create(self, path: Path) -> int:
        self._barrier.wait(20)
        return super().create(path)

    def link(self, source: Path, target: Path) -> None:
        assert self._turn.acquire(timeout=20)
        super().link(source, target)

    def rename(self, source: Path, target: Path) -> None:
        assert self._turn.acquire(timeout=20)
        super().rename(source, target)

    def sync_folder(self, folder: Path) -> None:
        super().sync_folder(folder)
        self._turn.release()


def test_all_who_make_it_at_once_find_the_same(tmp_path: Path) -> None:
    files, found = AllFindNone(8), []
    threads = [
        threading.Thread(target=lambda: found.append(make_disk_id(files, tmp_path)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(found) == 8 and len(set(found)) == 1
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_fault_at_every_step(tmp_path: Path, kind: str) -> None:
    """Who was answered once is answered the same for ever, whatever befalls anybody."""
    for at in range(40):
        folder, files = tmp_path / f"{kind}{at}", FaultyFiles()
        folder.mkdir()
        files.put(Fault(kind, at))
        answered = set()
        try:
            answered.add(make_disk_id(files, folder / "data"))
        except (OSError, Ended):
            pass
        except Exception as error:  # DiskFull
            assert "no room" in str(error)
        fired = files.fired
        files.put(None)
        if kind == "power" and fired:
            files.cut_power(folder, random.Random(at))
        files.begin_anew()
        answered.add(make_disk_id(files, folder / "data"))
        files.cut_power(folder, random.Random(at + 1))
        answered.add(make_disk_id(files, folder / "data"))
        assert len(answered) == 1
        if not fired:
            return
    raise AssertionError("there are more steps than that")
