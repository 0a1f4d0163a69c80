"""`LeaseGrants`: the coordinator's side of its buffers' leases. Pure: the caller passes the time.

Rules of this file. What is sent back to a buffer is a reading of its own clock that was received
from it, so a lease ends there no later than `lease_ms` after it was received here. Only readings
that were received before this coordinator was last confirmed as the leading one are sent back: a
successor that waits `lease_ms` from its own beginning on knows that no buffer serves by its
predecessor's grant. A process that is not known to have the topology's own logs gets nothing.
"""

from __future__ import annotations

from pxrs_ray.data.protocol import BufferGrant
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Generation


@dataclass(frozen=True, slots=True)
class _Reading:
    incarnation: str = ""
    clock_ms: int = 0
    received_ms: int = 0


Readings = tuple[_Reading, ...]


@dataclass(slots=True)
class _Slot:
    newest: _Reading = _Reading()
    confirmed: _Reading = _Reading()
    allowed: str = ""
    over_ms: int = 0


class LeaseGrants:
    """The leases of one coordinator's buffers; times are of its lease clock."""

    def __init__(self, count: int, lease_ms: int, now_ms: int) -> None:
        self.generation: Generation = 0
        self.lease_ms = lease_ms
        # What a predecessor granted may last for that long.
        self._slots = [_Slot(over_ms=now_ms + lease_ms) for _ in range(count)]

    def heard(self, index: int, incarnation: str, clock_ms: int, now_ms: int) -> None:
        """Take in a reading of a buffer's clock."""
        self._slots[index].newest = _Reading(incarnation, clock_ms, now_ms)

    def allow(self, index: int) -> None:
        """The process that was heard last has our logs."""
        self._slots[index].allowed = self._slots[index].newest.incarnation

    def forbid(self, index: int) -> None:
        """Nobody gets a lease of this slot until it is allowed again."""
        self._slots[index].allowed = ""

    def heard_so_far(self) -> Readings:
        """The readings up to now: take them before asking the registry which coordinator leads."""
        return tuple(slot.newest for slot in self._slots)

    def leading(self, heard: Readings) -> None:
        """The registry, asked after these readings came, has confirmed that this coordinator
        leads."""
        for slot, reading in zip(self._slots, heard, strict=True):
            # Confirmations may end in another order: an older reading never replaces a newer one.
            if reading.received_ms >= slot.confirmed.received_ms:
                slot.confirmed = reading

    def grant(self, index: int, term: int) -> BufferGrant:
        """What the next ping of a buffer carries."""
        slot = self._slots[index]
        echo = slot.confirmed
        if not echo.incarnation or echo.incarnation != slot.allowed:
            return BufferGrant(self.generation, term, self.lease_ms)
        # Noted before the grant leaves: it may arrive though its answer never comes back.
        slot.over_ms = max(slot.over_ms, echo.received_ms + self.lease_ms)
        return BufferGrant(self.generation, term, self.lease_ms, echo.clock_ms, echo.incarnation)

    def over_ms(self, index: int) -> int:
        """From when on it is sure that no process of this slot serves, if nothing is granted."""
        return self._slots[index].over_ms
