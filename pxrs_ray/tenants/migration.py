"""`TenantMove`: a tenant gets a queue of its own, or gives it up, while messages flow.

Rules of this file. What must not happen: a message is lost, or a key's messages are processed in
another order than one producer sent them in. So the two queues are never both open at one end:

* SHARED      producers send to the shared queue
* LEAVING     they send to the isolated one; a producer that has switched has all it sent before in
              the shared log. Ends when every producer has switched. The isolated queue is not read
              yet.
* GATED       the ends of the shared partitions are noted: the isolated queue is read when the
              shared group has passed all of them
* ISOLATED    producers send to the isolated queue, and it is read
* DRAINING    the same; waits until what is unread of it is small
* HOLDING     producers hold the tenant's messages back, and have all they sent before in the log.
              Ends when every producer holds and the isolated queue is read to its end: then SHARED

A producer switches to the route that it gets, and reports the route's version. One that is silent
for longer than its lease is not waited for: it must not send either, until it has asked again.
Handlers emit nothing and wait for nothing; each call may be repeated. The state is plain data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

from pxrs_ray.errors import IllegalTransition
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Offset, PartitionId

DRAINED_MESSAGES = 1_000


class Route(StrEnum):
    """What a producer does with a tenant's messages."""

    SHARED = "shared"
    ISOLATED = "isolated"
    HOLD = "hold"


class Phase(StrEnum):
    """See the rules at the head of this file."""

    SHARED = "shared"
    LEAVING = "leaving"
    GATED = "gated"
    ISOLATED = "isolated"
    DRAINING = "draining"
    HOLDING = "holding"


_ROUTES = {
    Phase.SHARED: Route.SHARED,
    Phase.LEAVING: Route.ISOLATED,
    Phase.GATED: Route.ISOLATED,
    Phase.ISOLATED: Route.ISOLATED,
    Phase.DRAINING: Route.ISOLATED,
    Phase.HOLDING: Route.HOLD,
}


@dataclass(slots=True)
class TenantMove:
    """One tenant's move between the queues. `version` rises with each change of the route."""

    phase: Phase = Phase.SHARED
    version: int = 0
    switched: dict[str, int] = field(default_factory=dict)
    barrier: dict[PartitionId, Offset] = field(default_factory=dict)

    @property
    def route(self) -> Route:
        """What producers should do."""
        return _ROUTES[self.phase]

    @property
    def isolated_is_read(self) -> bool:
        """Whether the tenant's own queue may be read."""
        return self.phase in (Phase.ISOLATED, Phase.DRAINING, Phase.HOLDING)

    @property
    def settled(self) -> bool:
        """Whether nothing is under way."""
        return self.phase in (Phase.SHARED, Phase.ISOLATED)

    # --- what is wanted ---------------------------------------------------------------------------

    def promote(self) -> None:
        """Begin to isolate. Raises IllegalTransition while the tenant is on its way back."""
        if self.phase in (Phase.LEAVING, Phase.GATED, Phase.ISOLATED):
            return
        if self.phase is Phase.DRAINING:
            self.phase = Phase.ISOLATED
            return
        if self.phase is not Phase.SHARED:
            raise IllegalTransition("the tenant is on its way back to the shared queue: wait")
        self._turn(Phase.LEAVING)

    def demote(self) -> None:
        """Begin to share again. Raises IllegalTransition while the tenant is on its way out."""
        if self.phase in (Phase.SHARED, Phase.DRAINING, Phase.HOLDING):
            return
        if self.phase is not Phase.ISOLATED:
            raise IllegalTransition("the tenant is on its way to a queue of its own: wait")
        self.phase = Phase.DRAINING

    # --- what happened ----------------------------------------------------------------------------

    def joined(self, producer: str) -> None:
        """A producer asks for the route for the first time, having sent nothing under another."""
        self.switched[producer] = self.version

    def gone(self, producer: str) -> None:
        """A producer has closed, or its lease is over: nothing more of it is under way."""
        self.switched.pop(producer, None)

    @property
    def all_switched(self) -> bool:
        """Whether every producer follows the present route."""
        return all(version == self.version for version in self.switched.values())

    def look(
        self,
        shared_ends: Mapping[PartitionId, Offset],
        shared_passed: Mapping[PartitionId, Offset],
        isolated_unread: int,
    ) -> bool:
        """Go on where that is possible; True when the phase has changed.

        `shared_ends` are the ends of the shared logs, read after the last acknowledgement was;
        `isolated_unread` counts what the tenant's group has not passed, read after `shared_ends`.
        """
        before = self.phase
        if self.phase is Phase.LEAVING and self.all_switched:
            self.barrier = dict(shared_ends)
            self.phase = Phase.GATED
        elif self.phase is Phase.GATED and all(
            shared_passed.get(partition, 0) >= end for partition, end in self.barrier.items()
        ):
            self.barrier = {}
            self.phase = Phase.ISOLATED
        elif self.phase is Phase.DRAINING and isolated_unread <= DRAINED_MESSAGES:
            self._turn(Phase.HOLDING)
        elif self.phase is Phase.HOLDING and self.all_switched and isolated_unread == 0:
            self._turn(Phase.SHARED)
        return self.phase is not before

    def _turn(self, phase: Phase) -> None:
        self.phase = phase
        self.version += 1
