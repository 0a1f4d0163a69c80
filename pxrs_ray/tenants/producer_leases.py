"""`Leases`: how long nobody goes on without a producer that says nothing.

Rules of this file. Leases run by the time in which a producer could have been heard, not by the
machine's. Who keeps them looks often; when a look comes late, the keeper itself stood still (a
starved or paused machine, a loop that was held up), and every renewal of that while may wait at its
door unread. Of such a pause only `step_most_s` counts, so that the renewals are read first. This
time is never ahead of the machine's: no lease ends too soon. Pure: told the machine's time.
"""

from __future__ import annotations

from collections.abc import Iterable


class Leases:
    """Who has a lease. See the rules at the head of this file; not thread-safe."""

    def __init__(self, lease_s: float, step_most_s: float, now_s: float) -> None:
        self._lease_s, self._step_most_s = lease_s, step_most_s
        self._seen_s = now_s
        self._heard_s = 0.0
        self._until_s: dict[str, float] = {}

    def look(self, now_s: float) -> float:
        """The time in which somebody could be heard, since the beginning; call it often."""
        self._heard_s += max(0.0, min(now_s - self._seen_s, self._step_most_s))
        self._seen_s = max(self._seen_s, now_s)
        return self._heard_s

    def renew(self, name: str, now_s: float) -> None:
        """Give a whole lease, from now on."""
        self._until_s[name] = self.look(now_s) + self._lease_s

    def renew_all(self, names: Iterable[str], now_s: float) -> float:
        """As `renew`, for each; answers when all of these are over, as `look` tells the time."""
        for name in names:
            self.renew(name, now_s)
        return self.look(now_s) + self._lease_s

    def end(self, name: str) -> None:
        """Let a lease end now, if there is one."""
        self._until_s.pop(name, None)

    def over(self, now_s: float) -> list[str]:
        """Whose lease is over, in the order of their names."""
        heard_s = self.look(now_s)
        return sorted(name for name, until_s in self._until_s.items() if until_s <= heard_s)

    def __contains__(self, name: object) -> bool:
        return name in self._until_s

    def names(self) -> list[str]:
        """Who has a lease, in order."""
        return sorted(self._until_s)
