"""Reads the messages of `pxrs produce`: columns, as `Producer.send_batch` takes them.

Rules of this file. A file is read piece by piece, never whole. A row without the payload column is
sent as one JSON object; values that are not text are written as JSON writes them. A row with a
payload column is a message: its columns `timestamp_ms`, `headers` and `id` are the message's, as
`pxrs tail --json` writes them, and a text 'base64:...' of a JSON line is the bytes it stands for.
"""

from __future__ import annotations

import base64
import csv
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple

from pxrs_ray.cli._show import BASE64
from pxrs_ray.codec import from_json
from pxrs_ray.errors import UsageError
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.supervision.restart_rules import told

HeaderPairs = tuple[tuple[str, bytes], ...]

CHUNK_ROWS = 10_000
FORMATS = ("lines", "jsonl", "csv", "parquet")
STDIN = "-"


class Row(NamedTuple):
    """One message to send. What is None, or no header, is left to the command's options."""

    key: bytes | None
    payload: bytes
    scope: str | None = None
    timestamp_ms: int | None = None
    headers: HeaderPairs = ()
    id: str | None = None


class Columns(NamedTuple):
    """Some messages to send, a list for each field of `Row`."""

    keys: list[bytes | None]
    payloads: list[bytes]
    scopes: list[str | None]
    timestamps_ms: list[int | None]
    headers: list[HeaderPairs]
    ids: list[str | None]


@dataclass(frozen=True, slots=True)
class Names:
    """What the columns of a file are called."""

    key: str = "key"
    payload: str = "payload"
    scope: str | None = None


def format_of(path: str, wanted: str | None) -> str:
    """The format of a file: the given one, or by its ending; lines otherwise."""
    if wanted is not None:
        if wanted not in FORMATS:
            raise UsageError(f"--format is one of {', '.join(FORMATS)}, not {wanted!r}")
        return wanted
    suffix = Path(path).suffix.lstrip(".").lower()
    return {"ndjson": "jsonl", "json": "jsonl"}.get(
        suffix, suffix if suffix in FORMATS else "lines"
    )


def texts(lines: Iterable[str], key: str | None, separator: str | None) -> Iterator[Columns]:
    """Payloads as text; the part before `separator` is the key, otherwise `key` is."""
    fixed = _raw(key) if key is not None else None

    def pair(line: str) -> Row:
        if separator:
            before, found, after = line.partition(separator)
            if found:
                return Row(_raw(before), _raw(after))
        return Row(fixed, _raw(line))

    return _columns(pair(line) for line in lines)


def rows(
    path: str,
    kind: str,
    key: str | None,
    separator: str | None,
    names: Names,
) -> Iterator[Columns]:
    """The rows of a file of one of FORMATS; '-' is stdin. Raises UsageError with file and line."""
    if kind == "parquet":
        yield from _columns(_messages(path, _parquet(path), key, names))
        return
    with _opened(path) as stream:
        if kind == "lines":
            yield from texts((line.rstrip("\r\n") for line in stream), key, separator)
        else:
            found = _jsonl(path, stream) if kind == "jsonl" else csv.DictReader(stream)
            yield from _columns(_messages(path, found, key, names))


@contextmanager
def _opened(path: str) -> Iterator[IO[str]]:
    if path == STDIN:
        yield sys.stdin
        return
    try:
        with Path(path).open(encoding="utf-8", newline="") as stream:
            yield stream
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from None


def _jsonl(path: str, stream: IO[str]) -> Iterator[Mapping[str, Any]]:
    for number, line in enumerate(stream, start=1):
        if not line.strip():
            continue
        try:
            row = from_json(line)
        except ValueError as error:
            raise UsageError(f"{path}:{number}: is not JSON: {error}") from None
        if not isinstance(row, dict):
            raise UsageError(f"{path}:{number}: each line must be a JSON object")
        yield row


def _parquet(path: str) -> Iterator[Mapping[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        for batch in pq.ParquetFile(path).iter_batches(CHUNK_ROWS):
            batch.validate(full=True)
            yield from batch.to_pylist()
    except (OSError, ValueError, pa.ArrowException) as error:
        raise UsageError(f"{path}: cannot be read: {told(error, 200)}") from None


def _messages(
    path: str, found: Iterable[Mapping[str, Any]], key: str | None, names: Names
) -> Iterator[Row]:
    fixed = _raw(key) if key is not None else None
    for number, row in enumerate(found, start=1):
        named = row.get(names.key)
        scope = row.get(names.scope) if names.scope is not None else None
        plain = Row(
            fixed if named is None else _bytes(named),
            _bytes(row[names.payload] if names.payload in row else dict(row)),
            None if scope is None else str(scope),
        )
        if names.payload not in row:
            yield plain
            continue
        try:
            yield plain._replace(
                timestamp_ms=_time_of(row.get("timestamp_ms")),
                headers=_headers_of(row.get("headers")),
                id=str(row["id"]) if row.get("id") not in (None, "") else None,
            )
        except (TypeError, ValueError) as error:
            raise UsageError(f"{path}, message {number}: {error}") from None


def _time_of(value: Any) -> int | None:
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not str(value).lstrip("-").isdecimal():
        raise ValueError(f"timestamp_ms is milliseconds since 1970, not {value!r}"[:200])
    return int(value)


def _headers_of(value: Any) -> HeaderPairs:
    if value is None or value == "":
        return ()
    pairs = value.items() if isinstance(value, Mapping) else value
    if isinstance(pairs, str):
        raise ValueError("headers are an object, or a list of pairs")
    made = []
    for pair in pairs:
        if len(pair) != 2 or not isinstance(pair[0], str):
            raise ValueError(f"a header is a name and a value, not {pair!r}"[:200])
        made.append((pair[0], _bytes(pair[1])))
    return tuple(made)


def header(text: str) -> tuple[str, bytes]:
    """A header as people write it: name=value. Raises UsageError."""
    name, found, value = text.partition("=")
    if not found or not name:
        raise UsageError(f"a header is written name=value, not {text[:50]!r}")
    return name, _raw(value)


def _bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return of_text(value)
    return _raw(json.dumps(value, default=str))


def of_text(text: str) -> bytes:
    """The bytes that `text_of` has shown so."""
    if text.startswith(BASE64):
        try:
            return base64.b64decode(text.removeprefix(BASE64), validate=True)
        except ValueError:
            pass  # nobody has shown bytes so: it is the text itself
    return _raw(text)


def _raw(text: str) -> bytes:
    """The bytes that were given: what of them was no UTF-8 is in `text` as lone surrogates."""
    try:
        return text.encode(errors="surrogateescape")
    except UnicodeEncodeError as error:
        raise UsageError(f"{text[:50]!a} is no text: {error.reason}") from None


def _columns(found: Iterable[Row]) -> Iterator[Columns]:
    found = iter(found)
    while chunk := list(islice(found, CHUNK_ROWS)):
        yield Columns(*(list(column) for column in zip(*chunk, strict=True)))
