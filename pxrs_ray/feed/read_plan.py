"""How a queue is cut into the shares of Spark tasks, and how each is read. Pure.

Rules of this file. What is read is decided once, by where the logs end then: a share that is read
again, by another task, gives the same messages. A share is read from its start to its end; what a
log has dropped since is gone, and not waited for.
"""

from __future__ import annotations

from collections.abc import Mapping

from pxrs_ray.data.protocol import LogEnds
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Offset, PartitionId

SHARE_MESSAGES = 500_000


@dataclass(frozen=True, slots=True)
class Share:
    """The share of one Spark task: offsets of a partition, live or from one segment file."""

    partition: PartitionId
    start: Offset
    end: Offset
    path: str = ""
    last: bool = False

    def part_of(self, base_offset: Offset, count: int) -> range:
        """Which of `count` messages from `base_offset` on are of this share; counted from 0."""
        begin = max(0, self.start - base_offset)
        return range(begin, max(begin, min(count, self.end - base_offset)))


def live_shares(
    ends: Mapping[PartitionId, LogEnds],
    first: Mapping[PartitionId, Offset],
    last: Mapping[PartitionId, Offset],
    messages_max: int = SHARE_MESSAGES,
) -> list[Share]:
    """The shares of what the logs hold from `first` up to, not including, `last`."""
    shares = []
    for partition in sorted(ends):
        at = max(first[partition], ends[partition].start_offset)
        stop = min(last[partition], ends[partition].end_offset)
        while at < stop:
            shares.append(Share(partition, at, min(stop, at + messages_max)))
            at += messages_max
    return shares


class ShareRead:
    """One reading of a live share."""

    def __init__(self, share: Share) -> None:
        self._share = share
        self._at: Offset | None = share.start

    def next(self) -> Offset | None:
        """From where to fetch; None where all of it was read."""
        return self._at if self._at is not None and self._at < self._share.end else None

    def fetched(self, next_offset: Offset | None) -> None:
        """There were messages up to `next_offset`, or None: the log holds no more."""
        self._at = next_offset
