"""`MemberLease`: until when a member may act for what it owns, by its own clock. Pure.

Rules of this file. A lease is counted from the moment at which the *request* left that the
coordinator answered. The coordinator received it later, and its own count begins there, so that
count always ends later. A delay in the network, a frozen process, a paused machine: each shortens
what is left of a lease, and only a newer answer lengthens it. An answer that comes so late that its
lease is over counts as none.

The coordinator keeps a heartbeat until it has news, but never for long: what is left of a lease is
least just before an answer, and that must still outlast a coordinator that restarts.
"""

from __future__ import annotations

from collections.abc import Callable

# What a member gives up of its lease, as a part of it. Nobody compares clocks, only lengths of
# time; clocks that are kept run apart by less than a thousandth, those of paused machines by a few
# hundredths. The rest is for what was begun a moment before the end.
MARGIN_PART = 0.1
# For how much of a lease a heartbeat may wait for news. So a lease is renewed six times, and half
# of it is left at any time while all is well.
WAIT_PART = 1 / 6
# As long as a request of a member may take, where nothing says how long.
MEMBER_WAIT_S = 30.0


class MemberLease:
    """One member's lease. All times are readings of one monotonic clock, in seconds."""

    __slots__ = ("length_s", "until_s")

    def __init__(self, length_s: float) -> None:
        # How long a lease is, as far as we know.
        self.length_s = length_s
        # Who was never answered has none.
        self.until_s = float("-inf")

    def answered(self, sent_s: float, lease_s: float) -> None:
        """The coordinator has answered a heartbeat that left at `sent_s` with such a lease."""
        self.length_s = lease_s
        self.until_s = max(self.until_s, sent_s + lease_s * (1 - MARGIN_PART))

    def wait_s(self, now_s: float) -> float:
        """For how long the coordinator may keep the next heartbeat until it has news.

        Who has no lease, or less than half of it left, needs an answer at once.
        """
        if self.until_s - now_s < self.length_s / 2:
            return 0.0
        return self.length_s * WAIT_PART

    def asking_s(self, now_s: float) -> float:
        """For how long others may be asked again for what only a lease allows."""
        return min(MEMBER_WAIT_S, self.until_s - now_s)

    def is_over(self, now_s: float) -> bool:
        """Whether others may own by now what was ours."""
        return now_s > self.until_s


class Title:
    """Whether one partition is ours under one epoch *now*; a delivery carries it so that it can be
    asked.

    It answers where its owner lives. Pickled, it is a copy that is never updated, and says no.
    """

    __slots__ = ("_ask",)

    def __init__(self, ask: Callable[[], bool]) -> None:
        self._ask = ask

    def __call__(self) -> bool:
        """Ask; from any thread."""
        return self._ask()

    def __reduce__(self) -> tuple[Callable[[], Title], tuple[()]]:
        return _void, ()


def _void() -> Title:
    return Title(lambda: False)


def _always() -> bool:
    return True


# Of deliveries that no member's lease stands behind: a trial of a handler, a test.
UNBOUND = Title(_always)
