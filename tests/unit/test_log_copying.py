"""Copying a slot's logs to another disk: while they are written, cut off, and installed."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pxrs_ray.errors import LogCorrupted, PxrsError
from pxrs_ray.files import Files
from pxrs_ray.log.log_copy import (
    ARRIVING,
    Arriving,
    Bytes,
    FileState,
    Piece,
    read_piece,
    remove_slot,
    slot_files,
    slot_folders,
)
from pxrs_ray.log.partition_log import PartitionLog
from tests.faults.faulty_files import Fault, FaultyFiles
from tests.logs import contents, open_log, put

FILES = Files()
INDEX, BUFFERS = 1, 2


def source_log(folder: Path) -> PartitionLog:
    own = folder / ".buffers/1"
    own.mkdir(parents=True, exist_ok=True)
    (own / "fence.jsonl").write_text("epochs\n")
    return open_log(folder / "q/p00001")


def copy_round(arriving: Arriving, folder: Path, *, last: bool = False) -> int:
    """One round; answers how many bytes it took."""
    listing = slot_files(FILES, folder, INDEX, BUFFERS)
    taken = 0
    for piece in list(arriving.missing(listing, last=last)):
        found = read_piece(FILES, folder, piece)
        arriving.take(piece, found)
        taken += len(found.data)
    if last:
        assert arriving.lacks(listing) == []
    return taken


def test_only_the_slots_own_folders_are_listed(tmp_path: Path) -> None:
    for name in ("q/p00000", "q/p00001", "r/p00003", "q/p00002", ".arriving/1/q/p00001"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / ".buffers/1").mkdir(parents=True)
    (tmp_path / ".buffers/0").mkdir(parents=True)
    found = [path.relative_to(tmp_path).as_posix() for path in slot_folders(tmp_path, 1, 2)]
    assert found == ["q/p00001", "r/p00003", ".buffers/1"]


def test_a_log_that_is_written_meanwhile_arrives_whole(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    log = source_log(here)
    arriving = Arriving(FILES, there, INDEX)
    rounds = []
    for sequence in range(60):
        put(log, sequence)
        if sequence % 20 == 19:
            rounds.append(copy_round(arriving, here))
    log.close()
    expected = contents(open_log(here / "q/p00001"))
    last = copy_round(arriving, here, last=True)
    assert last < sum(rounds) / 2, "the last round takes only what is new"
    arriving.install()
    copied = open_log(there / "q/p00001")
    assert contents(copied) == expected
    assert copied.state == "open" and copied.ends().gaps == ()
    assert (there / ".buffers/1/fence.jsonl").read_text() == "epochs\n"
    assert not (there / ARRIVING / "1").exists()


def test_what_retention_drops_meanwhile_is_dropped_from_the_copy(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    log = source_log(here)
    for sequence in range(80):
        put(log, sequence)
    arriving = Arriving(FILES, there, INDEX)
    listing = slot_files(FILES, here, INDEX, BUFFERS)
    log.truncate_before(60, 2_000, force=True)
    for piece in list(arriving.missing(listing)):
        arriving.take(piece, read_piece(FILES, here, piece))
    assert arriving.lacks(slot_files(FILES, here, INDEX, BUFFERS)), "not whole yet"
    log.close()
    copy_round(arriving, here, last=True)
    arriving.install()
    kept = sorted(path.name for path in (here / "q/p00001").glob("*.seg"))
    assert sorted(path.name for path in (there / "q/p00001").glob("*.seg")) == kept


def test_a_copy_takes_the_place_of_an_older_one(tmp_path: Path) -> None:
    """A slot that comes back to a disk where it has lived before."""
    here, there = tmp_path / "here", tmp_path / "there"
    old = source_log(there)
    for sequence in range(5):
        put(old, sequence, [b"old"])
    old.close()
    log = source_log(here)
    put(log, 0, [b"new"])
    log.close()
    arriving = Arriving(FILES, there, INDEX)
    copy_round(arriving, here, last=True)
    arriving.install()
    assert contents(open_log(there / "q/p00001")) == {0: b"new"}


def test_a_slot_that_moved_away_leaves_nothing(tmp_path: Path) -> None:
    source_log(tmp_path).close()
    other = tmp_path / "q/p00000"
    other.mkdir()
    left = slot_files(FILES, tmp_path, INDEX, BUFFERS)
    remove_slot(FILES, tmp_path, INDEX, BUFFERS, left)
    assert slot_folders(tmp_path, INDEX, BUFFERS) == []
    assert other.is_dir()


def test_a_slot_that_came_back_is_not_removed_by_what_was_meant_for_its_former_life(
    tmp_path: Path,
) -> None:
    """Nobody knows when a node that was cut off does what it was told."""
    here, there = tmp_path / "here", tmp_path / "there"
    log = source_log(here)
    put(log, 0)
    log.close()
    left = slot_files(FILES, here, INDEX, BUFFERS)
    for source, target in ((here, there), (there, here)):
        arriving = Arriving(FILES, target, INDEX)
        copy_round(arriving, source, last=True)
        arriving.install()
    places = slot_folders(here, INDEX, BUFFERS)
    remove_slot(FILES, here, INDEX, BUFFERS, left)
    assert slot_folders(here, INDEX, BUFFERS) == places != []
    assert contents(open_log(here / "q/p00001")) == contents(open_log(there / "q/p00001"))


def test_bytes_that_change_on_their_way_are_refused(tmp_path: Path) -> None:
    arriving = Arriving(FILES, tmp_path, INDEX)
    state = FileState("q/p00001/a.seg", 3, 1, 1)
    with pytest.raises(LogCorrupted, match="changed on their way"):
        arriving.take(Piece(state, 0, 3), Bytes(b"abc", 12))
    assert arriving.lacks([state]) == ["q/p00001/a.seg"]


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "", "q/../../x"])
def test_no_name_leads_out_of_the_folder(tmp_path: Path, name: str) -> None:
    piece = Piece(FileState(name, 1, 1, 1), 0, 1)
    with pytest.raises(LogCorrupted, match="names no file"):
        read_piece(FILES, tmp_path, piece)
    with pytest.raises(LogCorrupted, match="names no file"):
        Arriving(FILES, tmp_path, INDEX).take(piece, Bytes(b"", 0x2D06800538D394C2))


@settings(max_examples=25, deadline=None)
@given(steps=st.lists(st.sampled_from(["put", "round", "retain", "again"]), max_size=25))
def test_any_course_of_writing_and_copying_ends_in_the_same_log(
    steps: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("copy")
    here, there = folder / "here", folder / "there"
    log, sequence = source_log(here), 0
    arriving = Arriving(FILES, there, INDEX)
    for step in steps:
        if step == "put":
            for _ in range(4):
                put(log, sequence, [b"x" * 300])
                sequence += 1
        elif step == "round":
            copy_round(arriving, here)
        elif step == "retain":
            log.truncate_before(log.end_offset, 2_000, force=True)
        else:
            arriving = Arriving(FILES, there, INDEX)
    log.close()
    copy_round(arriving, here, last=True)
    arriving.install()
    ours, theirs = open_log(there / "q/p00001"), open_log(here / "q/p00001")
    assert contents(ours) == contents(theirs)
    assert ours.ends() == theirs.ends()


def test_a_fault_at_any_operation_leaves_the_source_and_a_next_try_succeeds(tmp_path: Path) -> None:
    here = tmp_path / "here"
    log = source_log(here)
    for sequence in range(14):
        put(log, sequence)
    log.close()
    expected = contents(open_log(here / "q/p00001"))
    at = failed = 0
    while True:
        at += 1
        there = tmp_path / f"there{at}"
        faulty = FaultyFiles()
        faulty.put(Fault("EIO", at))
        try:
            arriving = Arriving(faulty, there, INDEX)
            copy_round(arriving, here, last=True)
            arriving.install()
            break
        except (OSError, PxrsError) as error:
            assert getattr(error, "errno", errno.EIO) == errno.EIO
            failed += 1
        again = Arriving(FILES, there, INDEX)
        copy_round(again, here, last=True)
        again.install()
        assert contents(open_log(there / "q/p00001")) == expected
    assert failed > 20, "every operation was failed once"


def test_what_was_installed_survives_a_power_cut(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    log = source_log(here)
    for sequence in range(30):
        put(log, sequence)
    log.close()
    expected = contents(open_log(here / "q/p00001"))
    faulty = FaultyFiles()
    faulty.make_folder(there)
    arriving = Arriving(faulty, there, INDEX)
    copy_round(arriving, here, last=True)
    arriving.install()
    faulty.cut_power(there, random.Random(7))
    assert contents(open_log(there / "q/p00001")) == expected
