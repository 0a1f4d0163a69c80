"""`LeaseGate`: a member's lease that a test gives, and the view of it that workers look at."""

from __future__ import annotations

from pxrs_ray.actors.consumer.lease_view import MemberLeaseView
from pxrs_ray.group.member_lease import MemberLease


class LeaseGate(MemberLeaseView):
    """With the lease itself, which a member's machine keeps otherwise."""

    def __init__(self, length_s: float) -> None:
        self._given = MemberLease(length_s)
        super().__init__(self._given)

    def answered(self, sent_s: float, lease_s: float) -> None:
        """As when the coordinator has answered what left at `sent_s`."""
        self._given.answered(sent_s, lease_s)
        self.renewed()
