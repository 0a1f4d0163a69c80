"""Reads the messages of `pxrs produce`: columns of keys, payloads, and tenants or labels.

Rules of this file: a file is read piece by piece, never whole. A row without
the payload column is sent as one JSON object; values that are not text are
written as JSON writes them.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any

from pxrs_ray.codec import from_json
from pxrs_ray.errors import UsageError
from pxrs_ray.supervision.restart_rules import told

Columns = tuple[list[bytes | None], list[bytes], list[str | None]]
Row = tuple[bytes | None, bytes, str | None]

CHUNK_ROWS = 10_000
FORMATS = ("lines", "jsonl", "csv", "parquet")
STDIN = "-"


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
                return _raw(before), _raw(after), None
        return fixed, _raw(line), None

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
        yield from _columns(_pairs(_parquet(path), key, names))
        return
    with _opened(path) as stream:
        if kind == "lines":
            yield from texts((line.rstrip("\r\n") for line in stream), key, separator)
        else:
            found = _jsonl(path, stream) if kind == "jsonl" else csv.DictReader(stream)
            yield from _columns(_pairs(found, key, names))


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


def _pairs(found: Iterable[Mapping[str, Any]], key: str | None, names: Names) -> Iterator[Row]:
    fixed = _raw(key) if key is not None else None
    for row in found:
        named = row.get(names.key)
        payload = row[names.payload] if names.payload in row else dict(row)
        scope = row.get(names.scope) if names.scope is not None else None
        yield (
            fixed if named is None else _bytes(named),
            _bytes(payload),
            None if scope is None else str(scope),
        )


def _bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return _raw(text)


def _raw(text: str) -> bytes:
    """The bytes that were given: what of them was no UTF-8 is in `text` as lone surrogates."""
    try:
        return text.encode(errors="surrogateescape")
    except UnicodeEncodeError as error:
        raise UsageError(f"{text[:50]!a} is no text: {error.reason}") from None


def _columns(pairs: Iterable[Row]) -> Iterator[Columns]:
    pairs = iter(pairs)
    while chunk := list(islice(pairs, CHUNK_ROWS)):
        keys, payloads, scopes = (list(column) for column in zip(*chunk, strict=True))
        yield keys, payloads, scopes
