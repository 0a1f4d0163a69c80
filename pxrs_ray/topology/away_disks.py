"""`AwayDisks`: for how long the disks that replicas are on have been away, by steady clocks. Pure.

Rules of this file. As `away_time` counts for the homes of single copies: each coordinator counts by
its own steady clock while it sees a disk away, and has what it has counted noted with the
placements; the next coordinator counts on from there. Time in which no coordinator runs does not
count, for nobody could have seen the disk come back.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pxrs_ray.replication.placement import Disk
from pxrs_ray.topology.away_time import NOTE_EACH_MS_MIN, NOTES


class AwayDisks:
    """What one coordinator has counted, on top of what was `noted` before it."""

    def __init__(self, noted: Mapping[Disk, int]) -> None:
        self._counted_ms: dict[Disk, int] = dict(noted)
        self._noted_ms: dict[Disk, int] = dict(noted)
        self._seen_ms: int | None = None
        self._away: frozenset[Disk] = frozenset()

    def see(self, away: Collection[Disk], now_ms: int) -> None:
        """These disks are away now, and no others: of those, time counts between two looks."""
        since_ms = now_ms if self._seen_ms is None else self._seen_ms
        for disk in self._away.intersection(away):
            self._counted_ms[disk] += now_ms - since_ms
        self._counted_ms = {disk: self._counted_ms.get(disk, 0) for disk in away}
        self._seen_ms, self._away = now_ms, frozenset(away)

    def overdue(self, replace_after_ms: int) -> frozenset[Disk]:
        """The disks that are given up."""
        return frozenset(d for d, ms in self._counted_ms.items() if ms >= replace_after_ms)

    def to_note(self, replace_after_ms: int) -> dict[Disk, int] | None:
        """What is to be noted now; None while that has not grown by enough."""
        step_ms = max(NOTE_EACH_MS_MIN, replace_after_ms // NOTES)
        noted, counted = self._noted_ms, self._counted_ms
        grown = any(ms - noted.get(disk, 0) >= step_ms for disk, ms in counted.items())
        if not grown and not noted.keys() - counted.keys():
            return None
        self._noted_ms = {disk: ms for disk, ms in counted.items() if ms}
        return dict(self._noted_ms)
