"""`MemberLeaseView`: a member's lease, for the threads that work under it.

Rules of this file. The event loop notes the coordinator's answers; any thread may ask. When the
lease is over nothing is begun until the coordinator has answered again. A process that was frozen,
one that was cut off, and a coordinator that is away for longer than a lease look the same from
here, and in each case the partitions may belong to others.
"""

from __future__ import annotations

import threading
import time

from pxrs_ray.group.member_lease import MemberLease
from pxrs_ray.supervision.forks import in_children, leave_if_child

LOOK_PAUSE_S = 0.01


class MemberLeaseView:
    """One member's lease. `renewed` is for its event loop, the rest for any thread."""

    def __init__(self, lease: MemberLease) -> None:
        self._lease = lease
        # The same moment, in one place more: what is read for each message is one attribute.
        self.begin_until_s = lease.until_s
        in_children(self._in_child)

    def _in_child(self) -> None:
        """In a process that a handler forked: nothing more is begun there."""
        self.begin_until_s = float("-inf")

    def renewed(self) -> None:
        """The coordinator has answered, and its answer is obeyed."""
        self.begin_until_s = self._lease.until_s

    def is_over(self) -> bool:
        """Whether others may own by now what was ours."""
        return self._lease.is_over(time.monotonic())

    def may_begin(self, stopping: threading.Event) -> bool:
        """Whether work may begin, as soon as that is sure; False when `stopping` comes first."""
        while time.monotonic() > self.begin_until_s:
            leave_if_child()
            if stopping.wait(LOOK_PAUSE_S):
                return False
        return not stopping.is_set()
