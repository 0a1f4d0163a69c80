"""`Leases`: for how long others wait for a producer that is silent.

Rules of this file. Leases run by the time in which a producer could have been heard, not by the
machine's. The keeper of the leases looks often. When a look comes late, the keeper itself was
frozen (a starved or paused machine, a loop that was held up), and the renewals of that time may all
wait unread. Of such a pause only `step_most_s` counts, so that the renewals are read first. This
time is never ahead of the machine's: no lease ends too soon. Pure: the caller passes the machine's
time.
"""

from __future__ import annotations

from collections.abc import Iterable


class Leases:
    """Which producers have a lease. See the rules at the head of this file; not thread-safe."""

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
