"""`SettledLetters`: which letters of a dead-letter queue an operator has dealt with. Pure.

Rules of this file. A letter is settled once it was sent again, or dropped; it stays in its log
until retention. What is settled is kept as ranges of offsets of each partition, so that it stays
small where everything is settled, as is usual. It belongs to one queue by its id: a queue that was
made anew under the same name has settled nothing. A text of another kind is refused, and never
taken for "nothing is settled".
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping
from typing import Any

from pxrs_ray.codec import from_json
from pxrs_ray.errors import UsageError
from pxrs_ray.model import Offset, PartitionId

Ranges = list[tuple[Offset, Offset]]

VERSION = 1
# A document of the registry holds a million characters; a range takes at most forty.
RANGES_MAX = 20_000


class SettledLetters:
    """The settled offsets of each partition, as sorted ranges that do not touch: [first, end)."""

    def __init__(self, queue_id: str, ranges: Mapping[PartitionId, Ranges] | None = None) -> None:
        self.queue_id = queue_id
        self._ranges: dict[PartitionId, Ranges] = {p: list(r) for p, r in (ranges or {}).items()}

    @classmethod
    def from_text(cls, text: str, queue_id: str) -> SettledLetters:
        """Read what `to_text` wrote for this queue; '' is nothing. Raises UsageError."""
        if not text:
            return cls(queue_id)
        try:
            found: dict[str, Any] = from_json(text)
            if found["version"] != VERSION:
                raise UsageError(
                    f"what is settled of the dead letters was written by another version of PXRS "
                    f"({found['version']}, not {VERSION}): use that one, or drop the queue"
                )
            if found["queue_id"] != queue_id:
                return cls(queue_id)
            return cls(
                queue_id,
                {
                    int(p): [(int(a), int(b)) for a, b in each]
                    for p, each in found["ranges"].items()
                },
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UsageError(
                f"what is settled of the dead letters cannot be read: {error}"
            ) from None

    def to_text(self) -> str:
        """As the registry keeps it. Raises UsageError when there is too much of it."""
        count = sum(map(len, self._ranges.values()))
        if count > RANGES_MAX:
            raise UsageError(
                f"{count} separate ranges of letters are settled, at most {RANGES_MAX} are kept: "
                "retry or drop the older letters between them first"
            )
        ranges = {str(p): each for p, each in sorted(self._ranges.items()) if each}
        value = {"version": VERSION, "queue_id": self.queue_id, "ranges": ranges}
        return json.dumps(value, separators=(",", ":"))

    def has(self, partition: PartitionId, offset: Offset) -> bool:
        """Whether this letter was dealt with."""
        ranges = self._ranges.get(partition, [])
        at = bisect_right(ranges, offset, key=lambda each: each[0]) - 1
        return at >= 0 and offset < ranges[at][1]

    def add(self, partition: PartitionId, offset: Offset) -> None:
        """Note that this letter was dealt with."""
        if self.has(partition, offset):
            return
        ranges = self._ranges.setdefault(partition, [])
        at = bisect_right(ranges, offset, key=lambda each: each[0])
        first, end = offset, offset + 1
        if at < len(ranges) and ranges[at][0] == end:
            end = ranges.pop(at)[1]
        if at and ranges[at - 1][1] == first:
            at -= 1
            first = ranges.pop(at)[0]
        ranges.insert(at, (first, end))

    def forget_below(self, partition: PartitionId, start: Offset) -> None:
        """Forget what the log no longer has."""
        ranges = self._ranges.get(partition, [])
        self._ranges[partition] = [(max(a, start), b) for a, b in ranges if b > start]
