"""`CoordinatorWatch`: when a buffer that hears no coordinator starts one, and where. Pure: the
caller looks who runs, and passes the time.

Rules of this file. One that was heard lately, or that runs, is never replaced from here. None is
made after a shutdown, and none before a coordinator has left what it is made of. Where the registry
lies on a disk, only a node that has that disk gets one: no new registry is ever begun. Disks are
looked at when nodes have come or gone, and now and then.
"""

from __future__ import annotations

# A deployment that replaces the coordinator is done by then.
QUIET_S_MIN = 2.0
LOOK_PAUSE_S = 0.5
# While no node comes or goes, disks are looked at this often.
AGAIN_S = 5.0

ANYWHERE = ""


class CoordinatorWatch:
    """One buffer's watch over its coordinator. It looks every `LOOK_PAUSE_S`."""

    def __init__(self, lease_s: float, now_s: float) -> None:
        self._quiet_s = max(QUIET_S_MIN, lease_s / 2)
        self._heard_s = now_s
        self._closed = self._may_make = False
        self._nodes: frozenset[str] = frozenset()
        self._looked_s: float | None = None

    def heard(self, now_s: float) -> None:
        """A coordinator has spoken."""
        self._heard_s = now_s

    def told(self, now_s: float) -> None:
        """A coordinator has left what another one is made of."""
        self.heard(now_s)
        self._may_make = True

    def close(self) -> None:
        """The topology is shut down: nobody is made any more."""
        self._closed = True

    def misses_it(self, now_s: float) -> bool:
        """Whether to find out now if one runs, and which node has the registry."""
        if self._closed or not self._may_make:
            return False
        return now_s - self._heard_s >= self._quiet_s

    def looks_at_disks(self, nodes: frozenset[str], now_s: float) -> bool:
        """Whether it is worth looking at the disks of these nodes, which live now."""
        if self._looked_s is None or nodes != self._nodes:
            return True
        return now_s - self._looked_s >= AGAIN_S

    def disks_seen(self, nodes: frozenset[str], now_s: float) -> None:
        """The disks of these nodes were looked at."""
        self._nodes, self._looked_s = nodes, now_s

    def makes(self, node: str | None, *, runs: bool) -> bool:
        """Whether one is made there, at last: `node` is where the registry is (None: nowhere, ''
        where any node will do), and `runs` whether there is one after all."""
        return node is not None and not runs and not self._closed
