"""Logs looked at from outside, with the library and with `pxrs log`; nothing is changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from pxrs_ray.cli.log import app
from pxrs_ray.errors import NotFound
from pxrs_ray.log.inspect import find_logs, read_log, read_log_as_arrow, summarise, verify
from pxrs_ray.log.partition_log import PartitionLog
from tests.logs import NOW_MS, SMALL, open_log, put


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two logs: one of 60 messages over several segments, in use; one closed and empty."""
    for partition in (0, 1):
        log = PartitionLog.open(
            tmp_path / "q" / f"p{partition:05d}", "q", partition, SMALL, now_ms=NOW_MS
        )
        log.confirm(0, NOW_MS)
        for sequence in range(30 if partition == 0 else 0):
            put(log, sequence, [b"%d" % sequence, b"x" * 100])
        log.passed("g", 5 if partition == 0 else 0)
        if partition == 0:
            log.abandon()
        else:
            log.close()
    return tmp_path


def files_of(data: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}


def pxrs_log(*arguments: object, status: int = 0) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == status, result.output
    return result.stdout


def test_a_summary_tells_what_is_there(data: Path) -> None:
    before = files_of(data)
    first, second = (summarise(path) for path in find_logs(data))
    assert (first.queue, first.partition, first.start_offset, first.end_offset) == ("q", 0, 0, 60)
    assert first.segments > 1 and first.groups == {"g": 5} and first.problem == ""
    assert first.last_timestamp_ms == NOW_MS
    assert (second.end_offset, second.last_timestamp_ms) == (0, None)
    assert files_of(data) == before, "looking changed something"
    (data / "empty").mkdir()
    with pytest.raises(NotFound, match="no log in"):
        find_logs(data / "empty")


def test_a_log_is_read_from_and_to_any_offset(data: Path) -> None:
    path = find_logs(data)[0]
    for first, end in ((0, None), (7, 12), (59, 60), (60, None), (0, 0)):
        offsets = [m.offset for batch in read_log(path, first, end) for m in batch]
        assert offsets == list(range(60))[first:end]
    table = read_log_as_arrow(path, 10, 20).read_all()
    assert table.column("offset").to_pylist() == list(range(10, 20))
    assert pa.types.is_binary(table.schema.field("payload").type)


def test_a_running_log_can_be_looked_at(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, 0, [b"a"])
    assert [m.payload for batch in read_log(tmp_path) for m in batch] == [b"a"]
    log.close()


def test_damage_is_found_and_named(data: Path) -> None:
    path = find_logs(data)[0]
    assert verify(path)[2] == []
    segment = sorted(path.glob("*.seg"))[0]
    content = bytearray(segment.read_bytes())
    content[-10] ^= 1
    segment.write_bytes(content)
    before = files_of(data)
    _, messages, (damage,) = verify(path)
    assert damage.path == segment and 0 < messages < 60
    output = json.loads(pxrs_log("verify", data, "--json", status=1))
    assert output[0]["damages"][0]["position"] == damage.position
    assert "DAMAGED" in pxrs_log("dump", path, "--frames")
    assert files_of(data) == before


def test_the_commands(data: Path) -> None:
    listed: Any = json.loads(pxrs_log("ls", data, "--json"))
    assert [(log["partition"], log["end_offset"]) for log in listed] == [(0, 60), (1, 0)]
    assert "g@5" in pxrs_log("ls", data)
    lines = pxrs_log("dump", data, "--from", 4, "-n", 2).splitlines()
    assert [line.split()[0] for line in lines] == ["P0@4", "P0@5"]
    told = [json.loads(line) for line in pxrs_log("dump", data, "-n", 1, "--json").splitlines()]
    assert (told[0]["offset"], told[0]["payload"]) == (0, "0")
    assert len(pxrs_log("dump", data, "--frames", "-n", 3).splitlines()) == 3
    assert "whole" in pxrs_log("verify", data)
    assert [line.split()[0] for line in pxrs_log("tail", data, "-n", 2).splitlines()] == [
        "P0@58",
        "P0@59",
    ]
