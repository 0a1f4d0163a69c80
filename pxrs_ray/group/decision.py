"""`DecisionBuilder`: collects what one event decides. Every change of ownership is emitted here.

Rules of this file. Each method changes the state by `GroupState.apply` and keeps the record, in
that order and never one without the other; the cause is part of each record.
"""

from __future__ import annotations

from pxrs_ray.clock import Instant
from pxrs_ray.errors import CoordinatorDeposed, Fenced, PxrsError
from pxrs_ray.group.event_checks import harmless
from pxrs_ray.group.events import (
    Assignment,
    AssignmentChanged,
    Decision,
    Dismiss,
    FenceReaders,
    GroupEffect,
    Response,
)
from pxrs_ray.group.group_state import GroupSettings, GroupState, MemberState, Preparation
from pxrs_ray.group.transitions import MemberEvent, MemberPhase
from pxrs_ray.model import (
    Epoch,
    Incarnation,
    Member,
    MemberId,
    MemberWrite,
    PartitionId,
    Record,
    Write,
    WriteKind,
)
from pxrs_ray.processing.suspects import Death, HandlerCall, blame

CAUSE_CHARS_MAX = 500
RETIRED_MAX = 10_000


def assignment_of(state: GroupState, settings: GroupSettings, member: MemberId) -> Assignment:
    """The member's newest assignment."""
    known = state.members[member]
    owned = state.owned.get(member, set())
    return Assignment(
        state.generation,
        known.sequence,
        member,
        known.member.incarnation,
        state.grants(member),
        frozenset(p for p in owned if p in state.revoking),
        settings.revoke_deadline_ms,
        settings.paused,
        known.phase is MemberPhase.LEAVING,
        state.to_prepare(member) if state.preparing else (),
    )


def refusal_after(refused: PxrsError, records_emitted: int) -> int:
    """How many records must be durable before a refusal of `GroupCoordinator.handle` may leave.

    Who hears that it is no member drops all it has: that must be as true in the store. The word
    that somebody else leads, or that an event makes no sense, rests on no record.
    """
    rests = isinstance(refused, Fenced) and not isinstance(refused, CoordinatorDeposed)
    return records_emitted if rests else 0


