"""`LeaseTerm`: whether a buffer may serve now. Pure: the caller passes the time.

Rules of this file. A buffer serves while its newest coordinator lets it, and not a moment longer.
The lease runs by the buffer's own clock from a reading of that very clock, which the coordinator
has received and sends back. So it always ends before the coordinator considers it over, however
slowly anything is sent. A grant of an older generation, or of an older term, gives nothing. A
process that is not the one that read its clock has no lease by that reading.
"""

from __future__ import annotations

from pxrs_ray.data.protocol import BufferGrant
from pxrs_ray.model import Generation


class LeaseTerm:
    """The lease of one incarnation of a buffer. It begins with none."""

    def __init__(self, incarnation: str) -> None:
        self.generation: Generation = 0
        self.term = 0
        self.until_ms = 0
        self._incarnation = incarnation

    def take(self, grant: BufferGrant, now_ms: int) -> bool:
        """Take what a coordinator grants; False when a newer one, or a newer term, is known."""
        granted, known = (grant.generation, grant.term), (self.generation, self.term)
        if granted < known:
            return False
        if grant.term != self.term:
            self.until_ms = 0  # what was granted was for another term
        self.generation, self.term = granted
        if grant.incarnation == self._incarnation:
            # An echo ahead of our clock makes no lease longer. Pings of one coordinator may
            # overtake each other: the longest counts. A newer coordinator's word counts even where
            # it is shorter.
            until_ms = min(grant.echo_ms, now_ms) + grant.lease_ms
            self.until_ms = max(self.until_ms, until_ms) if granted == known else until_ms
        return True

    def give_back(self) -> None:
        """Have no lease any more."""
        self.until_ms = 0

    def holds(self, now_ms: int) -> bool:
        """Whether the lease goes on at this moment."""
        return now_ms < self.until_ms
