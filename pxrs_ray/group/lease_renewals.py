"""`LeaseRenewals`: writes members' leases to the store, for tools that look there while the
coordinator is away. Pure.

An idle coordinator writes nothing else, so here it learns that another one leads.
"""

from __future__ import annotations

import logging
from typing import Any

from pxrs_ray.errors import StoreError
from pxrs_ray.group.group_coordinator import GroupCoordinator
from pxrs_ray.group.group_health import LASTING
from pxrs_ray.group.runtime_effects import LoadAgain, RenewLeases, StoreCall
from pxrs_ray.group.write_queue import WriteBatch, check_stored
from pxrs_ray.model import Outcome

logger = logging.getLogger(__name__)


class LeaseRenewals:
    """One call at a time, three times in a lease. Its methods answer the call to be made."""

    def __init__(self) -> None:
        self.due_ms: int | None = None
        self._calling: StoreCall | None = None

    def begin(self, lease_ms: int, now_ms: int) -> None:
        """Renew from now on."""
        self._calling = None
        self.due_ms = now_ms + max(1, lease_ms // 3)

    def stop(self) -> None:
        """Wait for no answer any more, and make no call."""
        self._calling = self.due_ms = None

    def waits_for(self, call: StoreCall) -> bool:
        """Whether this very call is the one under way."""
        return call is self._calling

    def renew(self, core: GroupCoordinator, now_ms: int) -> StoreCall | None:
        """Renew the leases of all live members."""
        lease_ms = core.settings.lease_ms
        self.due_ms = now_ms + max(1, lease_ms // 3)
        members = [(each.member.member, each.member.incarnation) for each in core.live_members()]
        if members and self._calling is None:
            self._calling = RenewLeases(core.state.generation, tuple(members), lease_ms)
            return self._calling
        return None

    def answered(self, call: StoreCall, answer: Any, core: GroupCoordinator) -> StoreCall | None:
        """A store that is away is tried again in the next round.

        Raises what lasts, and what `check_stored` finds where a renewal was refused.
        """
        self._calling = None
        if isinstance(answer, StoreError) and not isinstance(answer, LASTING):
            logger.warning("leases of %s are not renewed: %s", core.state.group, answer)
        elif isinstance(answer, BaseException):
            raise answer
        elif isinstance(call, LoadAgain):
            check_stored(call.batch, answer, core.state.generation)
        elif Outcome.FENCED in answer:
            self._calling = LoadAgain(WriteBatch((), 0))
        return self._calling
