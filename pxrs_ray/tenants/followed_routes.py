"""`FollowedRoutes`: where a producer sends each tenant's messages, and when it may. Pure.

Rules of this file. A producer renews its lease whatever is under way, and sends only while it is
sure of its lease. A tenant that moves is held back until everything that was sent before is
acknowledged or given up; the others go on. A producer that was silent for longer than its lease is
fenced: it begins anew, under another name, as soon as it learns of that. The caller keeps threads
apart, and gives the time.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from typing import Protocol

from pxrs_ray.tenants.migration import Route

Routes = dict[str, tuple[Route, int]]
AT_FIRST = (Route.SHARED, 0)


class Sent(Protocol):
    """What a producer gives for a message."""

    def done(self) -> bool:
        """Whether it is acknowledged or given up."""


class FollowedRoutes:
    """One life of a producer of tenants, under one name. A fenced one is over."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.fenced = False
        self.joined = False
        # Until then it may send.
        self.sure_until_s = 0.0
        self._follows: Routes = {}
        self._held: Routes = {}
        self._sending: Counter[str] = Counter()
        self._under_way: dict[str, deque[Sent]] = {}

    # --- sending ----------------------------------------------------------------------------------

    def is_sure(self, now_s: float) -> bool:
        """Whether nobody goes on without it now."""
        return now_s < self.sure_until_s and not self.fenced

    def route(self, tenant: str, now_s: float) -> Route | None:
        """Where the next message of a tenant goes; None while it must be held back."""
        route = self._follows.get(tenant, AT_FIRST)[0]
        if not self.is_sure(now_s) or route is Route.HOLD or tenant in self._held:
            return None
        return route

    def begins(self, tenant: str) -> None:
        """A message of a tenant is being sent."""
        self._sending[tenant] += 1

    def began(self, tenant: str, sent: Sent | None) -> None:
        """It is under way; None: it was refused."""
        self._sending[tenant] -= 1
        if sent is None:
            return
        under_way = self._under_way.setdefault(tenant, deque())
        while under_way and under_way[0].done():
            under_way.popleft()
        under_way.append(sent)

    def found_fenced(self) -> None:
        """A log has refused it: the routes went on without it."""
        self.fenced, self.sure_until_s = True, 0.0

    # --- asking -----------------------------------------------------------------------------------

    def follows(self) -> dict[str, int]:
        """The version of each tenant's route that it follows, with all it sent before in the
        logs."""
        return {tenant: version for tenant, (_, version) in self._follows.items()}

    def answered(
        self, asked_s: float, answer: tuple[float, Mapping[str, tuple[Route, int]]] | None
    ) -> bool:
        """The routes have answered what was asked at `asked_s`; whether to tell them at once.

        None says that it is fenced.
        """
        if answer is None:
            self.found_fenced()
            return False
        lease_s, routes = answer
        moved = {t: r for t, r in routes.items() if self._follows.get(t, AT_FIRST)[1] != r[1]}
        if not self.joined:
            self._follows, moved = dict(routes), {}
        self.joined = True
        self._held = moved
        ready = [tenant for tenant in moved if self._all_there(tenant)]
        for tenant in ready:
            self._follows[tenant] = self._held.pop(tenant)
        self.sure_until_s = asked_s + lease_s
        return bool(ready)

    def _all_there(self, tenant: str) -> bool:
        """Whether everything that was sent of a tenant is acknowledged or given up."""
        if self._sending[tenant]:
            return False
        return all(sent.done() for sent in self._under_way.get(tenant, ()))
