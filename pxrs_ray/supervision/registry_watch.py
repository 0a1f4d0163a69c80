"""`RegistryWatch`: since when the registry has not answered. Pure.

Rules of this file. The thread that makes the calls writes, any thread may read. Calls are made one
after another; the oldest one without an answer counts. A call that takes long is not noticed before
`notice_ms`, one that has failed is noticed at once.
"""

from __future__ import annotations


class RegistryWatch:
    """What is known of a registry from how calls to it end. `now_ms` is monotonic."""

    def __init__(self) -> None:
        self._since_ms: int | None = None
        self._failed = False

    def asked(self, now_ms: int) -> None:
        """A call leaves."""
        if self._since_ms is None:
            self._since_ms = now_ms

    def answered(self) -> None:
        """The registry has answered, whatever it said."""
        self._since_ms, self._failed = None, False

    def failed(self, now_ms: int) -> None:
        """A call ended without an answer."""
        self.asked(now_ms)
        self._failed = True

    def away_ms(self, now_ms: int, notice_ms: int) -> int | None:
        """For how long the registry has been away; None while it is not known to be."""
        since_ms = self._since_ms
        if since_ms is None:
            return None
        waited_ms = now_ms - since_ms
        return waited_ms if self._failed or waited_ms >= notice_ms else None


def notice_ms(lease_ms: int) -> int:
    """How long a call may take before the registry counts as away for leases of this length."""
    return min(NOTICE_MS_MAX, max(1, lease_ms // 4))


NOTICE_MS_MAX = 1_000
