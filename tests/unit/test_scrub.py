"""What is sealed is read again, and what is damaged there is found, and told for what it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from pxrs_ray.files import Files
from pxrs_ray.log import scrub as scrubbing
from pxrs_ray.log.partition_log import PartitionLog
from pxrs_ray.log.scrub import ROUND_REST_S, STEP_REST_S, Damaged, Scrub
from pxrs_ray.model import QueuePartition
from tests.logs import NOW_MS, put
from tests.replica_logs import TINY, opened

PLACE = ("q", 0)


def filled(folder: Path) -> dict[QueuePartition, PartitionLog]:
    """A log of several sealed segments."""
    log = opened(folder, TINY)
    for sequence in range(60):
        put(log, sequence)
    log.sync()
    assert len(log.sealed()) > 3
    return {PLACE: log}


def rot(log: PartitionLog, number: int, position: int = 300) -> Path:
    """Flip a bit in a sealed segment."""
    path = log.sealed()[number].path
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)
    return path


def a_round(scrub: Scrub, logs: dict[QueuePartition, PartitionLog]) -> list[Damaged]:
    found, steps = [], 0
    while True:
        damaged = scrub.step(logs)
        if damaged is not None:
            found.append(damaged)
        elif scrub.rest_s == ROUND_REST_S:
            return found
        else:
            assert scrub.rest_s == STEP_REST_S
        steps += 1
        assert steps < 10_000


def test_a_round_reads_every_sealed_segment_and_finds_nothing_in_whole_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs, files = filled(tmp_path), Files()
    opens: list[str] = []
    seen = files.open_to_read
    files.open_to_read = lambda path: (opens.append(path.name), seen(path))[1]  # type: ignore[method-assign]
    scrub = Scrub(files)
    assert a_round(scrub, logs) == []
    sealed = [segment.path.name for segment in logs[PLACE].sealed()]
    assert opens == sealed, "each once, and not the one that is written"
    monkeypatch.setattr(scrubbing, "PIECE_BYTES", 1)
    opens.clear()
    assert a_round(scrub, logs) == []
    assert sorted(set(opens)) == sealed and len(opens) > 2 * len(sealed), "a frame at a time"


@pytest.mark.parametrize("piece", [1, 1 << 20])
def test_each_damaged_segment_is_found_once_a_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    monkeypatch.setattr(scrubbing, "PIECE_BYTES", piece)
    logs, scrub = filled(tmp_path), Scrub(Files())
    bases = [logs[PLACE].sealed()[number].base_offset for number in (1, 3)]
    rot(logs[PLACE], 1)
    rot(logs[PLACE], 3, -20)
    for _ in range(2):
        found = a_round(scrub, logs)
        assert [one.base_offset for one in found] == bases
        assert all(scrub.is_so(one, logs) and "damaged" in one.reason for one in found)


def test_what_was_dropped_or_mended_meanwhile_is_not_damaged(tmp_path: Path) -> None:
    logs, scrub = filled(tmp_path), Scrub(Files())
    log = logs[PLACE]
    path, whole = rot(log, 0), log.sealed()[0].path
    [found] = a_round(scrub, logs)
    data = bytearray(path.read_bytes())
    data[300] ^= 1
    whole.write_bytes(data)
    assert not scrub.is_so(found, logs)
    rot(log, 0)
    assert scrub.is_so(found, logs)
    log.sealed()[0].path.unlink()
    assert not scrub.is_so(found, logs) and a_round(scrub, logs) == []
    log.advance(log.end_offset)  # type: ignore[attr-defined]
    log.truncate_before(log.sealed()[2].base_offset, NOW_MS)
    assert not scrub.is_so(found, logs) and not scrub.is_so(found, {})
    log.abandon()
    assert a_round(scrub, logs) == []
