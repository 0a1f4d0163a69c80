"""Checks the form and size of messages where they are given. Pure.

Rules of this file. A message that passes can be encoded, stored and read, and never fails later for
its form. Any other is refused with UsageError or MessageTooLarge, which names what is wrong. What
passed is ours: nothing that the caller changes afterwards changes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from pxrs_ray.data.frame import HAS_HEADERS, HAS_IDS, HEADERS_TYPE, LARGE_BYTES
from pxrs_ray.errors import MessageTooLarge, UsageError
from pxrs_ray.supervision.restart_rules import first_line

if TYPE_CHECKING:
    from pxrs_ray.data.batch import Batch

MESSAGE_OVERHEAD_BYTES = 32
HEADER_OVERHEAD_BYTES = 16
TIMESTAMP_MS_MAX = (1 << 63) - 1
COLUMN_BYTES_MAX = (1 << 31) - 1
Pairs = list[tuple[str, bytes]]
# A message's own timestamp, headers and id; how many bytes they are.
Extras = tuple[int | None, Pairs, str | None, int]
NO_EXTRAS: Extras = (None, [], None, 0)
_SURE = (pa.binary(), pa.int64())  # whatever their bytes are, they are bytes and numbers
_NOT_A_COLUMN = (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError)


def checked_text(text: str, what: str) -> str:
    """`text` as it stands. Raises UsageError for half a surrogate pair, which is no text."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise UsageError(
                f"{what} is no text: {error.reason} at {error.start}, in {text[:50]!a}; give bytes"
            ) from None
    return text


def checked_key(key: Any) -> bytes | str | None:
    """A key as columns take it."""
    if key is None or type(key) is bytes:
        return key
    if isinstance(key, str):
        return key if key.isascii() else checked_text(key, "the key").encode()
    if isinstance(key, bytes):
        return bytes(key)
    raise UsageError(f"a key is bytes, str or None, not {type(key).__name__}")


def checked_payload(payload: Any) -> bytes:
    """A payload as bytes."""
    if isinstance(payload, str):
        return checked_text(payload, "the payload").encode()
    if isinstance(payload, (bytes, bytearray, memoryview)):
        return bytes(payload)
    raise UsageError(f"a payload is bytes or str, not {type(payload).__name__}: encode it first")


def checked_extras(timestamp_ms: Any, headers: Any, message_id: Any) -> Extras:
    """A message's timestamp, headers and id, and their size."""
    if timestamp_ms is not None:
        checked_timestamp(timestamp_ms)
    pairs, size = checked_headers(headers) if headers else ([], 0)
    if message_id is not None:
        size += len(checked_name(message_id, "the id").encode())
    return timestamp_ms, pairs, message_id, size


def checked_name(name: Any, what: str) -> str:
    """A name that a message bears."""
    if not isinstance(name, str):
        raise UsageError(f"{what} is str, not {type(name).__name__}")
    return checked_text(name, what)


def checked_timestamp(timestamp_ms: Any) -> int:
    """Milliseconds since 1970, before or after."""
    if not isinstance(timestamp_ms, int) or isinstance(timestamp_ms, bool):
        raise UsageError(f"a timestamp is milliseconds as int, not {timestamp_ms!r:.50}")
    if not -TIMESTAMP_MS_MAX <= timestamp_ms <= TIMESTAMP_MS_MAX:
        raise UsageError(f"a timestamp is milliseconds since 1970: {timestamp_ms:.3e} is too far")
    return timestamp_ms


def checked_headers(headers: Any) -> tuple[Pairs, int]:
    """Headers as pairs of a name and bytes, and their size; text becomes UTF-8."""
    pairs: Iterable[Any] = headers.items() if isinstance(headers, Mapping) else headers
    found: Pairs = []
    size = 0
    try:
        for name, value in pairs:
            if type(name) is not str or not name.isascii():
                size += len(checked_name(name, "the name of a header").encode()) - len(name)
            if type(value) is not bytes:
                value = _header_value(name, value)
            found.append((name, value))
            size += len(name) + len(value) + HEADER_OVERHEAD_BYTES
    except (TypeError, ValueError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"headers are names to bytes, not {type(headers).__name__}") from None
    return found, size


def _header_value(name: str, value: Any) -> bytes:
    if isinstance(value, str):
        return checked_text(value, f"header {name!r}").encode()
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    raise UsageError(f"header {name!r} is bytes or str, not {type(value).__name__}")


def too_large(size_bytes: int, limit_bytes: int, which: str) -> MessageTooLarge:
    """The refusal of a message for its size."""
    return MessageTooLarge(
        f"{which} of {size_bytes} bytes with its headers is above message_bytes_max={limit_bytes} "
        "(partition_bytes_max bounds it too): keep large payloads elsewhere, send a reference"
    )


