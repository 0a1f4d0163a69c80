"""`Fingerprint`: a hash of rows in order, however Spark cut them into batches.

Rules of this file: only values count, never how Arrow holds them (slices, offsets, a mask of nulls
that has none). Rows with the same fingerprint become the same frames.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh3_128


class Fingerprint:
    """A hash over columns, piece after piece. `basis` is everything else that the frames depend
    on."""

    def __init__(self, basis: str) -> None:
        self._hash = xxh3_128(basis.encode())

    def update(self, columns: Iterable[pa.Array]) -> None:
        """Take in the columns of the next piece."""
        for column in columns:
            self._take(column)

    def hexdigest(self) -> str:
        """The fingerprint of everything so far."""
        return self._hash.hexdigest()

    def _take(self, column: pa.Array) -> None:
        self._hash.update(len(column).to_bytes(8, "little"))
        if column.null_count:
            self._hash.update(np.packbits(column.is_null().to_numpy(zero_copy_only=False)).data)
        kind = column.type
        if pa.types.is_binary(kind) or pa.types.is_string(kind):
            self._take_bytes(column)
        elif pa.types.is_map(kind):
            offsets = column.offsets.to_numpy()
            self._hash.update(np.diff(offsets).data)
            first, count = int(offsets[0]), int(offsets[-1] - offsets[0])
            self._take(column.keys.slice(first, count))
            self._take(column.items.slice(first, count))
        else:
            filled = pc.fill_null(column, 0) if column.null_count else column
            self._hash.update(filled.to_numpy())

    def _take_bytes(self, column: pa.Array) -> None:
        _, ends, data = column.buffers()
        if not len(column) or ends is None:
            return
        offsets = np.frombuffer(ends, np.int32, len(column) + 1, 4 * column.offset)
        self._hash.update(np.diff(offsets).data)
        if data is not None:
            self._hash.update(memoryview(data)[int(offsets[0]) : int(offsets[-1])])
