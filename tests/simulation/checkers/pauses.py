"""Who is not served asks again, and not without a pause."""

from __future__ import annotations

from pxrs_ray.model import Incarnation, MemberId
from tests.simulation.checkers.base import Checker
from tests.simulation.history import Asked, Unserved

PAUSE_MS = 20


class PausesWhenAway(Checker):
    """A member that learns that a buffer is away leaves it alone for a moment."""

    def __init__(self) -> None:
        super().__init__()
        self._unserved_ms: dict[tuple[MemberId, Incarnation], int] = {}

    def on_unserved(self, event: Unserved) -> None:
        """From now on."""
        self._unserved_ms[(event.member, event.incarnation)] = event.at_ms

    def on_asked(self, event: Asked) -> None:
        """Compare with when it learned that."""
        unserved_ms = self._unserved_ms.get((event.member, event.incarnation))
        if event.what == "fetch" and unserved_ms is not None:
            if event.at_ms < unserved_ms + PAUSE_MS:
                self.broken(event.at_ms, f"{event}: the buffer was away at {unserved_ms} ms")
            del self._unserved_ms[(event.member, event.incarnation)]
