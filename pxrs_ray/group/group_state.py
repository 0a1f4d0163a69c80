"""What a coordinator knows of one group, and the only code that changes it.

Rules of this file. *Hard* state (rows, members, version) is what the store holds; `apply` alone
changes it, live and at recovery alike, so that memory and store cannot drift apart. *Soft* state
(leases, deadlines, the target, sequences) is never stored: a new coordinator makes it afresh,
and nothing that was promised depends on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pxrs_ray.errors import CoordinatorDeposed, IllegalTransition
from pxrs_ray.group.events import PartitionProgress
from pxrs_ray.group.transitions import (
    MEMBER_TABLE,
    PARTITION_TABLE,
    MemberEvent,
    MemberPhase,
    PartitionEvent,
    PartitionPhase,
    advance,
)
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import (
    Epoch,
    Generation,
    Grant,
    Incarnation,
    Member,
    MemberId,
    MemberWrite,
    Offset,
    PartitionId,
    PartitionRow,
    Record,
    Snapshot,
    Write,
    WriteKind,
)

_EVENT_OF_KIND = {
    WriteKind.CLAIM: PartitionEvent.CLAIM,
    WriteKind.RELEASE: PartitionEvent.RELEASE,
    WriteKind.COMMIT: PartitionEvent.COMMIT,
    WriteKind.RESET: PartitionEvent.RESET,
}


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """How one group shares its partitions, and how long anything may take."""

    assignor: str
    static_map: Mapping[PartitionId, MemberId] | None
    tenant: str
    lease_ms: int
    revoke_deadline_ms: int
    prepare_ms: int
    paused: bool = False

    @property
    def hand_over_ms(self) -> int:
        """The longest that a graceful hand-over may take."""
        return self.prepare_ms + self.revoke_deadline_ms


@dataclass(slots=True)
class MemberState:
    """A member, and the soft state about it.

    `until_ms` is when its lease ends (ACTIVE, LEAVING) or its grace does (AWAY). `sequence`
    rises whenever something about its assignment changes.
    """

    member: Member
    phase: MemberPhase
    until_ms: int
    sequence: int = 0


@dataclass(slots=True)
class Preparation:
    """A partition's next owner, getting ready while the present one works on."""

    member: MemberId
    incarnation: Incarnation
    deadline_ms: int
    ready: bool = False


