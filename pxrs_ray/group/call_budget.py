"""`CallBudget`: how many calls of a group's handler may begin now, of all its consumers. Pure.

Rules of this file. Calls and their cost each have a bucket that fills evenly, and holds a second's
worth. In no minute more calls are granted than the limit; what they cost is at most the limit and
one call. The buckets begin empty: who has lost count (a coordinator that begins) grants too little
for a moment, and never too much. What is granted and not used is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from math import ceil

from pxrs_ray.late_dataclass import dataclass

MINUTE_MS = 60_000.0
WAIT_MS_MAX = 60_000


@dataclass(slots=True)
class _Bucket:
    """Fills by `per_ms`, up to `holds`."""

    at_ms: float
    holds: float = 0.0
    per_ms: float = 0.0
    level: float = 0.0

    def fill(self, now_ms: float) -> None:
        grown = max(0.0, now_ms - self.at_ms) * self.per_ms
        self.level, self.at_ms = min(self.holds, self.level + grown), max(now_ms, self.at_ms)

    def wait_ms(self, level: float) -> float:
        return max(0.0, level - self.level) / self.per_ms


@dataclass(slots=True)
class CallBudget:
    """See the rules at the head of this file. `now_ms` is when it begins."""

    now_ms: float
    _calls: _Bucket = field(init=False)
    _cost: _Bucket = field(init=False)

    def __post_init__(self) -> None:
        self._calls, self._cost = _Bucket(self.now_ms), _Bucket(self.now_ms)

    def take(
        self,
        costs: Sequence[float],
        now_ms: float,
        *,
        calls_per_minute: int | None,
        cost_per_minute: float | None,
    ) -> tuple[int, int]:
        """How many of the calls that have these costs may begin, from the first on, and in how many
        milliseconds to ask for the next."""
        calls, cost = self._calls, self._cost
        if calls_per_minute is not None:
            calls.holds = float(max(1, calls_per_minute // 60))
            # In a minute at most what it holds comes out, and what comes in.
            calls.per_ms = (calls_per_minute - calls.holds + 1) / MINUTE_MS
            calls.fill(now_ms)
        if cost_per_minute is not None:
            cost.holds = cost_per_minute / 60
            cost.per_ms = (cost_per_minute - cost.holds) / MINUTE_MS
            cost.fill(now_ms)
        granted, wait_ms = 0, 0.0
        for each in costs:
            waits = [0.0]
            if calls_per_minute is not None:
                waits.append(calls.wait_ms(1.0))
            if cost_per_minute is not None and each:
                # One call may take the bucket below nothing: what it owes is paid first.
                waits.append(cost.wait_ms(min(each, cost.holds)))
            if (wait_ms := max(waits)) > 0:
                break
            granted += 1
            calls.level -= 1.0
            cost.level -= each
        return granted, min(WAIT_MS_MAX, ceil(wait_ms))
