"""While the registry is away ownership stands still, and what is refused is true in the store."""

from __future__ import annotations

from pxrs_ray.group.events import Tick
from pxrs_ray.model import Generation, Incarnation, MemberId, PartitionId, Write, WriteKind
from tests.simulation.checkers.base import Checker
from tests.simulation.history import Decided, Led, Refused, RegistryAway, Stored

# The longest that a coordinator may take to notice, beside the pause between two calls.
NOTICE_EXTRA_MS = 300


class OutageMovesNobody(Checker):
    """While the registry is away no silence and no deadline takes a partition from its owner."""

    def __init__(self) -> None:
        super().__init__()
        self._away_since_ms: int | None = None
        self._looked_ms: dict[Generation, int] = {}
        self._ticked_ms: dict[Generation, int] = {}

    def on_registryaway(self, event: RegistryAway) -> None:
        """The store goes, or is back."""
        self._away_since_ms = event.at_ms if event.away else None
        self._looked_ms.clear()

    def on_decided(self, event: Decided) -> None:
        """Judge what time alone has done, by one who has had the time to notice."""
        if not isinstance(event.event, Tick):
            return
        gap_ms = event.monotonic_ms - self._ticked_ms.get(event.generation, event.monotonic_ms)
        self._ticked_ms[event.generation] = event.monotonic_ms
        if self._away_since_ms is None:
            return
        if gap_ms > event.lease_ms // 2:
            # It stood still itself, and has to notice anew.
            self._looked_ms.pop(event.generation, None)
        since_ms = self._looked_ms.setdefault(event.generation, event.at_ms)
        if event.at_ms - since_ms <= event.lease_ms + NOTICE_EXTRA_MS:
            return
        for record in event.records:
            if isinstance(record, Write) and record.kind is WriteKind.RELEASE:
                away_ms = event.at_ms - self._away_since_ms
                self.broken(event.at_ms, f"{record}, the registry being away for {away_ms} ms")


class RefusalsHold(Checker):
    """Who is told that it is no member owns nothing in the store, now and ever after."""

    def __init__(self) -> None:
        super().__init__()
        self._generation: Generation = 0
        self._owner: dict[PartitionId, tuple[MemberId | None, Incarnation]] = {}

    def on_led(self, event: Led) -> None:
        """Who owns what when a generation begins."""
        self._generation = max(self._generation, event.generation)
        for row in event.snapshot.partitions:
            self._owner[row.partition] = (row.owner, row.incarnation)

    def on_stored(self, event: Stored) -> None:
        """Who owns what from now on."""
        if event.after is not None:
            self._owner[event.after.partition] = (event.after.owner, event.after.incarnation)

    def on_refused(self, event: Refused) -> None:
        """The word of a coordinator that has been replaced is not judged."""
        if event.generation < self._generation:
            return
        owned = [p for p, who in self._owner.items() if who == (event.member, event.incarnation)]
        if owned:
            who = f"{event.member}#{event.incarnation}"
            self.broken(event.at_ms, f"{who} is told that it is no member, and owns {owned}")
