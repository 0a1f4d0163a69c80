"""`GroupCoordinator`: who owns what, at which checkpoint, in which epoch. Pure.

Theory of operation. There is a *target* (who should own each partition) and a *current* assignment
(who does: the rows). A change of membership or configuration makes a new target; then every owned
partition whose owner is not its target is asked back (REVOKING, with a deadline), and every
unowned partition whose target is an active member is claimed for it. A hand-over is therefore
always: asked back, finished and flushed by the old owner, released, claimed, granted.

Two things cut a hand-over short: the owner is known to be dead (`Died`, or its lease ran out), or
the revoke deadline passed. Both release the partition without the owner, and the epoch that this
raises makes whatever the old owner still tries harmless.

Nothing here reads a clock, waits, or talks to anybody. `handle` first checks, and raises before
anything has changed; from there on each change goes through `GroupState.apply` as it is emitted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from pxrs_ray.clock import Instant
from pxrs_ray.errors import Fenced, NotFound, UnknownMember, UsageError
from pxrs_ray.group.assignors import assign
from pxrs_ray.group.decision import DecisionBuilder, assignment_of
from pxrs_ray.group.event_checks import check_event, check_offsets
from pxrs_ray.group.events import (
    Assignment,
    Commit,
    Configure,
    Decision,
    Died,
    Event,
    Heartbeat,
    Join,
    Leave,
    PartitionProgress,
    Plan,
    Prepared,
    Raise,
    Rebalance,
    Release,
    Response,
    Seek,
    Tick,
)
from pxrs_ray.group.group_state import GroupSettings, GroupState, MemberState
from pxrs_ray.group.rebalance import begin_move, grant, plan, raise_epochs, retarget
from pxrs_ray.group.transitions import MemberEvent, MemberPhase, PartitionPhase
from pxrs_ray.model import (
    Incarnation,
    Member,
    MemberId,
    Outcome,
    Snapshot,
    Write,
    WriteKind,
)


class GroupCoordinator:
    """One group's coordinator of one generation. Not thread-safe: one caller at a time."""

    def __init__(self, snapshot: Snapshot, settings: GroupSettings, now: Instant) -> None:
        self.settings = settings
        self.state = GroupState(snapshot, now.monotonic_ms + settings.lease_ms)
        self.records_emitted = 0
        self._last_tick_ms = now.monotonic_ms

    # --- driving --------------------------------------------------------------------------------

    def start(self, now: Instant) -> Decision:
        """The first decision of this generation: go on from what the store holds.

        Causes no ownership change where the stored one is what the members should have.
        """
        builder = self._builder(now, "coordinator started")
        for row in self.state.rows:
            if row.owner is not None:
                known = self.state.members.get(row.owner)
                if known is None or known.member.incarnation != row.incarnation:
                    builder.release(row.partition, "owner is not registered")
        for name in self.state.members:
            builder.touch(name)
        retarget(builder)
        return self._decide(builder, None)

    def handle(self, event: Event, now: Instant) -> Decision:
        """Decide what `event` means at `now`.

        Raises UnknownMember, Fenced, CoordinatorDeposed, UsageError or NotFound when the event is
        refused, and then nothing has changed. Commit and Release never raise for a row: each has
        its own outcome.
        """
        check_event(event)
        match event:
            case Commit():
                return self._commit(event, now)
            case Heartbeat():
                return self._heartbeat(event, now)
            case Release():
                return self._release(event, now)
            case Tick():
                return self._tick(event, now)
            case Prepared():
                return self._prepared(event, now)
            case Join():
                return self._join(event, now)
            case Leave():
                return self._leave(event, now)
            case Died():
                return self._died(event, now)
            case Configure():
                return self._configure(event, now)
            case Seek():
                return self._seek(event, now)
            case Raise():
                builder = self._builder(now, event.cause)
                raise_epochs(builder, event.epochs)
                return self._decide(builder, Response(self.state.generation))
            case Rebalance():
                builder = self._builder(now, f"rebalance {event.cause}")
                retarget(builder)
                return self._decide(builder, Response(self.state.generation))

    def plan(
        self,
        cause: str,
        *,
        add: Sequence[Member] = (),
        remove: Iterable[MemberId] = (),
        assignor: str | None = None,
    ) -> Plan:
        """What this change of members or assignor would move, and why; nothing is changed."""
        settings = replace(self.settings, assignor=assignor or self.settings.assignor)
        return plan(self.state, settings, cause, add, remove)

    def assignment(self, member: MemberId) -> Assignment:
        """The member's newest assignment. Only as durable as `records_emitted` says."""
        return assignment_of(self.state, self.settings, member)

    def news(self, heartbeat: Heartbeat, lease_ms: int) -> Decision:
        """What a heartbeat is answered now that came earlier, and was given `lease_ms` then.

        It raises what `handle` raises, but renews no lease: its member may have died since.
        """
        self.state.check_leading(heartbeat.seen[0], ())
        known = self._known(heartbeat.member, heartbeat.incarnation)
        reply = Response(self.state.generation, lease_ms=lease_ms)
        if heartbeat.seen >= (self.state.generation, known.sequence):
            return Decision(reply=reply)
        reply = replace(reply, assignment=self.assignment(heartbeat.member))
        return Decision(reply=reply, after=self.records_emitted)

    def live_members(self) -> list[MemberState]:
        """The members whose leases run."""
        return [s for s in self.state.members.values() if s.phase is not MemberPhase.AWAY]

    def next_wake_ms(self) -> int | None:
        """The monotonic moment of the next lease end or deadline; None when nothing is pending."""
        return self.state.next_end_ms()

    def _builder(self, now: Instant, cause: str) -> DecisionBuilder:
        return DecisionBuilder(self.state, self.settings, now, cause)

    def _decide(self, builder: DecisionBuilder, reply: Response | None) -> Decision:
        decision = builder.decide(reply, self.records_emitted)
        self.records_emitted = decision.after
        return decision

    # --- members --------------------------------------------------------------------------------

    def _known(self, member: MemberId, incarnation: Incarnation) -> MemberState:
        """What is known of a live member, or UnknownMember."""
        known = self.state.members.get(member)
        if known is None or known.member.incarnation != incarnation:
            newest = self.newest_incarnation(member)
            raise UnknownMember(
                f"{member}#{incarnation} is not a member of {self.state.group} "
                f"(newest incarnation: {newest or 'none'}): join again as a new incarnation"
            )
        if known.phase is MemberPhase.AWAY:
            raise UnknownMember(
                f"the lease of {member}#{incarnation} in {self.state.group} is over: "
                "join again as a new incarnation"
            )
        return known

    def _heard(self, member: MemberId, incarnation: Incarnation, now: Instant) -> MemberState:
        """What is known of a live member that has just proved it lives; its lease starts anew."""
        known = self._known(member, incarnation)
        # Never less than was given: it cannot know yet that leases are shorter now.
        known.until_ms = max(known.until_ms, now.monotonic_ms + self.settings.lease_ms)
        return known

    def newest_incarnation(self, member: MemberId) -> Incarnation:
        """The highest incarnation of `member` that this generation has seen; 0 for none."""
        known = self.state.members.get(member)
        return known.member.incarnation if known else self.state.retired.get(member, 0)

    def _join(self, event: Join, now: Instant) -> Decision:
        names = [m.member for m in event.members]
        if not names or len(set(names)) != len(names):
            raise UsageError(f"a join needs distinct members, got {sorted(names)}")
        fresh = [m for m in event.members if self._is_fresh(m)]
        for member in event.members:
            if member not in fresh:  # asked again, for the answer waits: a sign of life
                self._heard(member.member, member.incarnation, now)
        builder = self._builder(
            now, "join of " + ", ".join(f"{m.member}#{m.incarnation}" for m in fresh)
        )
        for member in fresh:
            old = self.state.members.get(member.member)
            if old is not None and old.phase is not MemberPhase.AWAY:
                builder.release_all(member.member, f"{member.member} came back anew")
                builder.dismiss(old.member, "a newer incarnation joined", clean=False)
            builder.join(member)
        if fresh:
            retarget(builder)
        reply = Response(
            self.state.generation,
            assignment=self.assignment(names[0]) if len(names) == 1 else None,
        )
        return self._decide(builder, reply)

    def _is_fresh(self, member: Member) -> bool:
        """Whether this join is news; a repeated one is not, and an old one raises Fenced."""
        known = self.state.members.get(member.member)
        lives = known is not None and known.phase is not MemberPhase.AWAY
        newest = self.newest_incarnation(member.member)
        if member.incarnation > newest:
            return True
        if member.incarnation == newest and lives:
            return False
        raise Fenced(
            f"{member.member}#{member.incarnation} is fenced in {self.state.group}: "
            f"incarnation {newest} was here; join with a higher one"
        )

    def _heartbeat(self, event: Heartbeat, now: Instant) -> Decision:
        self.state.check_leading(event.seen[0], ())
        self._heard(event.member, event.incarnation, now)
        return self.news(event, self.settings.lease_ms)

    def _leave(self, event: Leave, now: Instant) -> Decision:
        name = event.member
        if self.state.retired.get(name) == event.incarnation:
            return Decision(reply=Response(self.state.generation), after=self.records_emitted)
        builder = self._builder(now, f"{name}#{event.incarnation} {event.cause}")
        known = self.state.members.get(name)
        if known is not None and known.phase is MemberPhase.AWAY:
            if known.member.incarnation != event.incarnation:
                self._known(name, event.incarnation)
            self.state.move_phase(name, MemberEvent.LEAVE)
            builder.forget(known.member, event.cause, clean=True)
        else:
            self._heard(name, event.incarnation, now)
            self.state.move_phase(name, MemberEvent.LEAVE)
            self.state.bump(name)
            builder.touch(name)
        retarget(builder)
        builder.finish_leaving()
        return self._decide(builder, Response(self.state.generation))

    def _died(self, event: Died, now: Instant) -> Decision:
        try:
            known = self._known(event.member, event.incarnation)
        except UnknownMember:
            return Decision(reply=Response(self.state.generation))
        builder = self._builder(now, "death")
        builder.blame(known.member, event.death)
        builder.bury(known, event.cause)
        retarget(builder)
        return self._decide(builder, Response(self.state.generation))

    # --- progress -------------------------------------------------------------------------------

    def _commit(self, event: Commit, now: Instant) -> Decision:
        self.state.check_leading(0, event.rows)
        known = self._heard(event.member, event.incarnation, now)
        builder = self._builder(now, "commit")
        outcomes = tuple(self._progress(builder, known.member, row) for row in event.rows)
        return self._decide(builder, Response(self.state.generation, outcomes))

    def _progress(
        self, builder: DecisionBuilder, member: Member, row: PartitionProgress
    ) -> Outcome:
        """Move one checkpoint on, if this incarnation owns the partition under that epoch."""
        if not 0 <= row.partition < len(self.state.rows):
            return Outcome.FENCED
        if not self.state.holds(row.partition, member.member, member.incarnation, row.epoch):
            return Outcome.FENCED
        stored = self.state.rows[row.partition]
        done = row.progress
        if done.checkpoint < stored.checkpoint:
            return Outcome.BEHIND
        if not stored.is_at(done):
            builder.commit(
                Write(
                    WriteKind.COMMIT,
                    row.partition,
                    member.member,
                    member.incarnation,
                    row.epoch,
                    done.checkpoint,
                    done.attempts,
                    done.detail,
                )
            )
        return Outcome.APPLIED

    def _release(self, event: Release, now: Instant) -> Decision:
        self.state.check_leading(0, event.rows)
        known = self._heard(event.member, event.incarnation, now)
        builder = self._builder(now, f"hand-over by {event.member}#{event.incarnation}")
        outcomes = []
        for row in event.rows:
            outcome = self._progress(builder, known.member, row)
            if outcome is not Outcome.FENCED:
                builder.release(row.partition, f"released by {event.member}#{event.incarnation}")
            outcomes.append(outcome)
        grant(builder)
        builder.finish_leaving()
        return self._decide(builder, Response(self.state.generation, tuple(outcomes)))

    def _prepared(self, event: Prepared, now: Instant) -> Decision:
        self._heard(event.member, event.incarnation, now)
        builder = self._builder(now, f"{event.member}#{event.incarnation} is ready to take over")
        for partition in event.partitions:
            preparation = self.state.preparing.get(partition)
            if preparation is None or preparation.ready:
                continue
            if (preparation.member, preparation.incarnation) == (event.member, event.incarnation):
                begin_move(builder, partition)
        return self._decide(builder, Response(self.state.generation))

    # --- time and configuration -----------------------------------------------------------------

    def _tick(self, event: Tick, now: Instant) -> Decision:
        gap_ms = now.monotonic_ms - self._last_tick_ms
        self._last_tick_ms = now.monotonic_ms
        if event.registry_away or gap_ms > self.settings.lease_ms // 2:
            # Nothing could be kept, or this process itself stood still: silence proves nothing.
            self.state.forgive_ms(gap_ms)
            return Decision()
        builder = self._builder(now, "time passed")
        for known in list(self.state.members.values()):
            if known.until_ms > now.monotonic_ms:
                continue
            if known.phase is MemberPhase.AWAY:
                self.state.move_phase(known.member.member, MemberEvent.GRACE_OVER)
                builder.cause = f"grace period of {known.member.member} over"
                builder.forget(known.member, builder.cause, clean=False)
            else:
                builder.bury(known, "lease over, no heartbeat")
        if builder.records:
            builder.finish_leaving()
            retarget(builder)
        for partition, preparation in self.state.preparing.items():
            if not preparation.ready and preparation.deadline_ms <= now.monotonic_ms:
                begin_move(builder, partition)
        for partition, deadline_ms in list(self.state.revoking.items()):
            if deadline_ms <= now.monotonic_ms:
                builder.cause = "revoke deadline passed"
                builder.release(partition, builder.cause)
        if builder.records:
            builder.finish_leaving()
            grant(builder)
        return self._decide(builder, None)

    def _configure(self, event: Configure, now: Instant) -> Decision:
        changes = event.settings()
        settings = replace(self.settings, **changes)
        weights = event.weights or {}
        unknown = weights.keys() - self.state.members.keys()
        if unknown:
            raise NotFound(f"no member {sorted(unknown)[0]!r} in group {self.state.group}")
        assign(settings.assignor, [], len(self.state.rows), {}, static_map=settings.static_map)
        self.settings = settings
        builder = self._builder(now, "configuration of " + ", ".join(sorted([*changes, *weights])))
        for name, known in list(self.state.members.items()):
            member = event.member(known.member)
            if member != known.member and known.phase is MemberPhase.ACTIVE:
                builder.join(member)
                # Being configured is no sign of life.
                self.state.members[name].until_ms = known.until_ms
            self.state.bump(name)
            builder.touch(name)
        retarget(builder)
        return self._decide(builder, Response(self.state.generation))

    def _seek(self, event: Seek, now: Instant) -> Decision:
        check_offsets(event.offsets, self.state.group, len(self.state.rows))
        builder = self._builder(now, event.cause)
        for partition, offset in event.offsets.items():
            self.state.seeks[partition] = (offset, event.cause)
            if self.state.phase(partition) is PartitionPhase.OWNED:
                builder.revoke(partition)
        grant(builder)
        return self._decide(builder, Response(self.state.generation))
