"""Logs that come back without what they should have: offsets stay monotone, the gap is told."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from pxrs_ray.data.log_limits import LossPolicy
from pxrs_ray.errors import LogError, LogLost
from pxrs_ray.log.log_opening import LOSS_MARGIN, RESERVE_OFFSETS
from pxrs_ray.log.segment import segment_paths
from tests.faults.faulty_files import Fault, FaultyFiles
from tests.logs import ALWAYS, MEMORY, NOW_MS, SMALL, contents, open_log, put

CONTINUE = replace(SMALL, lost_log_policy=LossPolicy.CONTINUE)


def test_a_new_log_waits_to_be_told_how_far_it_should_reach(tmp_path: Path) -> None:
    log = open_log(tmp_path, expected_end=None)
    assert log.state == "waiting"
    with pytest.raises(LogLost, match="not confirmed"):
        put(log, 0)
    with pytest.raises(LogLost):
        log.read(0)
    log.confirm(0, NOW_MS)
    assert put(log, 0).base_offset == 0
    log.close()


def test_a_log_that_never_got_its_confirmation_waits_again(tmp_path: Path) -> None:
    open_log(tmp_path, expected_end=None).abandon()
    assert open_log(tmp_path, expected_end=None).state == "waiting"


def test_a_lost_folder_stops_the_log_until_the_loss_is_accepted(tmp_path: Path) -> None:
    log = open_log(tmp_path, SMALL, expected_end=500)
    assert log.state == "lost"
    with pytest.raises(LogLost, match=r"offsets 0 to \d+ are lost .*accept the loss"):
        put(log, 0)
    with pytest.raises(LogLost):
        log.read(0)
    log.abandon()
    log = open_log(tmp_path)
    assert log.state == "lost", "a restart is no acceptance"
    log.accept_loss()
    assert put(log, 0).base_offset == 500 + LOSS_MARGIN
    assert log.read(500).next_offset > 500
    log.close()


def test_with_continue_it_goes_on_above_everything_and_tells_the_gap(tmp_path: Path) -> None:
    log = open_log(tmp_path, CONTINUE, expected_end=500)
    assert log.state == "open"
    (gap,) = log.gaps
    assert (gap.first, gap.end, gap.at_ms) == (0, 500 + LOSS_MARGIN, NOW_MS)
    assert "500" in gap.reason or gap.reason
    waiting = log.read(700)
    assert (waiting.chunks, waiting.next_offset) == ([], gap.end)
    base = put(log, 0).base_offset
    assert base == gap.end
    assert list(contents(log, 3)) == [base]
    log.close()
    log = open_log(tmp_path, CONTINUE)
    assert log.gaps == (gap,), "known losses are not told again"
    log.close()


def test_missing_segments_are_a_loss_that_is_told(tmp_path: Path) -> None:
    for which, policy in ((0, SMALL), (2, CONTINUE), (-1, CONTINUE)):
        folder = tmp_path / str(which)
        log = open_log(folder, policy)
        for sequence in range(60):
            put(log, sequence, [b"x" * 100])
        whole, end = contents(log), log.end_offset
        log.close()
        paths = segment_paths(folder)
        lost_from = int(paths[which].stem)
        lost_to = end if which == -1 else int(paths[which + 1].stem)
        paths[which].unlink()
        log = open_log(folder, policy)
        (gap,) = log.gaps
        assert gap.first == lost_from
        assert gap.end >= lost_to
        assert log.end_offset >= end
        if policy is SMALL:
            assert log.state == "lost"
            log.accept_loss()
        kept = {o: v for o, v in whole.items() if not lost_from <= o < lost_to}
        assert contents(log) == kept
        assert (put(log, 60).base_offset or 0) >= end
        log.close()


def test_a_reader_that_was_further_than_the_log_is_a_loss(tmp_path: Path) -> None:
    log = open_log(tmp_path, CONTINUE)
    put(log, 0, [b"a", b"b"])
    log.confirm(2, NOW_MS)
    assert not log.gaps
    log.confirm(3, NOW_MS)
    assert [(g.first, g.end) for g in log.gaps] == [(2, 3 + LOSS_MARGIN)]
    assert put(log, 1).base_offset == 3 + LOSS_MARGIN
    log.close()


def test_an_unclean_end_and_another_boot_may_have_lost_the_unsynced_tail(tmp_path: Path) -> None:
    log = open_log(tmp_path, boot="one")
    put(log, 0, [b"a", b"b"])
    log.abandon()
    log = open_log(tmp_path, boot="one")
    assert log.state == "open", "a killed process loses nothing"
    log.abandon()
    log = open_log(tmp_path, boot="two", expected_end=None)
    assert log.state == "waiting"
    log.confirm(1, NOW_MS)
    assert log.state == "open"
    assert [(g.first, g.end) for g in log.gaps] == [(2, 2 + RESERVE_OFFSETS)]
    assert list(contents(log)) == [0, 1]
    log.close()
    log = open_log(tmp_path, boot="three", expected_end=None)
    assert log.state == "open", "after a clean end nothing can be missing"
    log.close()


def test_with_always_a_power_cut_needs_no_confirmation(tmp_path: Path) -> None:
    log = open_log(tmp_path, ALWAYS, boot="one")
    put(log, 0)
    log.sync()
    log.abandon()
    log = open_log(tmp_path, ALWAYS, boot="two", expected_end=None)
    assert (log.state, log.end_offset, log.gaps) == ("open", 1, ())
    log.close()


def test_memory_logs_go_on_above_what_they_gave_out(tmp_path: Path) -> None:
    log = open_log(tmp_path, MEMORY)
    put(log, 0, [b"a", b"b"])
    log.abandon()
    log = open_log(tmp_path, MEMORY)
    assert log.end_offset == 2 + RESERVE_OFFSETS
    assert log.state == "open"
    assert [(g.first, g.end) for g in log.gaps] == [(0, log.end_offset)]
    put(log, 0, [b"c"])
    log.passed("g", log.end_offset)
    end = log.end_offset
    log.close()
    log = open_log(tmp_path, MEMORY)
    assert (log.start_offset, log.end_offset) == (end, end), "closed with nothing unread"
    assert len(log.gaps) == 1
    log.close()


def test_a_folder_that_was_copied_back_is_read_again(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log")
    put(log, 0, [b"a", b"b"])
    log.close()
    shutil.copytree(tmp_path / "log", tmp_path / "copy")
    shutil.rmtree(tmp_path / "log")
    shutil.copytree(tmp_path / "copy", tmp_path / "log")
    log = open_log(tmp_path / "log")
    assert list(contents(log).values()) == [b"a", b"b"]
    log.close()


def test_a_log_that_is_behind_gives_out_no_offset_while_its_gap_cannot_be_written(
    tmp_path: Path,
) -> None:
    """It was closed well, as an older disk's may be: nothing else tells that it lacks anything."""
    disk = FaultyFiles()
    log = open_log(tmp_path, files=disk)
    put(log, 0, [b"a", b"b"])
    log.close()
    log = open_log(tmp_path, files=disk, expected_end=None)
    assert log.state == "open"
    disk.put(Fault("ENOSPC", 0, burst=1_000))
    with pytest.raises(LogError):
        log.confirm(50, NOW_MS)
    disk.put(None)
    assert log.state == "waiting"
    with pytest.raises(LogError):
        put(log, 1)
    log.confirm(50, NOW_MS)
    log.accept_loss()
    found = put(log, 1).base_offset
    assert found is not None and found >= 50
    log.close()
