"""`MemberLeaseView`: a member's lease, for the threads and loops that work under it.

Rules of this file. The event loop notes the coordinator's answers; any thread may ask. When the
lease is over nothing is begun, read or committed until the coordinator has answered again. A
process that was frozen, one that was cut off, and a coordinator that is away for longer than a
lease look the same from here, and in each case the partitions may belong to others.
"""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress

from pxrs_ray.group.member_lease import MemberLease
from pxrs_ray.supervision.forks import in_children, leave_if_child
from pxrs_ray.supervision.supervisor import within

LOOK_PAUSE_S = 0.01
RENEWAL_LOOK_S = 0.1


class MemberLeaseView:
    """One member's lease. `answered` and `renewal` are for its event loop, the rest for any
    thread."""

    def __init__(self, length_s: float) -> None:
        self._lease = MemberLease(length_s)
        # The same moment, in one place more: what is read for each message is one attribute.
        self._begin_until_s = self._lease.until_s
        self._renewed = asyncio.Event()
        in_children(self._in_child)

    def _in_child(self) -> None:
        """In a process that a handler forked: nothing more is begun there."""
        self._begin_until_s = float("-inf")

    def answered(self, sent_s: float, lease_s: float) -> None:
        """The coordinator has answered what left at `sent_s`, and its answer is obeyed."""
        self._lease.answered(sent_s, lease_s)
        self._begin_until_s = self._lease.until_s
        self._renewed.set()

    @property
    def length_s(self) -> float:
        """How long a lease is, as far as we know."""
        return self._lease.length_s

    def wait_s(self) -> float:
        """For how long the coordinator may keep the next heartbeat until it has news."""
        return self._lease.wait_s(time.monotonic())

    def is_over(self) -> bool:
        """Whether others may own by now what was ours."""
        return self._lease.is_over(time.monotonic())

    async def renewal(self) -> None:
        """Return when something was answered, or after a short while: look again then."""
        self._renewed.clear()
        with suppress(TimeoutError):
            await within(RENEWAL_LOOK_S, self._renewed.wait())

    def may_begin(self, stopping: threading.Event) -> bool:
        """Whether work may begin, as soon as that is sure; False when `stopping` comes first."""
        while time.monotonic() > self._begin_until_s:
            leave_if_child()
            if stopping.wait(LOOK_PAUSE_S):
                return False
        return not stopping.is_set()
