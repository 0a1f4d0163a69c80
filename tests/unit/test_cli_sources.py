"""Where `pxrs produce` gets messages from."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pxrs_ray.cli._sources import Names, format_of, rows, texts
from pxrs_ray.errors import UsageError

Pairs = list[tuple[bytes | None, bytes]]


def read(
    path: Path | str, kind: str, key: str | None = None, separator: str | None = None
) -> Pairs:
    found = rows(str(path), kind, key, separator, Names())
    return [pair for keys, payloads, _ in found for pair in zip(keys, payloads, strict=True)]


def test_texts_take_their_key_from_before_the_separator() -> None:
    ((keys, payloads, scopes),) = texts(["a7:hello", "plain", ":x"], "k", ":")
    assert keys == [b"a7", b"k", b""] and payloads == [b"hello", b"plain", b"x"]
    assert scopes == [None] * 3


def test_bytes_that_are_no_text_arrive_as_they_were() -> None:
    ((_, payloads, _),) = texts([b"\xff\xfe".decode(errors="surrogateescape")], None, None)
    assert payloads == [b"\xff\xfe"]
    with pytest.raises(UsageError, match="is no text"):
        list(texts(["\ud800"], None, None))


def test_a_column_of_scopes_feeds_labels(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text('{"payload": "1", "kind": "gpu"}\n{"payload": "2"}\n')
    ((_, _, scopes),) = rows(str(path), "jsonl", None, None, Names(scope="kind"))
    assert scopes == ["gpu", None]


def test_lines_come_from_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("one\r\ntwo\n\n"))
    assert read("-", "lines") == [(None, b"one"), (None, b"two"), (None, b"")]


def test_json_lines_csv_and_parquet_give_the_same(tmp_path: Path) -> None:
    jsonl, comma, parquet = (tmp_path / name for name in ("m.jsonl", "m.csv", "m.parquet"))
    jsonl.write_text('{"key": "a", "payload": "1"}\n\n{"key": "b", "payload": "2"}\n')
    comma.write_text("key,payload\na,1\nb,2\n")
    pq.write_table(pa.table({"key": ["a", "b"], "payload": ["1", "2"]}), parquet)
    wanted = [(b"a", b"1"), (b"b", b"2")]
    for path in (jsonl, comma, parquet):
        assert read(path, format_of(str(path), None)) == wanted


def test_a_row_without_a_payload_column_is_sent_whole(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text('{"key": 7, "amount": 3}\n')
    ((key, payload),) = read(path, "jsonl")
    assert key == b"7" and json.loads(payload) == {"key": 7, "amount": 3}


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("m.jsonl", '{"a": 1}\nnonsense\n', "m.jsonl:2: is not JSON"),
        ("m.jsonl", "[1]\n", "m.jsonl:1: each line must be"),
        ("m.parquet", "no", "m.parquet: cannot be read"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(
    tmp_path: Path, name: str, text: str, told: str
) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(UsageError, match=told):
        read(path, format_of(name, None))


def test_an_absent_file_and_an_unknown_format_are_told() -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read("/nowhere/m.txt", "lines")
    with pytest.raises(UsageError, match="not 'xml'"):
        format_of("m.xml", "xml")
    assert format_of("m.txt", None) == "lines" == format_of("-", None)