class GroupState:
    """Rows, members and what follows from them. Reading is free; see the rules for changing."""

    def __init__(self, snapshot: Snapshot, leases_until_ms: int) -> None:
        assert [row.partition for row in snapshot.partitions] == list(
            range(len(snapshot.partitions))
        ), "rows are numbered from 0 without a gap"
        self.group = snapshot.group
        self.generation = snapshot.generation
        self.version = snapshot.last_version
        self.rows: list[PartitionRow] = list(snapshot.partitions)
        self.members: dict[MemberId, MemberState] = {
            member.member: MemberState(member, MemberPhase.ACTIVE, leases_until_ms)
            for member in snapshot.members
        }
        self.owned: dict[MemberId, set[PartitionId]] = {}
        for row in self.rows:
            if row.owner is not None:
                self.owned.setdefault(row.owner, set()).add(row.partition)
        self.revoking: dict[PartitionId, int] = {}
        self.preparing: dict[PartitionId, Preparation] = {}
        self.target: dict[PartitionId, MemberId] = {}
        self.seeks: dict[PartitionId, tuple[Offset, str]] = {}
        self.sought: dict[PartitionId, tuple[Offset, Epoch]] = {}
        self.retired: dict[MemberId, Incarnation] = {}

    # --- reading --------------------------------------------------------------------------------

    def phase(self, partition: PartitionId) -> PartitionPhase:
        """The phase of the partition."""
        if self.rows[partition].owner is None:
            return PartitionPhase.UNOWNED
        if partition in self.revoking:
            return PartitionPhase.REVOKING
        return PartitionPhase.OWNED

    def holds(
        self, partition: PartitionId, member: MemberId, incarnation: int, epoch: Epoch
    ) -> bool:
        """Whether exactly this incarnation owns the partition under exactly this epoch."""
        row = self.rows[partition]
        return row.epoch == epoch and row.owner == member and row.incarnation == incarnation

    def grants(self, member: MemberId) -> tuple[Grant, ...]:
        """What the member owns, in partition order."""
        return tuple(
            self._grant(row) for row in (self.rows[p] for p in sorted(self.owned.get(member, ())))
        )

    def check_leading(self, seen: Generation, rows: Iterable[PartitionProgress]) -> None:
        """Raise CoordinatorDeposed when a member has been told more than this coordinator knows.

        Only a newer generation can have told it. An answer from here would make the member drop
        what it rightly owns, and no later word of the newer coordinator would give it back.
        """
        if seen > self.generation or any(
            0 <= row.partition < len(self.rows) and row.epoch > self.rows[row.partition].epoch
            for row in rows
        ):
            raise CoordinatorDeposed(
                f"generation {self.generation} of {self.group} was replaced, a member has heard "
                "of a newer one: ask again under the coordinator's name"
            )

    def to_prepare(self, member: MemberId) -> tuple[Grant, ...]:
        """What the member should get ready for, in partition order; no right to any of it yet."""
        return tuple(
            self._grant(row)
            for row in (self.rows[p] for p in sorted(self.preparing))
            if self.preparing[row.partition].member == member
        )

    def _grant(self, row: PartitionRow) -> Grant:
        sought = self.sought.get(row.partition)
        return Grant(row.partition, row.epoch, row.checkpoint, row.attempts, row.detail, sought)

    # --- hard state -----------------------------------------------------------------------------

    def apply(self, record: Record) -> None:
        """Make the change that `record` states; an illegal one raises and changes nothing."""
        if isinstance(record, MemberWrite):
            self._apply_member(record)
        else:
            self._apply_partition(record)
        if record.version:
            assert record.version == self.version + 1, "versions have no gap"
            self.version = record.version

    def _apply_partition(self, write: Write) -> None:
        row = self.rows[write.partition]
        phase, event = self.phase(write.partition), _EVENT_OF_KIND[write.kind]
        if event not in PARTITION_TABLE[phase]:  # words are made for errors only
            advance(PARTITION_TABLE, phase, event, f"partition {write.partition} of {self.group}")
        if write.epoch != row.epoch:
            raise IllegalTransition(
                f"partition {write.partition} is at epoch {row.epoch}, the record at {write.epoch}"
            )
        if write.kind is WriteKind.COMMIT:
            assert write.checkpoint >= row.checkpoint, "checkpoints never fall"
            self.rows[row.partition] = write.applied_to(row)
            return
        if write.kind is WriteKind.RESET:
            self.sought[row.partition] = (write.checkpoint, row.epoch + 1)
        self.rows[row.partition] = write.applied_to(row)
        if write.kind is WriteKind.CLAIM:
            assert write.owner is not None
            self.preparing.pop(row.partition, None)
            self.owned.setdefault(write.owner, set()).add(row.partition)
            self.bump(write.owner)
        elif row.owner is not None:
            self.owned[row.owner].discard(row.partition)
            self.revoking.pop(row.partition, None)
            self.bump(row.owner)

    def _apply_member(self, write: MemberWrite) -> None:
        name = write.member.member
        old = self.members.get(name)
        if write.kind == "left":
            assert not self.owned.get(name), "a member that is gone owns nothing"
            if old is not None:
                del self.members[name]
            self.owned.pop(name, None)
            self.retired[name] = write.member.incarnation
            return
        phase = advance(
            MEMBER_TABLE,
            old.phase if old else MemberPhase.GONE,
            MemberEvent.JOIN,
            f"member {name} of {self.group}",
        )
        self.members[name] = MemberState(write.member, phase, 0, old.sequence + 1 if old else 1)
        self.retired.pop(name, None)

    # --- soft state -----------------------------------------------------------------------------

    def bump(self, member: MemberId) -> None:
        """Note that what `member` should know has changed."""
        known = self.members.get(member)
        if known is not None:
            known.sequence += 1

    def revoke(self, partition: PartitionId, deadline_ms: int) -> None:
        """Ask the owner for the partition back; at `deadline_ms` it is taken."""
        advance(
            PARTITION_TABLE,
            self.phase(partition),
            PartitionEvent.REVOKE,
            f"partition {partition} of {self.group}",
        )
        self.revoking[partition] = deadline_ms
        owner = self.rows[partition].owner
        assert owner is not None
        self.bump(owner)

    def move_phase(self, member: MemberId, event: MemberEvent) -> MemberPhase:
        """Walk the member's phase by `event`. GONE is for the caller to record as 'left'."""
        known = self.members[member]
        phase = advance(MEMBER_TABLE, known.phase, event, f"member {member} of {self.group}")
        if phase is not MemberPhase.GONE:
            known.phase = phase
        return phase

    def next_end_ms(self) -> int | None:
        """The next end of a lease or deadline; None when there is none."""
        ends = [known.until_ms for known in self.members.values()]
        ends.extend(self.revoking.values())
        ends.extend(p.deadline_ms for p in self.preparing.values() if not p.ready)
        return min(ends, default=None)

    def forgive_ms(self, gap_ms: int) -> None:
        """Move every lease and deadline by time in which nobody could be heard."""
        for known in self.members.values():
            known.until_ms += gap_ms
        for partition in self.revoking:
            self.revoking[partition] += gap_ms
        for preparation in self.preparing.values():
            preparation.deadline_ms += gap_ms
