"""`BufferLeaseGate`: admits a buffer's callers while its lease lasts, and wakes waiting ones when
that changes.

Rules of this file. `LeaseTerm` judges; this module adds the clock. A call that arrives while there
is no lease may wait for one until its own deadline. What was done while the lease ended is not
acknowledged.
"""

from __future__ import annotations

import asyncio

from pxrs_ray.clock import lease_clock_ms
from pxrs_ray.data.protocol import BufferGrant
from pxrs_ray.errors import LeaseOver
from pxrs_ray.log.held_calls import Waiting, wake_all
from pxrs_ray.log.lease_term import LeaseTerm


class BufferLeaseGate:
    """The gate of one buffer. For the buffer's event loop."""

    def __init__(self, what: str, incarnation: str, waiting: Waiting) -> None:
        self.tenure = LeaseTerm(incarnation)
        self._what = what
        self._waiting = waiting
        self._timer: asyncio.TimerHandle | None = None

    def is_open(self) -> bool:
        """Whether anybody may be served at this moment."""
        return self.tenure.holds(lease_clock_ms())

    def check(self) -> None:
        """Raise LeaseOver unless it is open."""
        if not self.is_open():
            raise self.over()

    def check_lease(self) -> None:
        """Raise LeaseOver without a lease: for what is told before anybody is served."""
        if not self.tenure.holds(lease_clock_ms()):
            raise self.over()

    def look(self) -> None:
        """Whether it is open may be otherwise now: wake who waits."""
        self._wake_all()

    def over(self) -> LeaseOver:
        """Why nobody is served."""
        return LeaseOver(f"{self._what} has no lease now: it waits for its coordinator")

    def grant(self, grant: BufferGrant) -> None:
        """Take what the coordinator grants."""
        was_open = self.is_open()
        self.tenure.take(grant, lease_clock_ms())
        if self.is_open() != was_open:
            self._wake_all()
        self._look_again()

    def shut(self) -> None:
        """Give the lease back, before its time: nobody is served any more."""
        self.tenure.give_back()
        self._wake_all()

    def _look_again(self) -> None:
        """Wake waiting callers when the lease ends: a long poll ends with it."""
        left_ms = self.tenure.until_ms - lease_clock_ms()
        if self._timer is None and left_ms > 0:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(left_ms / 1_000 + 0.001, self._lapse)

    def _lapse(self) -> None:
        self._timer = None
        if not self.is_open():
            self._wake_all()
        self._look_again()

    def _wake_all(self) -> None:
        wake_all(self._waiting)

    def close(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
