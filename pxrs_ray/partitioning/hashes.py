"""The hash functions by name: of one key, and of a whole Arrow column.

Rules of this file: `hash_key` is the definition and `hash_column` equals it, key by key. Every
hash is a signed 64-bit integer. A key is str, taken as UTF-8, or bytes; equal text and bytes
hash alike. Where a C function beats numpy (long keys, few of a length) it is called key by key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from pxrs_ray.errors import UsageError
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import HashName
from pxrs_ray.partitioning import scalar_hashes, vector_hashes
from pxrs_ray.partitioning.key_columns import (
    Ints,
    KeyBytes,
    KeyColumn,
    Rows,
    key_columns,
    runs_of,
)
from pxrs_ray.suggest import pick

Key = str | bytes

# Spark's seed. The hashes that have no seed (sha256, crc32, java) ignore what is given.
SEED = 42


@dataclass(frozen=True, slots=True)
class HashFunction:
    """One way to hash: one key, and many of one length. `native` when `one` is a C function."""

    name: HashName
    one: Callable[[bytes, int], int]
    many: Callable[[KeyBytes, int], Ints] | None
    native: bool = False


HASHES: Mapping[str, HashFunction] = {
    function.name.value: function
    for function in (
        HashFunction(HashName.XXH64, scalar_hashes.xxh64, vector_hashes.xxh64, native=True),
        HashFunction(HashName.MURMUR3_128, scalar_hashes.murmur3_128, vector_hashes.murmur3_128),
        HashFunction(HashName.MURMUR3_32, scalar_hashes.murmur3_32, vector_hashes.murmur3_32),
        HashFunction(HashName.SHA256, scalar_hashes.sha256, None, native=True),
        HashFunction(HashName.CRC32, scalar_hashes.crc32, vector_hashes.crc32, native=True),
        HashFunction(HashName.JAVA, scalar_hashes.java, vector_hashes.java),
    )
}


def hash_key(key: Key, name: str = "xxh64", seed: int = SEED) -> int:
    """The hash of one key. Raises UsageError for an unknown hash, or text that is not Unicode."""
    return pick("hash", name, HASHES).one(key_bytes(key), seed)


def hash_column(column: Any, name: str = "xxh64", seed: int = SEED) -> Ints:
    """The hash of every key of an Arrow array or chunked array; a null gives that of b''."""
    function = pick("hash", name, HASHES)
    parts = []
    for keys in key_columns(column):
        part = np.empty(len(keys), np.int64)
        for rows, hashes in hash_runs(keys, function, seed):
            part[rows] = hashes
        parts.append(part)
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def hash_runs(keys: KeyColumn, function: HashFunction, seed: int) -> Iterator[tuple[Rows, Ints]]:
    """The hashes of a column piece by piece, each with its rows, while they are in the cache."""
    if function.many is None or (function.native and _loop_is_faster(keys)):
        one = function.one
        yield slice(None), np.fromiter((one(key, seed) for key in keys.each()), np.int64)
        return
    for rows, run in runs_of(_utf16(keys) if function.name is HashName.JAVA else keys):
        yield rows, function.many(run, seed)


def key_bytes(key: Key) -> bytes:
    """What is hashed and stored of a key. Raises UsageError for what is not str or bytes."""
    if isinstance(key, bytes):
        return key
    if not isinstance(key, str):
        raise UsageError(f"a key is str, bytes or None, not {type(key).__name__}")
    try:
        return key.encode()
    except UnicodeEncodeError:
        raise UsageError(
            f"key {key!r} holds a lone surrogate, which has no UTF-8 form: "
            "clean the text, or pass bytes"
        ) from None


def _loop_is_faster(keys: KeyColumn) -> bool:
    # A numpy step has a fixed price, paid for each length; long keys take many steps.
    if len(keys) == 0:
        return True
    lengths = np.diff(keys.offsets)
    width = int(lengths.mean())
    different = int(lengths.max() - lengths.min()) + 1
    return width > 300 or len(keys) < different * (100 + 4 * width)


def _utf16(keys: KeyColumn) -> KeyColumn:
    """The same keys as UTF-16 units. Raises UsageError when one of them is not UTF-8."""
    first = int(keys.offsets[0])
    blob = keys.blob[first : int(keys.offsets[-1])]
    starts = keys.offsets.astype(np.int64) - first
    if (blob < 0x80).all():
        return KeyColumn(blob.astype("<u2").view(np.uint8), 2 * starts, keys.valid)
    # Valid as a whole and cut at no continuation byte: then every single key is valid.
    inside = starts[:-1][np.diff(starts) > 0]
    if ((blob[inside] & 0xC0) == 0x80).any():
        raise UsageError("hash 'java' is defined on text, and this column holds binary keys")
    units = np.frombuffer(scalar_hashes.utf16(blob.tobytes()), np.uint8)
    # A character takes one unit, of two bytes, and those of four bytes take two.
    sizes = 2 * ((blob & 0xC0) != 0x80).view(np.int8) + 2 * (blob >= 0xF0).view(np.int8)
    ends = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
    return KeyColumn(units, ends[starts], keys.valid)