class DecisionBuilder:
    """The records and effects of one event, while it is being decided."""

    def __init__(
        self, state: GroupState, settings: GroupSettings, now: Instant, cause: str
    ) -> None:
        self.state = state
        self.settings = settings
        self.now = now
        self.cause = cause
        self.records: list[Record] = []
        self._effects: list[GroupEffect] = []
        self._touched: dict[MemberId, None] = {}
        self._fenced: dict[PartitionId, Epoch] = {}

    def deadline_ms(self) -> int:
        """When a partition that is asked back now is taken away."""
        return self.now.monotonic_ms + self.settings.revoke_deadline_ms

    def touch(self, member: MemberId | None) -> None:
        """Tell `member` its assignment when this event is over."""
        if member is not None:
            self._touched[member] = None

    def commit(self, write: Write) -> None:
        """Record progress."""
        self.state.apply(write)
        self.records.append(write)

    def claim(self, partition: PartitionId, member: Member) -> None:
        """Give an unowned partition to `member`."""
        checkpoint = self.state.rows[partition].checkpoint
        self._emit(
            WriteKind.CLAIM, partition, member.member, member.incarnation, self.cause, checkpoint
        )
        self.touch(member.member)

    def reset(
        self, partition: PartitionId, checkpoint: int, cause: str, epoch_to: Epoch = 0
    ) -> None:
        """Move the checkpoint of a free partition anywhere, its epoch to at least `epoch_to`."""
        self._emit(WriteKind.RESET, partition, None, 0, cause, checkpoint, epoch_to)

    def revoke(self, partition: PartitionId) -> None:
        """Ask the owner for the partition back."""
        self.state.revoke(partition, self.deadline_ms())
        self.touch(self.state.rows[partition].owner)

    def prepare(self, partition: PartitionId, successor: Member) -> None:
        """Let the next owner get ready before the present one is asked to stop."""
        known = self.state.preparing.get(partition)
        if known is not None:
            if (known.member, known.incarnation) == (successor.member, successor.incarnation):
                return
            self.unprepare(partition)
        self.state.preparing[partition] = Preparation(
            successor.member,
            successor.incarnation,
            self.now.monotonic_ms + self.settings.prepare_ms,
        )
        self.state.bump(successor.member)
        self.touch(successor.member)

    def unprepare(self, partition: PartitionId) -> None:
        """The partition goes to somebody else, or nowhere: nobody need be ready for it."""
        known = self.state.preparing.pop(partition, None)
        if known is not None:
            self.state.bump(known.member)
            self.touch(known.member)

    def release(self, partition: PartitionId, cause: str) -> None:
        """Take the partition from its owner, which has finished or can no longer be waited for."""
        row = self.state.rows[partition]
        self.touch(row.owner)
        self._emit(WriteKind.RELEASE, partition, row.owner, row.incarnation, cause, row.checkpoint)

    def release_all(self, member: MemberId, cause: str) -> None:
        """Take everything that `member` owns."""
        for partition in sorted(self.state.owned.get(member, ())):
            self.release(partition, cause)

    def join(self, member: Member) -> None:
        """Register a member; its lease begins."""
        self._emit_member("joined", member)
        self.state.members[member.member].until_ms = self.now.monotonic_ms + self.settings.lease_ms
        self.touch(member.member)

    def dismiss(self, member: Member, cause: str, *, clean: bool) -> None:
        """Have the shell end this incarnation."""
        self._touched.pop(member.member, None)
        self._effects.append(Dismiss(member.member, member.incarnation, cause, clean))

    def forget(self, member: Member, cause: str, *, clean: bool) -> None:
        """Strike a member that owns nothing from the register."""
        self._emit_member("left", member)
        self.dismiss(member, cause, clean=clean)
        while len(self.state.retired) > RETIRED_MAX:
            del self.state.retired[next(iter(self.state.retired))]

    def bury(self, known: MemberState, cause: str) -> None:
        """Take everything from a dead member; keep its share for it where there is grace.

        Whatever else this event decides is said to be caused by this death.
        """
        member = known.member
        self.cause = f"{member.member}#{member.incarnation} died: {cause}"
        self.release_all(member.member, self.cause)
        after = self.state.move_phase(member.member, MemberEvent.DIE)
        if after is MemberPhase.AWAY and member.grace_ms > 0:
            known.until_ms = self.now.monotonic_ms + member.grace_ms
            self.dismiss(member, cause, clean=False)
        else:
            self.forget(member, cause, clean=False)

    def blame(self, member: Member, death: Death) -> None:
        """Note beside the checkpoints of a dead member what its handler had in hand.

        It is the dead owner's own commit, as its epoch was the last to write there.
        """
        mine: dict[PartitionId, list[HandlerCall]] = {}
        for call in death.calls:
            mine.setdefault(call.partition, []).append(call)
        for partition in sorted(self.state.owned.get(member.member, ())):
            row = self.state.rows[partition]
            calls = [call for call in mine.get(partition, ()) if call.epoch == row.epoch]
            if not calls:
                continue
            detail = blame(row.checkpoint, row.attempts, row.detail, death, calls)
            if detail != row.detail:
                self.commit(
                    Write(
                        WriteKind.COMMIT,
                        partition,
                        row.owner,
                        row.incarnation,
                        row.epoch,
                        row.checkpoint,
                        row.attempts,
                        detail,
                    )
                )

    def finish_leaving(self) -> None:
        """Let go of every leaving member that has handed everything back."""
        for known in list(self.state.members.values()):
            name = known.member.member
            if known.phase is MemberPhase.LEAVING and not self.state.owned.get(name):
                self.state.move_phase(name, MemberEvent.FINISH)
                self.forget(known.member, self.cause, clean=True)

    def decide(self, reply: Response | None, records_before: int) -> Decision:
        """The decision, with a new assignment for everybody whose own changed."""
        if self._fenced:
            self._effects.insert(0, FenceReaders(self._fenced))
        self._effects.extend(
            AssignmentChanged(name) for name in self._touched if name in self.state.members
        )
        after = records_before + len(self.records)
        return Decision(tuple(self.records), reply, tuple(self._effects), after)

    def _emit(
        self,
        kind: WriteKind,
        partition: PartitionId,
        owner: MemberId | None,
        incarnation: Incarnation,
        cause: str,
        checkpoint: int,
        epoch_to: Epoch = 0,
    ) -> None:
        """Record an ownership change, and apply it. Readers of the old epoch are fenced."""
        write = Write(
            kind,
            partition,
            owner,
            incarnation,
            self.state.rows[partition].epoch,
            checkpoint,
            version=self.state.version + 1,
            cause=harmless(cause[:CAUSE_CHARS_MAX]),
            at_ms=self.now.wall_ms,
            epoch_to=epoch_to,
        )
        self.state.apply(write)
        self.records.append(write)
        self._fenced[partition] = write.epoch_after

    def _emit_member(self, kind: str, member: Member) -> None:
        record = MemberWrite(
            kind,
            member,
            self.settings.lease_ms,
            self.state.version + 1,
            harmless(self.cause[:CAUSE_CHARS_MAX]),
            self.now.wall_ms,
        )
        self.state.apply(record)
        self.records.append(record)
