"""Checks a source's records: which can be given to a handler, and what happens to the others. Pure.

Rules of this file. One bad record never takes others down: it becomes a message of its own, with
its bytes as far as there are any, and with the error in a header. Its handler is not called; it
fails, and the group's failure policy applies to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pxrs_ray.data.message_form import TIMESTAMP_MS_MAX
from pxrs_ray.errors import BadRecord
from pxrs_ray.model import Message
from pxrs_ray.sources.source import SourceRecord
from pxrs_ray.supervision.restart_rules import told

ERROR_HEADER = "pxrs-source-error"
OFFSET_MAX = 1 << 62


def sound(record: SourceRecord) -> SourceRecord:
    """The record, if it can be a message; otherwise one that says what is wrong with it.

    Raises BadRecord when even its offset is none: then nobody could pass it.
    """
    offset: Any = record.offset
    if type(offset) is not int or not 0 <= offset <= OFFSET_MAX:
        raise BadRecord(f"a record's offset is a number from 0 to 2**62, not {offset!r}")
    problem = record.error or _problem_of(record)
    if not problem:
        return record
    payload: Any = record.payload
    kept = bytes(payload) if isinstance(payload, (bytes, bytearray)) else told_bytes(payload)
    return SourceRecord(offset, None, kept, 0, ((ERROR_HEADER, problem.encode()),), problem)


def _problem_of(record: SourceRecord) -> str:
    key: Any = record.key
    payload: Any = record.payload
    stamp: Any = record.timestamp_ms
    if not isinstance(payload, bytes):
        return f"its payload is {type(payload).__name__}, not bytes"
    if key is not None and not isinstance(key, bytes):
        return f"its key is {type(key).__name__}, not bytes or None"
    if type(stamp) is not int or not 0 <= stamp <= TIMESTAMP_MS_MAX:
        return f"its timestamp_ms is {stamp!r}, not a number from 0 to 2**63 - 1"
    try:
        for name, value in record.headers:
            name.encode()
            if not isinstance(value, bytes):
                return f"its header {name!r} is {type(value).__name__}, not bytes"
    except (TypeError, ValueError, AttributeError) as error:
        return f"its headers are no pairs of str and bytes: {told(error, 200)}"
    return ""


def told_bytes(value: object) -> bytes:
    """Some bytes for what is none: its repr, as far as it has one."""
    try:
        return repr(value).encode(errors="backslashreplace")
    except Exception as error:  # noqa: BLE001 - anybody's __repr__
        return told(error).encode()


def runs(records: Sequence[SourceRecord]) -> Iterator[list[SourceRecord]]:
    """Runs of consecutive offsets; a record that is not sound is a run of its own."""
    run: list[SourceRecord] = []
    for record in records:
        apart = record.error or (run and run[-1].error)
        if run and (apart or record.offset != run[-1].offset + 1):
            yield run
            run = []
        run.append(record)
    if run:
        yield run


def refuse_unsound(message: Message | Any) -> None:
    """Raise BadRecord for a message that stands for a record that was not sound."""
    for name, value in message.headers:
        if name == ERROR_HEADER:
            raise BadRecord(value.decode(errors="backslashreplace"))
