"""What is ready, in the order in which it may begin: `FairQueue` and `ArrivalQueue`.

Rules of this file. Where nobody shares, the lowest place is next. `FairQueue` picks the next
tenant, in proportion to weights, among those that have something ready: start-time fair queueing.
Each tenant has a virtual time that advances by 1/weight with every turn; the one that is furthest
behind is next. A tenant that comes back after having nothing starts at the present, so nobody saves
up turns by being silent, and nobody who floods takes another's. Ties go to the name.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heappop, heappush
from typing import Generic, TypeVar

from pxrs_ray.errors import ConfigError

Entry = TypeVar("Entry")


class ArrivalQueue:
    """The places that are ready, the lowest first, whoever they belong to."""

    def __init__(self) -> None:
        self._places: list[int] = []

    def __len__(self) -> int:
        """How many are ready."""
        return len(self._places)

    def put(self, tenant: str, place: int, entry: int) -> None:
        """Something is ready; `entry` is its place once more, as with a `FairQueue`."""
        heappush(self._places, place)

    def pop(self) -> tuple[str, int]:
        """The lowest place. Raises IndexError when nothing is ready."""
        return "", heappop(self._places)


class FairQueue(Generic[Entry]):
    """See the rules at the head of this file."""

    def __init__(self, weights: Mapping[str, float] | None = None) -> None:
        self._weights = dict(weights or {})
        if any(weight <= 0 for weight in self._weights.values()):
            raise ConfigError(f"weights must be above 0, got {self._weights}")
        self._ready: dict[str, list[tuple[int, int, Entry]]] = {}
        self._turns: list[tuple[float, str]] = []
        self._times: dict[str, float] = {}
        self._now = 0.0
        self._ready_count = 0
        self._puts = 0
        self._tenants_max = 1_000

    def __len__(self) -> int:
        """How many entries are ready."""
        return self._ready_count

    def put(self, tenant: str, place: int, entry: Entry) -> None:
        """Something of `tenant` is ready; it comes in the order of its place."""
        entries = self._ready.setdefault(tenant, [])
        self._puts += 1
        heappush(entries, (place, self._puts, entry))
        self._ready_count += 1
        if len(entries) == 1:
            self._line_up(tenant)

    def pop(self) -> tuple[str, Entry]:
        """The next entry, and whose it is. Raises IndexError when nothing is ready."""
        while True:
            time, tenant = heappop(self._turns)
            if time == self._times.get(tenant):
                break
        entries = self._ready[tenant]
        entry = heappop(entries)[2]
        self._ready_count -= 1
        self._now = time
        self._times[tenant] = time + 1 / self._weights.get(tenant, 1.0)
        if entries:
            heappush(self._turns, (self._times[tenant], tenant))
        else:
            del self._ready[tenant]
            self._forget_the_past()
        return tenant, entry

    def _line_up(self, tenant: str) -> None:
        time = max(self._now, self._times.get(tenant, 0.0))
        self._times[tenant] = time
        heappush(self._turns, (time, tenant))

    def _forget_the_past(self) -> None:
        """Tenants that are silent and owe nothing need not be remembered; in idleness, nobody."""
        if not self._ready:
            self._now = max(self._times.values())
            self._times.clear()
        elif len(self._times) > self._tenants_max:
            self._times = {
                tenant: time
                for tenant, time in self._times.items()
                if tenant in self._ready or time > self._now
            }
            self._tenants_max = 2 * len(self._times) + 1_000
