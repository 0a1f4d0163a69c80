"""`ReplicaLead`: under which epoch a process's replica leads its slot, and whether it may serve. A
part of `ReplicaHost`.

Rules of this file. Who leads may be appended to at once; it serves nobody before all that it had is
on every replica in sync, and before it knows of every group what a leader has to know.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from pxrs_ray.replication.peer_messages import LogKey
from pxrs_ray.replication.placement import LeaderEpoch
from pxrs_ray.replication.slot_replica import SlotReplica
from pxrs_ray.supervision.supervisor import within

# For how long who looks for the leader may wait here until it is this one.
LEADS_WAIT_MS_MAX = 2_000


class ReplicaLead:
    """See the rules at the head of this file. `over` says why this replica has ended."""

    def __init__(self, replica: SlotReplica) -> None:
        self.replica = replica
        self.over = ""
        self._settled: LeaderEpoch = 0
        # Under this epoch it leads; and up to where its logs went when it began to.
        self._leads: LeaderEpoch = 0
        self._to_reach: dict[LogKey, int] = {}
        self._is_leading = asyncio.Event()

    @property
    def leads(self) -> LeaderEpoch:
        """The epoch under which this replica leads; 0: it does not."""
        return 0 if self.over else self._leads

    async def leads_within(self, wait_ms: int) -> LeaderEpoch:
        """The same, as soon as it leads; 0 where it does not within `wait_ms`."""
        if wait_ms > 0 and not self.leads:
            with suppress(TimeoutError):
                await within(min(wait_ms, LEADS_WAIT_MS_MAX) / 1_000, self._is_leading.wait())
        return self.leads

    @property
    def is_ready(self) -> bool:
        """Whether it leads, and all that it had when it began to is on every replica in sync.

        Before, somebody may have been told of more than it knows to be safe.
        """
        if not self.leads:
            return False
        for key, end in list(self._to_reach.items()):
            log = self.replica.logs.get(key)
            if log is None or log.high_watermark >= end:
                del self._to_reach[key]
        return not self._to_reach

    @property
    def _leads_ready(self) -> LeaderEpoch:
        return self.leads if self.is_ready else 0

    def serves(self, term: int) -> bool:
        """Whether it leads under this term, and knows all that a leader has to know."""
        return bool(term) and term == self.leads == self._settled and self.is_ready

    def settle(self, epoch: LeaderEpoch) -> bool:
        """Under this epoch it knows of every group what a leader has to know; whether that is
        new."""
        is_new = epoch > self._settled
        self._settled = max(epoch, self._settled)
        return is_new

    @property
    def takes(self) -> bool:
        """Whether enough replicas are in sync for an append."""
        return self.replica.takes

    def _begin_to_lead(self, epoch: LeaderEpoch) -> None:
        """It leads from now on; 0: no more. In the job in which it began to, or stopped."""
        self._to_reach = {key: log.end_offset for key, log in self.replica.logs.items()}
        self._leads = epoch

    def _tell_leads(self) -> None:
        """Answer who waits for a leader. On the event loop."""
        if self.leads:
            self._is_leading.set()
        else:
            self._is_leading.clear()
