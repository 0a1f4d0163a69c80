"""`FileSource`: the lines of a file that grows. An offset is the number of a line, from 0.

Rules of this file: only lines that end are messages, so one that is being written is not read in
half. Lines are never changed or removed. Where every thousandth line begins is remembered.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

from pxrs_ray.errors import NotFound
from pxrs_ray.model import Offset
from pxrs_ray.sources.source import Source, SourceRecord

MARK_EVERY = 1_000
LOOK_EVERY_S = 0.02


class FileSource(Source):
    """See the rules at the head of this file. `key` is a field of lines that are JSON objects."""

    def __init__(self, path: Path, key: str | None = None) -> None:
        try:
            self._file = path.open("rb")
        except FileNotFoundError:
            raise NotFound(f"no file {path} on this node") from None
        self._key = key
        # Byte positions of lines 0, 1000, 2000, ...; and how far all lines are counted.
        self._marks = [0]
        self._counted = 0
        self._counted_bytes = 0

    def end(self) -> Offset:
        """How many whole lines there are."""
        self._file.seek(self._counted_bytes)
        for line in self._file:
            if not line.endswith(b"\n"):
                break
            self._counted += 1
            self._counted_bytes += len(line)
            if self._counted % MARK_EVERY == 0:
                self._marks.append(self._counted_bytes)
        return self._counted

    def read(self, offset: Offset, records_max: int, wait_ms: int) -> Sequence[SourceRecord]:
        """The lines from number `offset` on, without their ends."""
        deadline_s = time.monotonic() + wait_ms / 1_000
        while offset >= self._counted and self.end() <= offset:
            if time.monotonic() >= deadline_s:
                return []
            time.sleep(LOOK_EVERY_S)
        mark = offset // MARK_EVERY
        self._file.seek(self._marks[mark])
        for _ in range(offset - mark * MARK_EVERY):
            self._file.readline()
        count = min(records_max, self._counted - offset)
        return [self._record(number) for number in range(offset, offset + count)]

    def _record(self, number: Offset) -> SourceRecord:
        line = self._file.readline().rstrip(b"\r\n")
        try:
            return SourceRecord(number, _field(line, self._key), line)
        except (RecursionError, MemoryError) as error:
            # A line like no other, or one that is meant to do this: its key cannot be known.
            problem = f"its field {self._key!r} cannot be read: {type(error).__name__}"
            return SourceRecord(number, None, line, error=problem)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _field(line: bytes, name: str | None) -> bytes | None:
    """A field of a JSON object as bytes; None where the line has none."""
    if name is None:
        return None
    try:
        value = json.loads(line)[name]
    except (ValueError, KeyError, TypeError):
        return None
    # JSON has half characters too ("\ud800"): each is kept as bytes of its own.
    text = value if isinstance(value, str) else json.dumps(value)
    return text.encode(errors="surrogatepass")
