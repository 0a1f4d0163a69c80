"""Nothing breaks on the way, and everything comes to rest."""

from __future__ import annotations

from tests.simulation.checkers.base import Checker
from tests.simulation.history import Ended, Failed


class NothingFails(Checker):
    """No assertion, illegal transition or corrupt store, whatever happens around."""

    def on_failed(self, event: Failed) -> None:
        """There is no good failure."""
        self.broken(event.at_ms, f"{event.where}: {event.error}")


class ComesToRest(Checker):
    """When faults end, every pending state ends: live members own and have done everything."""

    def on_ended(self, event: Ended) -> None:
        """Nothing may wait for anything."""
        for pending in event.pending:
            self.broken(event.at_ms, pending)
        for row in event.rows:
            if (row.owner, row.incarnation) not in event.members:
                self.broken(event.at_ms, f"{row} has no live owner")
            if row.checkpoint != event.ends[row.partition]:
                self.broken(event.at_ms, f"{row}, and its log ends at {event.ends[row.partition]}")
