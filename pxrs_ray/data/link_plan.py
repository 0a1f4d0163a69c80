"""`LinkPlan` and `LinkLife`: when a caller opens a connection to a buffer, opens it again, and
gives it up. Pure: the caller passes the time and the random numbers.

Rules of this file. A process that makes only a few calls needs no connection. While there is none,
the buffer is asked for one after a pause. A connection that broke soon is opened again after a
growing pause; one that lasted long is opened again at once. Pauses differ between processes, so
that they do not all ask a returning buffer at the same moment. A peer that does not prove its
identity in time is given up. A peer that is silent while an answer is due is asked for a sign of
life, and given up after the same time again: it is frozen or cut off.
"""

from __future__ import annotations

from enum import Enum

from pxrs_ray.backoff import Backoff

# Who makes a few calls only is served well enough by Ray.
CALLS_BEFORE_A_LINK = 3
ASK_AGAIN_S = 10.0
PAUSE_FIRST_S = 0.5
PAUSE_MOST_S = 30.0
# A connection that lived for so long was a good one.
GOOD_S = 10.0
# How long the other end may take to prove itself.
WELCOME_S = 5.0
# A caller asks for a sign of life when an answer is awaited and nothing has come for so long.
SILENT_S = 10.0
# Pauses of several processes lie between so many times their length.
SPREAD_LEAST, SPREAD_MOST = 0.75, 1.25


class LinkPlan:
    """When one caller asks one buffer for a connection. `rests` is whether one that broke soon is
    waited for with a pause: on its own node nobody else can have cut it."""

    def __init__(self, *, rests: bool) -> None:
        self._rests = rests
        self._calls = 0
        self._asking = False
        self._ask_at_s = 0.0
        self._backoff = Backoff(PAUSE_FIRST_S, PAUSE_MOST_S)

    @property
    def asking(self) -> bool:
        """Whether the buffer was asked, and the connection is not there yet."""
        return self._asking

    def called(self, now_s: float) -> bool:
        """A call is made, and there is no connection: whether the buffer is asked for one now."""
        self._calls += 1
        if self._calls <= CALLS_BEFORE_A_LINK:
            return False
        return self.wanted(now_s)

    def wanted(self, now_s: float) -> bool:
        """Many calls will be made: whether the buffer is asked for a connection now."""
        if self._asking or now_s < self._ask_at_s:
            return False
        self._asking = True
        return True

    def took(self) -> None:
        """There is one, or it is being made."""
        self._asking = False

    def found_none(self, now_s: float, spread: float) -> None:
        """The buffer has none for this caller, or did not say."""
        self._ask_at_s = now_s + ASK_AGAIN_S * spread
        self._asking = False

    def broke(self, now_s: float, lived_s: float, spread: float, *, welcome: bool) -> None:
        """The connection has ended. `welcome` is whether the other end had proven itself."""
        if welcome and lived_s >= GOOD_S:
            self._backoff.worked()
        elif self._rests:
            self._ask_at_s = now_s + self._backoff.failed() * spread


class Sign(Enum):
    """What a connection needs now."""

    NONE = "nothing"
    ASK = "ask for a sign of life"
    GIVE_UP = "hang up"


class LinkLife:
    """One connection, as the caller's end of it sees it."""

    __slots__ = ("_asked", "_heard_s", "since_s", "welcome")

    def __init__(self, now_s: float) -> None:
        self.welcome = False
        self.since_s = self._heard_s = now_s
        self._asked = False

    def heard(self, now_s: float) -> None:
        """Something has come; or the first answer is awaited from now on."""
        self._heard_s, self._asked = now_s, False

    def is_late(self, now_s: float) -> bool:
        """Whether the other end has not proven itself in time."""
        return not self.welcome and now_s - self.since_s >= WELCOME_S

    def look(self, now_s: float, *, awaits: bool) -> Sign:
        """What to do, where an answer is awaited (`awaits`) or not; told at least every
        `SILENT_S`."""
        if self.is_late(now_s):
            return Sign.GIVE_UP
        silent_s = now_s - self._heard_s
        if not awaits or silent_s < SILENT_S:
            return Sign.NONE
        if not self._asked:
            self._asked = True
            return Sign.ASK
        return Sign.GIVE_UP if silent_s >= 2 * SILENT_S else Sign.NONE

    def silent_s(self, now_s: float) -> float:
        """For how long nothing has come."""
        return now_s - self._heard_s
