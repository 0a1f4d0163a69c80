"""External queues: files and what every source promises; Redis is tested on a real server."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from pxrs_ray.config import QueueConfig
from pxrs_ray.errors import ConfigError, NotFound, UsageError
from pxrs_ray.partitioning import PartitioningSpec
from pxrs_ray.sources import Source, SourceRecord, SourceSpec, open_source
from pxrs_ray.sources.file import FileSource
from pxrs_ray.sources.redis import entry_of, offset_of


def test_lines_are_messages_and_their_numbers_offsets(tmp_path: Path) -> None:
    path = tmp_path / "orders.jsonl"
    path.write_text('{"account": "a"}\n{"account": 7}\nnot json\n{"half')
    source = open_source(f"file://{path}?key=account")
    assert source.end() == 3
    found = source.read(0, 10, 0)
    assert [(r.offset, r.key) for r in found] == [(0, b"a"), (1, b"7"), (2, None)]
    assert found[0].payload == b'{"account": "a"}'
    assert source.read(3, 10, 0) == []
    with path.open("a") as file:
        file.write('": 1}\n')
    assert [(r.offset, r.payload) for r in source.read(3, 10, 1_000)] == [(3, b'{"half": 1}')]
    source.close()


def test_any_line_of_a_long_file_is_found(tmp_path: Path) -> None:
    path = tmp_path / "long"
    path.write_text("".join(f"line {n}\n" for n in range(5_500)))
    source = FileSource(path)
    for offset in (0, 999, 1_000, 1_001, 5_499, 17):
        assert source.read(offset, 1, 0)[0].payload == b"line %d" % offset
    assert [r.offset for r in source.read(5_498, 10, 0)] == [5_498, 5_499]
    source.close()


def test_entries_of_a_stream_have_offsets_in_their_order() -> None:
    ids = ["0-1", "5-0", "5-1", "1690000000000-0", "1690000000000-1048575", "1690000000001-0"]
    offsets = [offset_of(entry) for entry in ids]
    assert offsets == sorted(offsets) and [entry_of(offset) for offset in offsets] == ids
    assert offset_of(b"8000000000000-0") < 1 << 63
    with pytest.raises(UsageError):
        offset_of("5-1048576")


class Own(Source):
    """A user's own source."""

    def end(self) -> int:
        return 1

    def read(self, offset: int, records_max: int, wait_ms: int) -> Sequence[SourceRecord]:
        return [SourceRecord(0, b"k", b"own")][offset:]

    def close(self) -> None: ...


def not_a_source() -> int:
    return 3


def test_a_function_of_the_users_own_makes_a_source() -> None:
    assert open_source("tests.unit.test_sources:Own").read(0, 1, 0)[0].payload == b"own"


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("tests.unit.test_sources:nothing", "neither file"),
        ("no.such.module:f", "neither file"),
        ("tests.unit.test_sources:not_a_source", "returned 3"),
        ("redis://host:1/0", "name the stream"),
        ("redis://host:1/0?stream=s&passwort=x", "no option 'passwort'"),
    ],
)
def test_what_is_no_source_is_told(address: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        open_source(address)


def test_a_file_that_is_not_there_is_told() -> None:
    with pytest.raises(NotFound, match="on this node"):
        open_source("file:///nowhere/at/all")


def test_every_reader_puts_a_key_into_the_same_virtual_partition() -> None:
    spec = QueueConfig(partitions=8, source="file:///x?key=k").source_spec()
    assert spec == SourceSpec("file:///x?key=k", PartitioningSpec(8))
    one, other = spec.spread.partitioner(), spec.spread.partitioner()
    keys = [b"key-%d" % n for n in range(200)]
    assert [one.partition(key) for key in keys] == [other.partition(key) for key in keys]
    assert {one.partition(key) for key in keys} == set(range(8))
    with pytest.raises(ConfigError):
        QueueConfig(source="ftp://x")


def promises(source: Source, add: Callable[[int], None]) -> None:
    """What every source must do, whatever it reads from; `add` appends so many messages."""
    assert source.end() == 0 and list(source.read(0, 10, 0)) == []
    add(25)
    every = list(source.read(0, 100, 1_000))
    offsets = [record.offset for record in every]
    assert len(every) == 25 and offsets == sorted(set(offsets)) and source.end() > offsets[-1]
    for at in (0, 7, 24):
        assert list(source.read(offsets[at], 3, 0)) == every[at : at + 3]
    assert list(source.read(offsets[3] + 1, 2, 0)) == every[4:6]
    assert list(source.read(source.end(), 3, 10)) == []
    add(1)
    [newest] = source.read(offsets[-1] + 1, 10, 1_000)
    assert newest.offset > offsets[-1]


@pytest.fixture
def lines(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "lines"
    path.touch()
    yield path


def test_files_keep_the_promises_of_a_source(lines: Path) -> None:
    def add(count: int) -> None:
        with lines.open("a") as file:
            file.writelines(f"{n}\n" for n in range(count))

    source = FileSource(lines)
    promises(source, add)
    source.close()


@pytest.mark.parametrize(
    "address",
    ["redis://user:hunter2@host/0?stream=orders", "redis://host/0?stream=orders&password=hunter2"],
)
def test_a_password_is_named_and_never_kept(address: str) -> None:
    with pytest.raises(ConfigError, match="password_env=NAME") as refused:
        QueueConfig(source=address)
    assert "hunter2" not in str(refused.value)


def test_a_named_password_is_looked_up_where_the_source_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text("hunter2\n")
    monkeypatch.setenv("ORDERS_PASSWORD", "hunter2")
    for reference in ("password_env=ORDERS_PASSWORD", f"password_file={tmp_path}/secret"):
        source = open_source(f"redis://user@host:1/0?stream=orders&{reference}")
        told: dict[str, object] = source._client.connection_pool.connection_kwargs  # type: ignore[attr-defined]
        assert (told["username"], told["password"]) == ("user", "hunter2")
        source.close()
    with pytest.raises(ConfigError, match="no variable 'NOT_THERE'"):
        open_source("redis://host:1/0?stream=orders&password_env=NOT_THERE")
