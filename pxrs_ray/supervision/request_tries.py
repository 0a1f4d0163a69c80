"""`RequestTries`: whom a client asks for the coordinator, how often again, and until when. Pure.

Rules of this file. Every request is idempotent, so one whose answer was lost is asked again until
its deadline. What the coordinator raised on purpose is an answer. That its process has ended or is
not reached is none, and neither is the word of a coordinator that has been replaced: the name is
looked up again. While names cannot be looked up, the last known actor is asked: it may still live.
A request that was made and is not answered in its time is given up, and none is made after it:
what a lease allows may no longer be allowed then. Who came without any time is heard once. Time is
given in: the caller carries what `next` says and tells what came of it. Until then `next` is not
called again.
"""

from __future__ import annotations

from typing import Any

from pxrs_ray.backoff import Backoff
from pxrs_ray.late_dataclass import dataclass

FIND_S = 1.0
RETRY_FIRST_S = 0.02
RETRY_MOST_S = 0.5


@dataclass(frozen=True, slots=True)
class LookUp:
    """Look the coordinator's name up, for no longer than this."""

    wait_s: float


@dataclass(frozen=True, slots=True)
class Make:
    """Make the request of this actor, and wait for its answer so long."""

    actor: Any
    wait_s: float


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait for so long, then ask for what is next."""

    wait_s: float


@dataclass(frozen=True, slots=True)
class Unheard:
    """The time is over. `why` is the last trouble; `late`: it was asked and has not answered."""

    why: object
    late: bool


class KnownCoordinator:
    """Whom one client takes for the coordinator; all of its requests share it."""

    __slots__ = ("actor", "in_doubt")

    def __init__(self) -> None:
        self.actor: Any = None
        self.in_doubt = True


class RequestTries:
    """One request of one client. See the rules at the head of this file."""

    __slots__ = ("_backoff", "_end_s", "_fault", "_in_time", "_known", "_looked", "_rested")

    def __init__(self, known: KnownCoordinator, now_s: float, wait_s: float) -> None:
        self._known = known
        self._end_s = now_s + wait_s
        self._in_time = wait_s > 0
        self._backoff: Backoff | None = None
        self._fault: Unheard | None = None
        self._rested = self._looked = False

    def next(self, now_s: float) -> LookUp | Make | Pause | Unheard:
        """What to do now."""
        left_s = self._end_s - now_s
        fault = self._fault
        if fault is not None:
            if fault.late or left_s <= 0:
                return fault
            if not self._rested:
                self._rested = True
                if self._backoff is None:
                    self._backoff = Backoff(RETRY_FIRST_S, RETRY_MOST_S)
                return Pause(min(self._backoff.failed(), left_s))
            self._fault = None
        if self._known.in_doubt and not self._looked:
            return LookUp(max(0.0, min(left_s, FIND_S)))
        if self._in_time and left_s <= 0:
            return Unheard("its name was not found in time", late=False)
        return Make(self._known.actor, max(0.0, left_s))

    # --- what came of it --------------------------------------------------------------------------

    def found(self, actor: Any | None) -> None:
        """The name was looked up; None: nobody has it yet, and somebody will."""
        if actor is None:
            self._failed("no actor has its name")
            return
        self._known.actor, self._known.in_doubt = actor, False
        self._looked = True

    def names_away(self, why: object) -> None:
        """Names cannot be looked up now: the last known actor is asked, if there was one."""
        if self._known.actor is None:
            self._failed(why)
        else:
            self._looked = True

    def deposed(self, why: object) -> None:
        """It was asked and said that another one leads."""
        self._known.in_doubt = True
        self._failed(why)

    def unreached(self, why: object) -> None:
        """The actor has ended, moved or was cut off; whether the request was carried out is not
        known."""
        self._known.in_doubt = True
        self._failed(why)

    def late(self) -> None:
        """It was asked, and its time is over."""
        self._fault = Unheard("it was asked", late=True)

    def _failed(self, why: object) -> None:
        self._fault = Unheard(why, late=False)
        self._rested = self._looked = False


class AliveCheck:
    """Whether the coordinator's process answers, whatever it is at: looks of a limited time each.

    One that is being started anew is waited for until the deadline; one that lives and is mute for
    a whole look is told of at once.
    """

    def __init__(self, now_s: float, wait_s: float, look_most_s: float) -> None:
        self._end_s = now_s + wait_s
        # Whoever waits little gives half of it to a look.
        self.look_s = min(wait_s / 2, look_most_s)

    def after(self, unanswered: Unheard, lives: bool, now_s: float) -> Pause | Unheard:
        """What follows a look that was not answered, of a process that `lives` as far as known."""
        if (lives and unanswered.late) or now_s >= self._end_s:
            return unanswered
        return Pause(RETRY_FIRST_S)
