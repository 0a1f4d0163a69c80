"""The input and output of a `GroupCoordinator`.

Rules of this file. Frozen data only. An *event* is a request of a caller, or something that
happened; a *reply* answers the caller; an *effect* is something that `GroupRuntime` must do for
somebody else. Nothing here waits, sends or stores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields, replace
from typing import Any

from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import (
    Epoch,
    Generation,
    Grant,
    Incarnation,
    Member,
    MemberId,
    Offset,
    Outcome,
    PartitionId,
    Progress,
    Record,
)
from pxrs_ray.processing.suspects import Death

# --- events -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Join:
    """These members are ready to own partitions. Several at once are planned as one change."""

    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A member is alive and has seen its assignment up to (generation, sequence).

    The lease that it renews counts from when it came, however long it then waits for an answer:
    waiting is no sign of life.
    """

    member: MemberId
    incarnation: Incarnation
    seen: tuple[Generation, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """How far one partition got under one epoch: the row of a commit or a release."""

    partition: PartitionId
    epoch: Epoch
    progress: Progress


@dataclass(frozen=True, slots=True)
class Commit:
    """A member moves checkpoints on."""

    member: MemberId
    incarnation: Incarnation
    rows: tuple[PartitionProgress, ...]


@dataclass(frozen=True, slots=True)
class Release:
    """A member hands partitions back, with their final checkpoints; its work on them is over."""

    member: MemberId
    incarnation: Incarnation
    rows: tuple[PartitionProgress, ...]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A member is ready to take these partitions over: whatever it had to load is loaded."""

    member: MemberId
    incarnation: Incarnation
    partitions: tuple[PartitionId, ...]


@dataclass(frozen=True, slots=True)
class Leave:
    """A member wants to go. It keeps what it has until it has handed it back."""

    member: MemberId
    incarnation: Incarnation
    cause: str = "left"


@dataclass(frozen=True, slots=True)
class Died:
    """A member is known to be dead: it will hand nothing back.

    `death` says what its handler had in hand, where that could still be read.
    """

    member: MemberId
    incarnation: Incarnation
    cause: str
    death: Death = field(default_factory=Death)


@dataclass(frozen=True, slots=True)
class Configure:
    """Change how partitions are assigned; None leaves a setting as it is."""

    assignor: str | None = None
    static_map: Mapping[PartitionId, MemberId] | None = None
    weights: Mapping[MemberId, float] | None = None
    lease_ms: int | None = None
    revoke_deadline_ms: int | None = None
    prepare_ms: int | None = None
    tenant: str | None = None
    grace_ms: int | None = None
    paused: bool | None = None

    def settings(self) -> dict[str, Any]:
        """The settings of the group that change, by name; weights and grace are the members'."""
        names = (f.name for f in fields(self) if f.name not in ("weights", "grace_ms"))
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def member(self, known: Member) -> Member:
        """A member as it is afterwards."""
        grace_ms = known.grace_ms if self.grace_ms is None else self.grace_ms
        weight = (self.weights or {}).get(known.member, known.weight)
        return replace(known, weight=weight, grace_ms=grace_ms)


@dataclass(frozen=True, slots=True)
class Rebalance:
    """Assign anew, as if membership had changed."""

    cause: str = "asked for"


@dataclass(frozen=True, slots=True)
class Seek:
    """Move checkpoints anywhere, also back: each partition is taken back, reset and granted."""

    offsets: Mapping[PartitionId, Offset]
    cause: str = "seek"


@dataclass(frozen=True, slots=True)
class Raise:
    """Epochs up to these were given out before: take each partition back and go on above.

    Nobody is asked to hand back first: the logs refuse its owner already. Checkpoints stay.
    """

    epochs: Mapping[PartitionId, Epoch]
    cause: str = "epochs raised"


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed: only leases, grace periods and deadlines are looked at.

    While the registry is away none of it counts: whatever a lease or a deadline would change could
    not be kept, and a member that waits for the registry must not be taken for a dead one.
    """

    registry_away: bool = False


Event = (
    Join
    | Heartbeat
    | Commit
    | Release
    | Prepared
    | Leave
    | Died
    | Configure
    | Rebalance
    | Seek
    | Raise
    | Tick
)


# --- effects and replies ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Assignment:
    """Everything that one member may work on, now. It replaces every earlier assignment.

    (generation, sequence) orders assignments: a member ignores one that is not newer than what it
    has. `revoking` is the part of `grants` that it must finish, flush and release before
    `revoke_deadline_ms` have passed. A partition it holds that is not in `grants` at the very same
    epoch is lost: it must be dropped at once, and nothing may be committed for it. `preparing` are
    partitions that will be granted next: the member loads what it needs for them and answers
    `Prepared`, while their owner goes on; it has no right to them yet.
    """

    generation: Generation
    sequence: int
    member: MemberId
    incarnation: Incarnation
    grants: tuple[Grant, ...]
    revoking: frozenset[PartitionId] = frozenset()
    revoke_deadline_ms: int = 0
    paused: bool = False
    leaving: bool = False
    preparing: tuple[Grant, ...] = ()


@dataclass(frozen=True, slots=True)
class AssignmentChanged:
    """This member has a newer assignment: answer its heartbeat, if one waits."""

    member: MemberId


@dataclass(frozen=True, slots=True)
class Dismiss:
    """This incarnation is no longer a member: end its actor if it still lives."""

    member: MemberId
    incarnation: Incarnation
    cause: str
    clean: bool


@dataclass(frozen=True, slots=True)
class FenceReaders:
    """Tell the logs that epochs below these are over for this group."""

    epochs: Mapping[PartitionId, Epoch]


GroupEffect = AssignmentChanged | Dismiss | FenceReaders


@dataclass(frozen=True, slots=True)
class Response:
    """The answer to the caller of an event.

    `outcomes` has one entry a row for Commit and Release. `assignment` is there when the caller
    of a Heartbeat or Join has not seen its newest one. `lease_ms` answers a Heartbeat: for how
    long its member may be silent, counted from when the heartbeat came.
    """

    generation: Generation
    outcomes: tuple[Outcome, ...] = ()
    assignment: Assignment | None = None
    lease_ms: int = 0


@dataclass(frozen=True, slots=True)
class Decision:
    """What a `GroupCoordinator` made of one event. Its state has changed already.

    The order that the shell must keep: `records` are durable in the store, in order and after
    those of every earlier decision, BEFORE `reply` or any of `effects` leaves. `after` counts
    the records emitted so far, this decision's included: reply and effects wait until that
    many are durable. It is 0 where they depend on no record at all.
    """

    records: tuple[Record, ...] = ()
    reply: Response | None = None
    effects: tuple[GroupEffect, ...] = ()
    after: int = 0


@dataclass(frozen=True, slots=True)
class Move:
    """One partition that a plan would take from one member and give to another, and why."""

    partition: PartitionId
    source: MemberId | None
    target: MemberId | None
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What a change would move, before it is done.

    `pause_ms` is what a moved partition is expected to pause: the median of the last hand-overs
    (None while there were none). `unplaced` of the new consumers find no room on the nodes that
    there are now: they wait for nodes to be added.
    """

    cause: str
    moves: tuple[Move, ...]
    counts: Mapping[MemberId, int] = field(default_factory=dict)
    pause_ms: int | None = None
    unplaced: int = 0
