"""What is known of one wanted consumer, and what may be done with it. Pure.

Rules of this file. A step says whose it is; whoever carries it knows the process that belongs to
it. A consumer that was replaced, or let go, is another one.
"""

from __future__ import annotations

from dataclasses import field
from typing import Protocol, TypeVar

from pxrs_ray.group.events import Died
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import Incarnation, MemberId
from pxrs_ray.processing.suspects import Death
from pxrs_ray.steps import Do, Steps
from pxrs_ray.supervision.restart_rules import FaultsInARow, RestartRules

# Who died sooner than that after its start died of it, or of its first messages.
QUICK_DEATH_S = 3.0


@dataclass(slots=True)
class ReplicaLife:
    """One wanted consumer. `state` is starting, pending, running, silent, leaving or failed."""

    member: MemberId
    incarnation: Incarnation = 0
    actor: str = ""
    state: str = "starting"
    reason: str = ""
    born_s: float = 0.0
    quick_deaths: int = 0
    faults: FaultsInARow = field(default_factory=lambda: FaultsInARow(RestartRules()))

    def note_end(self) -> None:
        """Its process is known to have ended; one that fails to start stays failed.

        The core answers a death by a dismissal: that of one that runs is of one that is silent.
        """
        if self.state == "running":
            self.state = "starting"

    def count_death(self, now_s: float) -> None:
        """It has died now: count how often it did soon after its start."""
        is_quick = now_s - self.born_s < QUICK_DEATH_S
        self.quick_deaths = self.quick_deaths + 1 if is_quick else 0

    def is_new(self, incarnation: Incarnation, actor: str, now_s: float) -> None:
        """A new process comes for it."""
        self.incarnation, self.actor, self.born_s = incarnation, actor, now_s
        self.state, self.reason = "starting", ""


L = TypeVar("L", bound=ReplicaLife)
L_contra = TypeVar("L_contra", bound=ReplicaLife, contravariant=True)


class DidNotEnd(Exception):
    """A consumer did not hand over, or end, as it was asked to."""


@dataclass(frozen=True, slots=True)
class Came:
    """What became of an actor that is coming up: `is_up`, neither (not yet), or `died` of this.

    `refused`: its constructor raised, which loads the handler.
    """

    is_up: bool = False
    died: str = ""
    refused: bool = False


@dataclass(frozen=True, slots=True)
class ItsEnd:
    """How a process has ended. `died`: nobody asked it to; the kernel's `status`, where known."""

    cause: str
    died: bool
    status: int = 0


@dataclass(frozen=True, slots=True)
class MakeActor(Do[None]):
    """Make a process for it, of a number that nobody had, as `ReplicaLife.is_new`."""

    life: ReplicaLife


@dataclass(frozen=True, slots=True)
class AwaitUp(Do[Came]):
    """Wait until its actor is up, or known never to be, or for so long."""

    life: ReplicaLife
    wait_s: float | None = None


@dataclass(frozen=True, slots=True)
class AwaitStarts(Do[None]):
    """Wait until what was begun beside for these is over, or for so long."""

    lives: tuple[ReplicaLife, ...]
    wait_s: float


@dataclass(frozen=True, slots=True)
class LetJoin(Do[None]):
    """Have the group take these as members, in one change. Raises what the group refuses."""

    lives: tuple[ReplicaLife, ...]


@dataclass(frozen=True, slots=True)
class LetBegin(Do[None]):
    """Let these begin, each for itself: look for its end, tell it, and have `ReplicaLives.watched`
    go on beside. What is the matter with it is noted only: its end or its lease will tell."""

    lives: tuple[ReplicaLife, ...]


@dataclass(frozen=True, slots=True)
class AwaitEnd(Do[ItsEnd]):
    """Wait for the end of its process."""

    life: ReplicaLife


@dataclass(frozen=True, slots=True)
class ReadDeath(Do[Death]):
    """Read what its handlers had in hand when it died."""

    life: ReplicaLife
    status: int


@dataclass(frozen=True, slots=True)
class ReportDeath(Do[None]):
    """Tell the group. Raises DeadlineExceeded while the group is not well."""

    died: Died


@dataclass(frozen=True, slots=True)
class LetTimePass(Do[None]):
    """Let so much time pass."""

    pause_s: float


@dataclass(frozen=True, slots=True)
class HandOver(Do[None]):
    """Have it leave the group, hand everything back, and end. Raises DidNotEnd."""

    life: ReplicaLife
    cause: str


@dataclass(frozen=True, slots=True)
class Each(Do[None]):
    """Do all of these beside each other."""

    steps: tuple[Steps[None], ...]


@dataclass(frozen=True, slots=True)
class EndProcess(Do[None]):
    """End its process, wherever it is and frozen or not; one that is gone is no error."""

    life: ReplicaLife


@dataclass(frozen=True, slots=True)
class FindActor(Do[bool]):
    """Find its actor by its name; whether it is there."""

    life: ReplicaLife


class LivesRoom(Protocol[L_contra]):
    """What the lives need at once of where they are. Nothing of it waits, or raises."""

    def now_s(self) -> float:
        """The time, by a clock that only rises."""

    def beside(self, life: L_contra, steps: Steps[None]) -> None:
        """Have this done beside. What it raises goes to `ReplicaLives.faulted`."""

    def call_off(self, life: L_contra) -> None:
        """Whatever else was begun beside for it is called off, but what asks for this."""

    def kill(self, life: L_contra, *, hard: bool) -> object:
        """End its actor; `hard` is for one that may be frozen."""

    def changed(self) -> None:
        """Who is wanted, by which number and actor, is to be kept."""

    def number(self, member: MemberId) -> Incarnation:
        """A number above every one that this member had."""

    def member_is(self, member: MemberId) -> Incarnation | None:
        """As which incarnation it is a member now."""

    @property
    def respawns(self) -> bool:
        """Whether who died is replaced."""

    @property
    def keeps_place(self) -> bool:
        """Whether who died has its partitions kept for it for a while."""

    @property
    def needs(self) -> str:
        """What a consumer needs of its node, in words."""

    @property
    def lease_s(self) -> float:
        """For how long a member may be silent."""
