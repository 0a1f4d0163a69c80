"""Damaged files: a clean recovery or an error that names the place; never a wrong message."""

from __future__ import annotations

import os
import random
import re
from pathlib import Path

import pytest

from pxrs_ray.data.log_limits import LogLimits
from pxrs_ray.errors import LogCorrupted, LogLost
from pxrs_ray.log.segment import FILE_HEADER_BYTES, segment_paths
from tests.logs import SMALL, contents, open_log, put
from tests.settings import log_limits

ONE_SEGMENT = log_limits(tail_bytes_max=1)


def written(folder: Path, frames: int, limits: LogLimits = SMALL) -> dict[int, bytes]:
    """A log of so many frames, killed; answers what it held."""
    log = open_log(folder, limits)
    for sequence in range(frames):
        put(log, sequence, [b"%d:%d" % (sequence, i) * 20 for i in range(2)])
    found = contents(log)
    log.abandon()
    return found


def test_a_tail_torn_at_any_byte_is_cut_and_told(tmp_path: Path) -> None:
    whole = written(tmp_path, 3, ONE_SEGMENT)
    (path,) = segment_paths(tmp_path)
    data = path.read_bytes()
    starts = [m.start() for m in re.finditer(b"PXFR", data)]
    for size in range(starts[2] + 1, len(data), 7):
        path.write_bytes(data[:size])
        log = open_log(tmp_path, ONE_SEGMENT)
        assert log.end_offset == 4
        assert log.recovery is not None
        assert (log.recovery.position, log.recovery.bytes) == (starts[2], size - starts[2])
        assert contents(log) == {o: v for o, v in whole.items() if o < 4}
        assert put(log, 2, [b"again"]).base_offset == 4
        log.abandon()


def test_a_tail_of_zeros_is_cut(tmp_path: Path) -> None:
    whole = written(tmp_path, 3, ONE_SEGMENT)
    (path,) = segment_paths(tmp_path)
    path.write_bytes(path.read_bytes() + bytes(10_000))
    log = open_log(tmp_path, ONE_SEGMENT)
    assert contents(log) == whole
    assert log.recovery is not None and log.recovery.bytes == 10_000
    log.close()
    log = open_log(tmp_path, ONE_SEGMENT)
    assert log.recovery is None
    log.close()


def test_damage_before_a_whole_frame_is_an_error_and_stays_as_it_is(tmp_path: Path) -> None:
    written(tmp_path, 3, ONE_SEGMENT)
    (path,) = segment_paths(tmp_path)
    data = bytearray(path.read_bytes())
    starts = [m.start() for m in re.finditer(b"PXFR", data)]
    data[starts[1] + 100] ^= 1
    path.write_bytes(data)
    with pytest.raises(LogCorrupted) as told:
        open_log(tmp_path, ONE_SEGMENT)
    assert f"{path.name}: damaged at position {starts[1]}, offset 2" in str(told.value)
    assert path.read_bytes() == data


def test_damage_in_a_sealed_segment_is_an_error_of_the_read_that_meets_it(tmp_path: Path) -> None:
    whole = written(tmp_path, 60)
    paths = segment_paths(tmp_path)
    assert len(paths) > 4
    data = bytearray(paths[1].read_bytes())
    data[-20] ^= 1
    paths[1].write_bytes(data)
    log = open_log(tmp_path)
    first_of_next = int(paths[2].stem)
    with pytest.raises(LogCorrupted, match=re.escape(paths[1].name)):
        contents(log)
    assert contents(log, first_of_next) == {o: v for o, v in whole.items() if o >= first_of_next}
    log.close()


def test_indexes_snapshot_and_lock_are_made_anew(tmp_path: Path) -> None:
    whole = written(tmp_path, 60)
    for path in [*tmp_path.glob("*.idx"), tmp_path / "producers.snap"]:
        path.unlink()
    log = open_log(tmp_path)
    assert contents(log) == whole
    assert put(log, 59, [b"%d:%d" % (59, i) * 20 for i in range(2)]).repeated
    log.close()
    for path in tmp_path.glob("*.idx"):
        path.write_bytes(path.read_bytes()[:-3] + b"abc")
    log = open_log(tmp_path)
    assert contents(log) == whole
    log.close()


def test_a_newer_file_version_is_refused_by_name(tmp_path: Path) -> None:
    written(tmp_path, 3, ONE_SEGMENT)
    manifest = tmp_path / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"version": 1', '"version": 9'))
    with pytest.raises(LogCorrupted, match="not of version 1"):
        open_log(tmp_path)


@pytest.mark.parametrize("seed", range(int(os.environ.get("PXRS_LOG_FUZZ", "60"))))
def test_fuzzed_files_never_crash_hang_or_lie(tmp_path: Path, seed: int) -> None:
    """Whatever is done to the files: every message that is read is one that was written there."""
    rng = random.Random(seed)
    whole = written(tmp_path, rng.randint(1, 40))
    for _ in range(rng.randint(1, 3)):
        victims = [p for p in tmp_path.iterdir() if p.name != "lock"]
        _damage(rng.choice(victims), rng)
    try:
        log = open_log(tmp_path)
    except LogCorrupted as error:
        assert str(tmp_path) in str(error)
        return
    try:
        found = contents(log)
    except (LogCorrupted, LogLost):
        found = {}
    assert found.items() <= whole.items()
    if log.state == "open":
        probe = log.end_offset
        assert probe >= max(found, default=-1) + 1
    log.abandon()


def _damage(path: Path, rng: random.Random) -> None:
    if not path.exists():
        return
    data = bytearray(path.read_bytes())
    kind = rng.choice(["flip", "cut", "grow", "zero", "double", "swap"])
    if kind == "flip" and data:
        for _ in range(rng.randint(1, 5)):
            data[rng.randrange(len(data))] = rng.randrange(256)
    elif kind == "cut":
        del data[rng.randrange(len(data) + 1) :]
    elif kind == "grow":
        data += rng.randbytes(rng.randint(1, 500))
    elif kind == "zero" and data:
        start = rng.randrange(len(data))
        data[start : start + 200] = bytes(len(data[start : start + 200]))
    elif kind == "double":
        start = rng.randrange(len(data) + 1)
        data[start:start] = data[FILE_HEADER_BYTES : rng.randrange(len(data) + 1)]
    elif kind == "swap":
        others = [p for p in path.parent.glob("*.seg") if p != path]
        if others:
            data = bytearray(rng.choice(others).read_bytes())
    path.write_bytes(data)
