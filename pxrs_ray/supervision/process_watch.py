"""`ProcessWatch`: which processes of its node a process looks at, and which it ends. Pure: the
caller looks, and passes the time.

Rules of this file. A round looks at every process of the node once, one after the other; each may
be mute, and then takes its time. So between two looks at one there may be a pause and a look at all
the others: only what is longer means that the one who looks has stood still itself, and then what
it had counted is worth nothing. Who is new is judged from its first look on; who is gone is
forgotten. A process is known by all that its file says: another one with its number is another one.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import Generic, Protocol, TypeVar

from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.supervision.freeze_detector import FreezeDetector, Health, ProcessLook

GAP_PAUSES = 3.0


class Watchable(Hashable, Protocol):
    """A process of this node, as its file tells of it."""

    @property
    def role(self) -> str:
        """What it does."""

    @property
    def pid(self) -> int:
        """Its number."""

    @property
    def lease_ms(self) -> int:
        """For how long it may be missed."""


P = TypeVar("P", bound=Watchable)


@dataclass(frozen=True, slots=True)
class Mute:
    """A process of this node that does not answer pulse checks."""

    role: str
    pid: int
    mute_s: float
    stopped: bool


class ProcessWatch(Generic[P]):
    """What one process knows of the others of its node. A round: `begin`, `looked` for each."""

    def __init__(self, every_s: float, answer_wait_s: float) -> None:
        self._every_s, self._answer_wait_s = every_s, answer_wait_s
        self._judges: dict[P, FreezeDetector] = {}
        self._mute: list[Mute] = []
        self._gap_max_s = 0.0

    def begin(self, found: Collection[P]) -> list[P]:
        """A round begins, these processes are there: whom to look at, one after the other."""
        self._judges = {
            process: self._judges.get(process) or FreezeDetector(process.lease_ms / 1_000)
            for process in found
        }
        self._gap_max_s = GAP_PAUSES * (self._every_s + self._answer_wait_s * len(self._judges))
        self._mute = []
        return list(self._judges)

    def looked(self, process: P, seen: ProcessLook, now_s: float) -> bool:
        """What a look has shown; whether the process is frozen, and is to be ended."""
        judge = self._judges[process]
        health = judge.look(now_s, seen, self._gap_max_s)
        if health is not Health.WELL:
            mute = Mute(process.role, process.pid, judge.mute_s(now_s), seen.stopped)
            self._mute.append(mute)
        return health is Health.FROZEN

    def mute(self) -> tuple[Mute, ...]:
        """Who has not answered in this round so far."""
        return tuple(self._mute)
