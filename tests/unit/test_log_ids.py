"""'Not here' is never 'new': a log begins where it is to be made, and nowhere else."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from unittest import mock

import pytest

from pxrs_ray.data.log_limits import Durability, LogLimits, LossPolicy
from pxrs_ray.data.protocol import QueueSpec
from pxrs_ray.errors import LeaseOver, LogLost, LogReplaced, PxrsError
from pxrs_ray.files import Files
from pxrs_ray.log.log_manager import LogManager
from pxrs_ray.log.log_opening import LOSS_MARGIN
from pxrs_ray.log.manifest import MANIFEST, Manifest
from tests.logs import NOW_MS, wire
from tests.settings import log_limits

CONTINUE = log_limits(lost_log_policy=LossPolicy.CONTINUE)
STOP = log_limits(lost_log_policy=LossPolicy.STOP)


def spec_of(queue_id: str = "one", limits: LogLimits = STOP) -> QueueSpec:
    return QueueSpec("q", 1, limits, queue_id=queue_id)


def fill(folder: Path, spec: QueueSpec, count: int = 3, *, make: bool = True) -> None:
    """A life of a buffer that appends `count` messages, and is killed."""
    library = LogManager(folder, 0, 1, NOW_MS)
    library.open(spec, {}, NOW_MS, make=make)
    library.open(spec, {}, NOW_MS, make=False)
    log = library.log("q", 0)
    for sequence in range(count):
        log.append(*wire([b"%d" % sequence], sequence), NOW_MS)
    log.sync()
    library.abandon()


def manifest_of(folder: Path) -> Manifest:
    found: Manifest = MANIFEST.decode((folder / "q" / "p00000" / "manifest.json").read_bytes())
    return found


@pytest.mark.parametrize("durability", list(Durability))
def test_a_log_that_is_made_has_the_id_of_its_queue_and_serves_on(
    tmp_path: Path, durability: Durability
) -> None:
    spec = spec_of(limits=log_limits(durability=durability))
    fill(tmp_path, spec)
    assert manifest_of(tmp_path).log_id == "one"
    library = LogManager(tmp_path, 0, 1, NOW_MS)
    library.open(spec, {}, NOW_MS, make=False)
    log = library.log("q", 0)
    assert (log.state, log.log_id) == ("open", "one")
    assert log.end_offset >= 3
    assert library.known_ends() == {"one": {0: log.end_offset}}
    library.close()


def test_a_log_that_was_only_made_serves_nobody(tmp_path: Path) -> None:
    library = LogManager(tmp_path, 0, 1, NOW_MS)
    library.open(spec_of(), {}, NOW_MS, make=True)
    with pytest.raises(LeaseOver):
        library.log("q", 0)
    library.open(spec_of(), {}, NOW_MS, make=False)
    assert library.log("q", 0).end_offset == 0
    library.close()


def test_a_call_to_make_that_comes_late_or_twice_changes_nothing(tmp_path: Path) -> None:
    library = LogManager(tmp_path, 0, 1, NOW_MS)
    for make in (True, False, True):
        library.open(spec_of(), {}, NOW_MS, make=make)
    assert library.log("q", 0).append(*wire([b"x"], 0), NOW_MS).base_offset == 0
    library.close()


def test_what_could_not_be_made_is_never_taken_for_made(tmp_path: Path) -> None:
    files = Files()
    library = LogManager(tmp_path, 0, 1, NOW_MS, files=files)
    refuses = mock.Mock(side_effect=OSError(errno.ENOSPC, "no space"))
    with mock.patch.object(files, "make_folder", refuses), pytest.raises(PxrsError):
        library.open(spec_of(), {}, NOW_MS, make=True)
    for make in (True, False):
        library.open(spec_of(), {}, NOW_MS, make=make)
    assert library.log("q", 0).state == "open"
    library.close()


def test_a_log_that_is_not_here_is_lost_though_nobody_had_read_it(tmp_path: Path) -> None:
    library = LogManager(tmp_path, 0, 1, NOW_MS)
    library.open(spec_of(), {}, NOW_MS, make=False)
    log = library.log("q", 0)
    assert log.state == "lost"
    with pytest.raises(LogLost):
        log.append(*wire([b"x"], 0), NOW_MS)
    library.accept_loss("q", 0, NOW_MS)
    assert log.append(*wire([b"x"], 0), NOW_MS).base_offset == LOSS_MARGIN
    library.close()


def test_one_that_may_go_on_goes_on_above_what_is_known_of_it(tmp_path: Path) -> None:
    library = LogManager(tmp_path, 0, 1, NOW_MS)
    library.open(spec_of(limits=CONTINUE), {0: 500}, NOW_MS, make=False)
    log = library.log("q", 0)
    assert log.append(*wire([b"x"], 0), NOW_MS).base_offset == 500 + LOSS_MARGIN
    assert [(gap.first, gap.end) for gap in log.gaps] == [(0, 500 + LOSS_MARGIN)]
    library.close()


def test_a_memory_log_that_is_not_here_goes_on_above_too(tmp_path: Path) -> None:
    library = LogManager(tmp_path, 0, 1, NOW_MS)
    spec = spec_of(limits=log_limits(durability=Durability.MEMORY))
    library.open(spec, {}, NOW_MS, make=False)
    assert library.log("q", 0).append(*wire([b"x"], 0), NOW_MS).base_offset == LOSS_MARGIN
    library.close()


def test_a_loss_that_was_judged_is_judged_once(tmp_path: Path) -> None:
    for _ in range(3):
        library = LogManager(tmp_path, 0, 1, NOW_MS)
        library.open(spec_of(limits=CONTINUE), {}, NOW_MS, make=False)
        log = library.log("q", 0)
        assert (log.end_offset, len(log.gaps)) == (LOSS_MARGIN, 1)
        library.abandon()


def test_a_log_without_an_id_is_ours_and_has_one_from_then_on(tmp_path: Path) -> None:
    fill(tmp_path, spec_of(""))
    assert manifest_of(tmp_path).log_id == ""
    library = LogManager(tmp_path, 0, 1, NOW_MS)
    library.open(spec_of("one"), {0: 3}, NOW_MS, make=False)
    assert library.log("q", 0).end_offset == 3
    assert manifest_of(tmp_path).log_id == "one"
    library.abandon()
    # ... and when it is opened by what the buffer remembers.
    library = LogManager(tmp_path, 0, 1, NOW_MS)
    library.open(spec_of("one"), {0: 3}, NOW_MS, make=False)
    assert library.log("q", 0).state == "open"
    library.close()


def test_another_log_in_its_place_stands_still_untouched_until_that_is_accepted(
    tmp_path: Path,
) -> None:
    fill(tmp_path, spec_of("another"))
    shutil.rmtree(tmp_path / ".buffers")
    before = (tmp_path / "q" / "p00000" / "manifest.json").read_bytes()
    library = LogManager(tmp_path, 0, 1, NOW_MS)
    library.open(spec_of("one"), {0: 2}, NOW_MS, make=False)
    with pytest.raises(LogReplaced, match="another log is here"):
        library.log("q", 0)
    assert library.ends("q")[0].state == "lost"
    assert (tmp_path / "q" / "p00000" / "manifest.json").read_bytes() == before
    library.accept_loss("q", 0, NOW_MS)
    assert library.log("q", 0).append(*wire([b"x"], 0), NOW_MS).base_offset == 2 + LOSS_MARGIN
    (aside,) = (tmp_path / "q").glob("p00000.*")
    assert (aside / "manifest.json").read_bytes() == before
    library.drop_queue("q")
    assert not (tmp_path / "q").exists()
    library.close()


@pytest.mark.parametrize("remembered", [True, False])
def test_a_queue_that_is_made_anew_begins_anew_where_its_forerunner_lies(
    tmp_path: Path, remembered: bool
) -> None:
    fill(tmp_path, spec_of("forerunner"))
    if not remembered:
        shutil.rmtree(tmp_path / ".buffers")
    library = LogManager(tmp_path, 0, 1, NOW_MS)
    library.open(spec_of("one"), {}, NOW_MS, make=True)
    library.open(spec_of("one"), {}, NOW_MS, make=False)
    assert library.log("q", 0).append(*wire([b"x"], 0), NOW_MS).base_offset == 0
    assert len(list((tmp_path / "q").glob("p00000.*"))) == 1
    library.abandon()
    library = LogManager(tmp_path, 0, 1, NOW_MS)
    library.open(spec_of("one"), {}, NOW_MS, make=False)
    assert library.log("q", 0).end_offset == 1
    library.close()


def test_a_log_that_is_behind_what_was_noted_of_it_is_lost_though_nobody_had_read_it(
    tmp_path: Path,
) -> None:
    fill(tmp_path, spec_of())
    library = LogManager(tmp_path, 0, 1, NOW_MS)
    library.open(spec_of(), {0: 4}, NOW_MS, make=False)
    assert library.log("q", 0).state == "lost"
    library.close()


def test_a_log_with_an_id_serves_nobody_before_its_coordinator_has_spoken(tmp_path: Path) -> None:
    fill(tmp_path, spec_of())
    library = LogManager(tmp_path, 0, 1, NOW_MS)
    with pytest.raises(LeaseOver):
        library.log("q", 0)
    assert library.known_ends() == {}
    library.open(spec_of(), {}, NOW_MS, make=False)
    assert library.log("q", 0).end_offset == 3
    library.close()
