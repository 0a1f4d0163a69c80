"""`FetchBackoff`: pauses the reading of partitions that cannot be read now; each pause grows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from pxrs_ray.model import PartitionId
from pxrs_ray.supervision.restart_rules import FaultsInARow, RestartRules

T = TypeVar("T")

RULES = RestartRules(pause_first_s=0.05, pause_most_s=1.0, quiet_s=30.0)


class FetchBackoff:
    """See above."""

    def __init__(self) -> None:
        self._faults: dict[PartitionId, FaultsInARow] = {}
        self._until_s: dict[PartitionId, float] = {}

    def rest(self, partition: PartitionId, now_s: float) -> None:
        """It could not be read: look at it again after a pause."""
        pause_s = self._faults.setdefault(partition, FaultsInARow(RULES)).failed(now_s)
        assert pause_s is not None
        self._until_s[partition] = now_s + pause_s

    def over(self, partition: PartitionId) -> bool:
        """It was read; answers whether it could not be before."""
        self._until_s.pop(partition, None)
        return self._faults.pop(partition, None) is not None

    def awake(self, wanted: Mapping[PartitionId, T], now_s: float) -> dict[PartitionId, T]:
        """Those of `wanted` that may be read now."""
        if not self._until_s:
            return dict(wanted)
        return {p: at for p, at in wanted.items() if self._until_s.get(p, 0.0) <= now_s}

    def next_s(self, wanted: Iterable[PartitionId], now_s: float) -> float | None:
        """When the next of these that rest now may be read; None when none of them rests."""
        if not self._until_s:
            return None
        resting = [until_s for p in wanted if (until_s := self._until_s.get(p, 0.0)) > now_s]
        return min(resting, default=None)
