"""A lease binds its member: who is not heard for so long works for nobody."""

from __future__ import annotations

from pxrs_ray.group.events import Commit, Heartbeat, Join, Leave, Prepared, Release
from pxrs_ray.model import Generation, Incarnation, MemberId
from tests.simulation.checkers.base import Checker
from tests.simulation.history import Asked, Begun, Decided

Who = tuple[MemberId, Incarnation]

UNDER_A_LEASE = ("fetch", "Commit", "Release")


class LeaseBinds(Checker):
    """No member begins a message, reads, commits or releases when its lease is over by the
    reckoning of the last coordinator that heard it. So two owners never work at once for longer
    than a lease.

    A history that does not tell when the coordinator heard whom is not judged.
    """

    def __init__(self) -> None:
        super().__init__()
        # By whose clock, and until when by that; how far each coordinator's clock has come.
        self._until_ms: dict[Who, tuple[Generation, int]] = {}
        self._clock_ms: dict[Generation, int] = {}

    def on_decided(self, event: Decided) -> None:
        """Note who was heard, and how late it is there."""
        self._clock_ms[event.generation] = event.monotonic_ms
        sign = event.event
        heard: list[Who] = []
        if isinstance(sign, Heartbeat | Commit | Release | Prepared | Leave):
            heard = [(sign.member, sign.incarnation)]
        elif isinstance(sign, Join):
            heard = [(m.member, m.incarnation) for m in sign.members]
        for who in heard:
            until_ms = event.monotonic_ms + event.lease_ms
            before = self._until_ms.get(who)
            # A lease that was longer when it was given is not shortened afterwards.
            if before is not None and before[0] == event.generation:
                until_ms = max(until_ms, before[1])
            self._until_ms[who] = (event.generation, until_ms)

    def on_asked(self, event: Asked) -> None:
        """Asking for what only a lease allows is like beginning."""
        if event.what in UNDER_A_LEASE:
            self.on_begun(event)

    def on_begun(self, event: Begun | Asked) -> None:
        """Compare with the clock of the coordinator that heard it last."""
        lease = self._until_ms.get((event.member, event.incarnation))
        if lease is None:
            return
        generation, until_ms = lease
        late_ms = self._clock_ms[generation] - until_ms
        if late_ms > 0:
            self.broken(event.at_ms, f"{event} at least {late_ms} ms after its lease")
