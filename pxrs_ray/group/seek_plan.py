"""Seeks: where a seek leads each partition, and what that repeats and skips. Pure.

Rules of this file. A position is always inside of the log. What names a place outside of it is
refused by name, but for a shift: that stops at the log's end, for it is relative and means "so many
more", and its plan shows where it stopped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pxrs_ray.errors import UsageError
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Offset, PartitionId

KINDS = ("start", "end", "time", "shift", "offset")


@dataclass(frozen=True, slots=True)
class Sought:
    """What somebody seeks: a kind of place, with its value, of some partitions (None: of all).

    `begins` are the checkpoints that a shift counts from (None: those that are found): a shift that
    is asked for again must not be made twice.
    """

    kind: str
    value: int = 0
    partitions: Sequence[PartitionId] | None = None
    begins: Mapping[PartitionId, Offset] | None = None

    def wanted(self, partitions: int) -> list[PartitionId]:
        """The partitions that are to move, of a queue that has so many."""
        return list(range(partitions)) if self.partitions is None else sorted({*self.partitions})

    def told(self) -> str:
        """It in a few words, for the history."""
        if self.kind == "shift":
            return f"seek by {self.value:+d} messages"
        where = f" {self.value}" if self.kind in ("offset", "time") else ""
        return f"seek to {self.kind}{where}"


@dataclass(frozen=True, slots=True)
class LogBounds:
    """The offset of the oldest message of a log, and the one after its newest."""

    start_offset: Offset
    end_offset: Offset


@dataclass(frozen=True, slots=True)
class PartitionSeek:
    """Where a seek takes one partition from, and to."""

    partition: PartitionId
    checkpoint: Offset
    offset: Offset

    @property
    def repeats(self) -> int:
        """How many messages that were passed come again."""
        return max(0, self.checkpoint - self.offset)

    @property
    def skips(self) -> int:
        """How many messages will never be given to a handler."""
        return max(0, self.offset - self.checkpoint)


@dataclass(frozen=True, slots=True)
class SeekPlan:
    """What a seek of a group would do now. Messages that arrive meanwhile are not in it."""

    group: str
    rows: tuple[PartitionSeek, ...]

    @property
    def repeats(self) -> int:
        """How many messages come again, over all partitions."""
        return sum(row.repeats for row in self.rows)

    @property
    def skips(self) -> int:
        """How many messages are skipped, over all partitions."""
        return sum(row.skips for row in self.rows)


def seek_offset(
    sought: Sought,
    partition: PartitionId,
    bounds: LogBounds,
    checkpoint: Offset,
    times: Mapping[PartitionId, Offset],
) -> Offset:
    """The offset that a seek leads a partition to. `times` is asked for the kind 'time' only.

    Raises UsageError for an offset outside of the log, and for an unknown kind.
    """
    value = sought.value
    match sought.kind:
        case "start":
            return bounds.start_offset
        case "end":
            return bounds.end_offset
        case "time":
            return times[partition]
        case "shift":
            return min(max(checkpoint + value, bounds.start_offset), bounds.end_offset)
        case "offset" if bounds.start_offset <= value <= bounds.end_offset:
            return value
        case "offset":
            raise UsageError(
                f"cannot seek partition {partition} to offset {value}: its log holds "
                f"{bounds.start_offset} to {bounds.end_offset}; 'start' and 'end' lead to its ends"
            )
        case _:
            raise UsageError(f"seek to one of {', '.join(map(repr, KINDS))}, not {sought.kind!r}")
