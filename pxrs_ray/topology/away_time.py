"""How long the hosts that slots wait for have been away, counted by clocks that nobody sets.

The time of day jumps: a host is not given up because somebody set a clock. So each coordinator
counts by its own steady clock while it sees a slot away, and notes what it has counted with the
slot's home; the next coordinator counts on from there. Time in which no coordinator runs is not
counted, for in it nobody could have seen the host come back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pxrs_ray.model import Slot
from pxrs_ray.topology.homes import Homes

# What a coordinator has counted is noted this many times while a host's time runs out.
NOTES = 10
NOTE_EACH_MS_MIN = 1_000


class AwayTime:
    """What one coordinator has counted. `steady_ms` is its clock, `replace_after` after how many
    milliseconds a host that is away is given up; None means never."""

    def __init__(
        self, steady_ms: Callable[[], int], replace_after: Callable[[], int | None]
    ) -> None:
        self._steady_ms, self._replace_after = steady_ms, replace_after
        # When each slot that is away was seen away first, or was noted last.
        self._counted_from_ms: dict[Slot, int] = {}

    def see(self, homes: Homes) -> None:
        """Count for the slots that are away, by what is durable, and for no others."""
        away = {slot for slot, home in homes.slots.items() if home.away_since_ms is not None}
        for slot in self._counted_from_ms.keys() - away:
            del self._counted_from_ms[slot]
        now_ms = self._steady_ms()
        for slot in away:
            self._counted_from_ms.setdefault(slot, now_ms)

    def away_ms(self, homes: Homes) -> dict[Slot, int]:
        """How long each slot that is away has been so, as far as anybody counted."""
        now_ms = self._steady_ms()
        return {
            slot: homes.slots[slot].away_ms + now_ms - from_ms
            for slot, from_ms in self._counted_from_ms.items()
            if homes.slots[slot].away_since_ms is not None
        }

    def overdue(self, homes: Homes) -> frozenset[Slot]:
        """The slots whose hosts are given up."""
        after_ms = self._replace_after()
        if after_ms is None:
            return frozenset()
        return frozenset(slot for slot, ms in self.away_ms(homes).items() if ms >= after_ms)

    def noted(self, homes: Homes) -> Homes:
        """The homes with what was counted, of those where it has grown by enough to be noted.

        Nothing is noted while no host is ever given up: nobody asks for it.
        """
        after_ms = self._replace_after()
        if after_ms is None:
            return homes
        step_ms = max(NOTE_EACH_MS_MIN, after_ms // NOTES)
        for slot, ms in self.away_ms(homes).items():
            home = homes.slots[slot]
            if ms - home.away_ms >= step_ms:
                homes = homes.with_slot(slot, replace(home, away_ms=ms))
        return homes

    def kept(self, before: Homes, after: Homes) -> None:
        """`after` is durable: what it holds is not counted again."""
        for slot in self._counted_from_ms:
            old, new = before.slots.get(slot), after.slots.get(slot)
            if old is None or new is None or new.away_since_ms is None:
                continue
            self._counted_from_ms[slot] += max(0, new.away_ms - old.away_ms)
