"""Where `pxrs produce` gets messages from: each source yields columns of keys and payloads.

Rules of this file: a file is read piece by piece, never whole. A row without the payload column is
sent as one JSON object; values that are not text are written as JSON writes them.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any

from pxrs_ray.errors import UsageError

Columns = tuple[list[bytes | None], list[bytes]]
Pair = tuple[bytes | None, bytes]

CHUNK_ROWS = 10_000
FORMATS = ("lines", "jsonl", "csv", "parquet")
STDIN = "-"


def format_of(path: str, wanted: str | None) -> str:
    """The format of a file: as it is told, or by its ending; lines otherwise."""
    if wanted is not None:
        if wanted not in FORMATS:
            raise UsageError(f"--format is one of {', '.join(FORMATS)}, not {wanted!r}")
        return wanted
    suffix = Path(path).suffix.lstrip(".").lower()
    return {"ndjson": "jsonl", "json": "jsonl"}.get(
        suffix, suffix if suffix in FORMATS else "lines"
    )


def texts(lines: Iterable[str], key: str | None, separator: str | None) -> Iterator[Columns]:
    """Payloads as text; what stands before `separator` is the key, otherwise `key` is."""
    fixed = key.encode() if key is not None else None

    def pair(line: str) -> Pair:
        if separator:
            before, found, after = line.partition(separator)
            if found:
                return before.encode(), after.encode()
        return fixed, line.encode()

    return _columns(pair(line) for line in lines)


def rows(
    path: str,
    kind: str,
    key: str | None,
    separator: str | None,
    key_column: str,
    payload_column: str,
) -> Iterator[Columns]:
    """The rows of a file of one of FORMATS; '-' is stdin. Raises UsageError with file and line."""
    if kind == "parquet":
        yield from _columns(_pairs(_parquet(path), key, key_column, payload_column))
        return
    with _opened(path) as stream:
        if kind == "lines":
            yield from texts((line.rstrip("\r\n") for line in stream), key, separator)
        else:
            found = _jsonl(path, stream) if kind == "jsonl" else csv.DictReader(stream)
            yield from _columns(_pairs(found, key, key_column, payload_column))


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
            row = json.loads(line)
        except ValueError as error:
            raise UsageError(f"{path}:{number}: is not JSON: {error}") from None
        if not isinstance(row, dict):
            raise UsageError(f"{path}:{number}: each line must be a JSON object")
        yield row


def _parquet(path: str) -> Iterator[Mapping[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
    except (OSError, pa.ArrowInvalid) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from None
    for batch in file.iter_batches(CHUNK_ROWS):
        yield from batch.to_pylist()


def _pairs(
    found: Iterable[Mapping[str, Any]], key: str | None, key_column: str, payload_column: str
) -> Iterator[Pair]:
    fixed = key.encode() if key is not None else None
    for row in found:
        named = row.get(key_column)
        payload = row[payload_column] if payload_column in row else dict(row)
        yield fixed if named is None else _bytes(named), _bytes(payload)


def _bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text.encode()


def _columns(pairs: Iterable[Pair]) -> Iterator[Columns]:
    pairs = iter(pairs)
    while chunk := list(islice(pairs, CHUNK_ROWS)):
        yield [key for key, _ in chunk], [payload for _, payload in chunk]