# ---- columns


def binary_column(column: Any, name: str) -> pa.Array:
    """Make an Arrow binary array of a list, Arrow, numpy or pandas column of bytes or str.

    Raises UsageError naming the column when its values are neither. One large value is not copied.
    """
    if type(column) is list and len(column) == 1 and type(column[0]) is bytes:
        value = column[0]
        if LARGE_BYTES <= len(value) <= COLUMN_BYTES_MAX:
            ends = pa.py_buffer(np.array([0, len(value)], np.int32))
            return pa.Array.from_buffers(pa.binary(), 1, [None, ends, pa.py_buffer(value)])
    return _column(column, pa.binary(), name, "bytes or str")


def timestamp_column(column: Any) -> pa.Array:
    """Milliseconds since 1970, of numbers or moments; nulls stay."""
    if getattr(getattr(column, "dtype", None), "kind", "") == "M":
        column = pa.array(column)
    if isinstance(column, (pa.Array, pa.ChunkedArray)) and pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False)
    return _column(column, pa.int64(), "timestamp_ms", "milliseconds as whole numbers")


def header_column(headers: Any) -> pa.Array:
    """Each row's headers, or None."""
    if isinstance(headers, (pa.Array, pa.ChunkedArray)):
        return _column(headers, HEADERS_TYPE, "headers", "names to bytes")
    try:
        pairs = [checked_headers(each)[0] if each is not None else None for each in headers]
    except TypeError:
        raise UsageError(
            f"headers are one mapping a message, not {type(headers).__name__}"
        ) from None
    return _column(pairs, HEADERS_TYPE, "headers", "names to bytes")


def id_column(ids: Any) -> pa.Array:
    """Each row's id, or None."""
    return _column(ids, pa.utf8(), "id", "str")


def scope_column(scopes: Any, rows: int) -> pa.Array | None:
    """Each row's tenant or label; None when there are none."""
    if scopes is None:
        return None
    column = _column(scopes, pa.utf8(), "scope", "str")
    if len(column) != rows:
        raise UsageError(f"{rows} messages came with {len(column)} scopes")
    return column


def _column(column: Any, kind: pa.DataType, name: str, what: str) -> pa.Array:
    try:
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        if not isinstance(column, (pa.Array, pa.ChunkedArray)):
            column = pa.array(column, kind)
        if isinstance(column, pa.ChunkedArray):
            raise UsageError(f"column {name!r} holds over 2 GiB: send it in several batches")
        found = column if column.type == kind else column.cast(kind)
        found.validate(full=kind not in _SURE)
    except UsageError:
        raise
    except _NOT_A_COLUMN as error:
        raise UsageError(f"column {name!r} must hold {what}: {first_line(error)}") from error
    return found


def batch_bytes(batch: Batch) -> int:
    """No less than its messages are together."""
    rows = batch.plain_rows
    if rows is not None:
        keys, payloads = rows
        size = sum(map(len, payloads)) + sum(len(key) for key in keys if key is not None)
        return size + MESSAGE_OVERHEAD_BYTES * len(payloads)
    headers: Any = batch.columns.column("headers") if batch.flags & HAS_HEADERS else ()
    pairs = headers.offsets[-1].as_py() - headers.offsets[0].as_py() if len(headers) else 0
    overhead = MESSAGE_OVERHEAD_BYTES * len(batch) + HEADER_OVERHEAD_BYTES * pairs
    return int(batch.columns.nbytes) + overhead


def row_sizes(batch: Batch) -> np.ndarray[Any, np.dtype[np.int64]]:
    """How many bytes each message is, counted as single ones are."""
    sizes = np.full(len(batch), MESSAGE_OVERHEAD_BYTES, np.int64)
    for column in (batch.keys, batch.payloads):
        sizes += _lengths(column)
    if batch.flags & HAS_IDS:
        sizes += _lengths(batch.columns.column("id"))
    if batch.flags & HAS_HEADERS:
        headers = batch.columns.column("headers")
        each = _lengths(headers.keys) + _lengths(headers.items) + HEADER_OVERHEAD_BYTES
        before = np.concatenate(([0], np.cumsum(each)))
        sizes += np.diff(before[headers.offsets.to_numpy()])
    return sizes


def _lengths(column: pa.Array) -> np.ndarray[Any, np.dtype[np.int64]]:
    import pyarrow.compute as pc  # here: only who sends columns needs it, and it takes its time

    lengths: np.ndarray[Any, np.dtype[np.int64]] = pc.fill_null(
        pc.binary_length(column), 0
    ).to_numpy()
    return lengths.astype(np.int64)
