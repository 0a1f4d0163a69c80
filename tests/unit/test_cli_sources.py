"""Where `pxrs produce` gets messages from."""

from __future__ import annotations

import io
import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pxrs_ray.cli._sources import Names, format_of, header, rows, texts
from pxrs_ray.cli.tail import json_line
from pxrs_ray.errors import UsageError
from pxrs_ray.model import Message

Pairs = list[tuple[bytes | None, bytes]]


def read(
    path: Path | str, kind: str, key: str | None = None, separator: str | None = None
) -> Pairs:
    found = rows(str(path), kind, key, separator, Names())
    return [pair for some in found for pair in zip(some.keys, some.payloads, strict=True)]


def test_texts_take_their_key_from_before_the_separator() -> None:
    [found] = texts(["a7:hello", "plain", ":x"], "k", ":")
    assert found.keys == [b"a7", b"k", b""] and found.payloads == [b"hello", b"plain", b"x"]
    assert found.scopes == [None] * 3


def test_bytes_that_are_no_text_arrive_as_they_were() -> None:
    [found] = texts([b"\xff\xfe".decode(errors="surrogateescape")], None, None)
    assert found.payloads == [b"\xff\xfe"]
    with pytest.raises(UsageError, match="is no text"):
        list(texts(["\ud800"], None, None))


def test_a_column_of_scopes_feeds_labels(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text('{"payload": "1", "kind": "gpu"}\n{"payload": "2"}\n')
    [found] = rows(str(path), "jsonl", None, None, Names(scope="kind"))
    assert found.scopes == ["gpu", None]


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


# --- what `pxrs tail --json` prints can be sent again ---------------------------------------------

NAMES = st.text(max_size=9)
BYTES = st.binary(max_size=9) | st.sampled_from([b"base64:", b"base64:aGk=", b"\xff", b""])
MESSAGES = st.builds(
    Message,
    st.just(0),
    st.just(0),
    st.none() | BYTES,
    BYTES,
    st.integers(0, 2**40),
    st.lists(st.tuples(NAMES, BYTES), max_size=3).map(tuple),
    st.none() | st.text(min_size=1, max_size=9),
)


@given(st.lists(MESSAGES, min_size=1, max_size=4))
def test_what_tail_prints_is_sent_again_as_it_was(messages: list[Message]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder, "m.jsonl")
        path.write_text("".join(json_line(message) + "\n" for message in messages))
        [found] = rows(str(path), "jsonl", None, None, Names())
    assert found.keys == [message.key for message in messages]
    assert found.payloads == [message.payload for message in messages]
    assert found.timestamps_ms == [message.timestamp_ms for message in messages]
    assert found.headers == [message.headers for message in messages]
    assert found.ids == [message.id for message in messages]


def test_a_text_that_only_begins_like_ours_is_itself(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text('{"payload": "base64:not!"}\n')
    assert read(path, "jsonl") == [(None, b"base64:not!")]


def test_a_row_without_a_payload_column_is_the_payload_and_no_header_of_it_is_taken(
    tmp_path: Path,
) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text('{"headers": {"a": "b"}, "id": 7}\n')
    [found] = rows(str(path), "jsonl", None, None, Names())
    assert found.payloads == [b'{"headers": {"a": "b"}, "id": 7}']
    assert found.headers == [()] and found.ids == [None]


def test_columns_of_csv_and_headers_as_an_object(tmp_path: Path) -> None:
    comma, jsonl = tmp_path / "m.csv", tmp_path / "m.jsonl"
    comma.write_text("payload,timestamp_ms,id\n1,1700000000000,a\n2,,\n")
    [found] = rows(str(comma), "csv", None, None, Names())
    assert found.timestamps_ms == [1_700_000_000_000, None] and found.ids == ["a", None]
    jsonl.write_text('{"payload": "1", "headers": {"trace": "7", "n": 8}}\n')
    [found] = rows(str(jsonl), "jsonl", None, None, Names())
    assert found.headers == [(("trace", b"7"), ("n", b"8"))]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ('{"payload": "1", "timestamp_ms": "noon"}', "milliseconds since 1970, not 'noon'"),
        ('{"payload": "1", "timestamp_ms": true}', "milliseconds since 1970"),
        ('{"payload": "1", "headers": "a=b"}', "an object, or a list of pairs"),
        ('{"payload": "1", "headers": [["a"]]}', "a name and a value"),
        ('{"payload": "1", "headers": 7}', "message 2"),
    ],
)
def test_a_column_that_is_none_is_refused_with_its_row(
    tmp_path: Path, row: str, words: str
) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text('{"payload": "0"}\n' + row + "\n")
    with pytest.raises(UsageError, match=words) as refused:
        list(rows(str(path), "jsonl", None, None, Names()))
    assert "message 2" in str(refused.value)


def test_a_header_of_the_command_line() -> None:
    assert header("trace=a=b") == ("trace", b"a=b") and header("empty=") == ("empty", b"")
    for wrong in ("trace", "=b", ""):
        with pytest.raises(UsageError, match="name=value"):
            header(wrong)
