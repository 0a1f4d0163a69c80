"""Arrow columns of keys as plain memory, and equally long keys side by side for numpy.

Rules of this file: no copy of the keys. A column is its bytes and n + 1 offsets; `KeyBytes` are
keys of one length in it, from which a kernel loads the word at byte `at` of every key at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pxrs_ray.errors import UsageError
from pxrs_ray.late_dataclass import dataclass

ByteArray: TypeAlias = npt.NDArray[np.uint8]
Ints: TypeAlias = npt.NDArray[np.int64]
Offsets: TypeAlias = npt.NDArray[np.signedinteger[Any]]
Rows: TypeAlias = "slice | npt.NDArray[np.intp]"

# The temporaries of a kernel over this many keys stay in a core's second-level cache.
RUN_KEYS_MAX = 8_192
# Keys of mixed lengths are sorted by length in blocks of this many: enough of each length to
# make a step of numpy worth its price, few enough for the cache.
BLOCK_KEYS = 262_144


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """Keys as memory: key i is `blob[offsets[i] : offsets[i + 1]]`; an absent key is empty.

    `valid` is True where there is a key, and None when there is one everywhere.
    """

    blob: ByteArray
    offsets: Offsets
    valid: npt.NDArray[np.bool_] | None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def each(self) -> Iterator[bytes]:
        """The keys one by one."""
        first = int(self.offsets[0])
        data = self.blob[first : int(self.offsets[-1])].tobytes()
        for start, end in pairwise((self.offsets - first).tolist()):
            yield data[start:end]


@dataclass(frozen=True, slots=True)
class KeyBytes:
    """`count` keys of `width` bytes each, at `starts`, or one after the other from `base`."""

    blob: ByteArray
    width: int
    count: int
    base: int = 0
    starts: Ints | None = None

    def load(self, at: int, kind: str) -> npt.NDArray[Any]:
        """The little-endian word of numpy type `kind` at byte `at` of each key, as a new array."""
        dtype = np.dtype("<" + kind)
        assert at + dtype.itemsize <= self.width
        if self.starts is None:
            words: npt.NDArray[Any] = np.ndarray(
                (self.count,), dtype, self.blob, self.base + at, (self.width,)
            )
            return words.astype(dtype.newbyteorder("="))
        # Every byte of the blob starts a word: overlapping, unaligned, and never copied.
        anywhere: npt.NDArray[Any] = np.ndarray(
            (len(self.blob) - dtype.itemsize + 1,), dtype, self.blob, 0, (1,)
        )
        return anywhere[self.starts + at].astype(dtype.newbyteorder("="), copy=False)

    def u64(self, at: int) -> npt.NDArray[np.uint64]:
        """The 8-byte words at byte `at`."""
        return self.load(at, "u8")

    def u32(self, at: int) -> npt.NDArray[np.uint32]:
        """The 4-byte words at byte `at`."""
        return self.load(at, "u4")

    def tail(self, at: int) -> npt.NDArray[np.uint64]:
        """The last `width` - `at` bytes (1 to 7 of them) as one little-endian number."""
        count = self.width - at
        assert 1 <= count <= 7
        if self.width >= 8:
            return self.u64(self.width - 8) >> np.uint64(8 * (8 - count))
        words = np.zeros(self.count, np.uint64)
        for size, kind in ((4, "u4"), (2, "u2"), (1, "u1")):
            if count & size:
                shift = np.uint64(8 * (at - (self.width - count)))
                words |= self.load(at, kind).astype(np.uint64) << shift
                at += size
        return words


def key_columns(column: Any) -> Iterator[KeyColumn]:
    """The chunks of an Arrow array or chunked array of strings or binaries, nulls made empty.

    Dictionaries and fixed-size binaries are unpacked. Raises UsageError for any other type.
    """
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    for chunk in chunks:
        yield _key_column(_plain(chunk))


def runs_of(column: KeyColumn) -> Iterator[tuple[Rows, KeyBytes]]:
    """Cut a column into runs of equally long keys: which of its rows, and the keys.

    Every row comes once.
    """
    lengths = np.diff(column.offsets)
    if len(lengths) == 0:
        return
    width = int(lengths[0])
    if bool((lengths == width).all()):
        for at in range(0, len(column), RUN_KEYS_MAX):
            rows = slice(at, min(at + RUN_KEYS_MAX, len(column)))
            base = int(column.offsets[at])
            yield rows, KeyBytes(column.blob, width, rows.stop - at, base=base)
        return
    narrow = lengths.astype(np.uint16) if int(lengths.max()) < 1 << 16 else lengths
    for at in range(0, len(column), BLOCK_KEYS):
        # Stable and radix for 16 bits: keys of one length stay in the order of their bytes.
        order = np.argsort(narrow[at : at + BLOCK_KEYS], kind="stable")
        ordered = narrow[at : at + BLOCK_KEYS][order]
        starts = column.offsets[at : at + len(order)][order].astype(np.int64)
        cuts = [0, *(np.flatnonzero(np.diff(ordered)) + 1).tolist(), len(order)]
        for first, end in pairwise(cuts):
            for low in range(first, end, RUN_KEYS_MAX):
                high = min(low + RUN_KEYS_MAX, end)
                keys = KeyBytes(column.blob, int(ordered[low]), high - low, starts=starts[low:high])
                yield order[low:high] + at, keys


def _plain(chunk: Any) -> Any:
    """The same keys as an array of one of the four types that are bytes and offsets."""
    kind = chunk.type
    if pa.types.is_dictionary(kind):
        return _plain(chunk.dictionary_decode())
    if pa.types.is_fixed_size_binary(kind):
        return chunk.cast(pa.binary())
    if kind in (pa.string(), pa.binary(), pa.large_string(), pa.large_binary()):
        return chunk
    if str(kind) in ("string_view", "binary_view"):
        return chunk.cast(pa.large_binary() if str(kind) == "binary_view" else pa.large_string())
    raise UsageError(f"keys must be strings or binaries, not {kind}: cast the column first")


def _key_column(chunk: Any) -> KeyColumn:
    valid = None
    if chunk.null_count:
        valid = chunk.is_valid().to_numpy(zero_copy_only=False)
        # What lies under a null is undefined: without this it would be hashed as a key.
        chunk = chunk.fill_null(b"" if "binary" in str(chunk.type) else "")
    wide = chunk.type in (pa.large_string(), pa.large_binary())
    _, offsets, data = chunk.buffers()
    if len(chunk) == 0:
        return KeyColumn(np.empty(0, np.uint8), np.zeros(1, np.int32), valid)
    every: Offsets = np.frombuffer(offsets, np.int64 if wide else np.int32)
    blob = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return KeyColumn(blob, every[chunk.offset : chunk.offset + len(chunk) + 1], valid)
