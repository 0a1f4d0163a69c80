"""The steps of a call that needs special care. Pure.

Rules of this file. A message that may have killed a process first waits for its pause. A call
begins only under the lease and with an entry in the record of calls in progress; then the lease is
checked once more, because both may have taken long. A call that failed because the lease was over
says nothing about its message: it begins again under a new lease, or never. Putting a message into
quarantine is not a call; it is retried when it fails.
"""

from __future__ import annotations

from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.processing.call_turns import NOT_BEGUN
from pxrs_ray.processing.scheduler import Task, Work
from pxrs_ray.steps import Do, Steps


@dataclass(frozen=True, slots=True)
class Went:
    """How a call went: `error` in words, None for well. `void`: our time was over."""

    error: str | None = None
    void: bool = False


@dataclass(frozen=True, slots=True)
class PutAside(Do[Went]):
    """Keep what the handler could not process where the failure policy says."""


@dataclass(frozen=True, slots=True)
class NoteWait(Do[None]):
    """It waits, and is not late: its time begins with its call."""


@dataclass(frozen=True, slots=True)
class AwaitBudget(Do[Went]):
    """Wait until the group's limits let one more call begin; NOT_BEGUN where the worker is to
    end."""


@dataclass(frozen=True, slots=True)
class AwaitPause(Do[None]):
    """Wait until so long after the worker began, or until it is to end."""

    pause_ms: int


@dataclass(frozen=True, slots=True)
class AwaitLease(Do[bool]):
    """Wait until a call may begin under the lease; False where the worker is to end."""


@dataclass(frozen=True, slots=True)
class TakePlace(Do[bool]):
    """Note it as in hand, alone where it must be; False where the worker is to end."""


@dataclass(frozen=True, slots=True)
class NoteBegin(Do[bool]):
    """Its time begins; False where it was left alone before."""


@dataclass(frozen=True, slots=True)
class CallIt(Do[Went]):
    """Call the handler; what is in hand is over then."""


@dataclass(frozen=True, slots=True)
class LeavePlace(Do[None]):
    """Nothing is in hand."""


PUT_ASIDE, WAIT, BUDGET, LEASE = PutAside(), NoteWait(), AwaitBudget(), AwaitLease()
PLACE, BEGIN, CALL, LEAVE = TakePlace(), NoteBegin(), CallIt(), LeavePlace()


def call_apart(task: Task, *, limited: bool = False) -> Steps[str | None]:
    """Do what is to be done with the task; what went wrong, or NOT_BEGUN. `limited`: the group has
    limits of calls, or of what they cost.

    Each message whose call may be left alone comes here: steps are yielded as they are.
    """
    if task.work is not Work.HANDLE:
        went: Went = yield PUT_ASIDE
        return went.error
    suspect = task.item.suspect
    while True:
        yield WAIT
        if limited:
            went = yield BUDGET
            if went.error is not None:
                return went.error
        if suspect is not None:
            yield AwaitPause(suspect.pause_ms)
        if not ((yield LEASE) and (yield PLACE) and (yield LEASE) and (yield BEGIN)):
            yield LEAVE
            return NOT_BEGUN
        went = yield CALL
        if not went.void:
            return went.error
