"""How a registry is called: until the outcome is known, and looked at while it is away. Pure: see
`pxrs_ray.steps`.

Rules of this file. A call that ends without an answer may have been done: it is made again as it
stands, so it must be idempotent. It is made after pauses that grow, and at once when any other call
is answered, for as long as the registry is away. Who calls nobody while it is away would take it
for away when it is back: it is looked at until it answers.
"""

from __future__ import annotations

from typing import Any

from pxrs_ray.backoff import Backoff
from pxrs_ray.clock import Instant
from pxrs_ray.errors import StoreUnavailable
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.steps import Do, Steps, do

PAUSE_FIRST_S = 0.05
PAUSE_MOST_S = 1.0
# An answer so young tells that the registry is there.
FRESH_MS = 1_000


@dataclass(frozen=True, slots=True)
class CallOnce(Do[Any]):
    """Make the call. Raises StoreUnavailable where its outcome is not known."""


@dataclass(frozen=True, slots=True)
class AwaitAnswer(Do[None]):
    """Wait until some other call is answered, for so long at most."""

    wait_s: float


@dataclass(frozen=True, slots=True)
class RestBeforeLook(Do[None]):
    """Let so much time pass."""

    pause_s: float


@dataclass(frozen=True, slots=True)
class IsAway(Do[bool]):
    """Whether the registry is known to be away."""


@dataclass(frozen=True, slots=True)
class Look(Do[None]):
    """Ask the registry something; what comes of it is noted."""


def until_known() -> Steps[Any]:
    """Call until the outcome is known, however long that takes."""
    backoff = Backoff(PAUSE_FIRST_S, PAUSE_MOST_S)
    while True:
        try:
            return (yield from do(CallOnce()))
        except StoreUnavailable:
            yield from do(AwaitAnswer(backoff.failed()))


def look_until_back() -> Steps[None]:
    """Look at it until it is not away any more."""
    while (yield from do(IsAway())):
        yield from do(RestBeforeLook(PAUSE_MOST_S))
        yield from do(Look())


class RegistryHealth:
    """What is known of a registry by the calls to it that have ended."""

    def __init__(self, now_ms: int) -> None:
        # Since when it is down, by the wall clock; None while it is not known to be.
        self.down_since_ms: int | None = None
        self.problem = ""
        self._answered_ms = now_ms

    def failed(self, error: StoreUnavailable, wall_ms: int) -> None:
        """A call has ended without an answer."""
        if self.down_since_ms is None:
            self.down_since_ms = wall_ms
        self.problem = str(error)

    def answered(self, now: Instant) -> bool:
        """A call was answered; whether the registry had been down."""
        was_down = self.down_since_ms is not None
        self.down_since_ms, self.problem, self._answered_ms = None, "", now.monotonic_ms
        return was_down

    def is_fresh(self, now_ms: int) -> bool:
        """Whether nobody needs to look at it now."""
        return now_ms - self._answered_ms < FRESH_MS
