"""`ConsumerSession`: what one consumer may fetch, process, commit and release. Pure, sans-io.

Rules of this file. The newest assignment is the truth: a partition that is not in it at the very
epoch that we hold is lost, and whatever was fetched or done for it is forgotten, never committed.
Per partition three offsets rise in order: committed <= done <= fetched. Only the worker of a
partition knows how far its work is, and how much waits for it: it is asked, and its last word holds
where it cannot say. Nobody is asked whose partition is at rest: nothing was read for it since all
of it was done and committed. What a former owner did out of order, and wrote into the row's detail,
is done without being fetched: the work passes it, and fetching goes on behind it. A draining
partition takes nothing new; it is released, with its final checkpoint, when its worker has stopped.
The caller (`MemberMachine`) owns all waiting and fetching.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field, replace
from typing import Protocol

from pxrs_ray.group.events import Assignment, PartitionProgress
from pxrs_ray.late_dataclass import dataclass
from pxrs_ray.model import (
    Epoch,
    Generation,
    Grant,
    Incarnation,
    MemberId,
    Offset,
    Outcome,
    PartitionId,
    Progress,
)
from pxrs_ray.processing.done_ranges import done_to


class WorkProgress(Protocol):
    """What a session asks of the workers of its partitions. Nothing here may block."""

    def progress(self, partition: PartitionId, epoch: Epoch) -> Progress | None:
        """How far the work is; None where there is no worker, or it cannot say."""

    def queued_bytes(self, partition: PartitionId) -> int:
        """How much waits to be worked on."""


@dataclass(slots=True)
class Holding:
    """One partition that is ours, and what is read of it, done and committed.

    `done` is the last word of its worker; nobody asks one that has `stopped`.
    """

    partition: PartitionId
    epoch: Epoch
    committed: Progress
    done: Progress
    fetched: Offset
    done_to: Offset
    draining: bool = False
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class SessionChanges:
    """What a new assignment means for the workers of a consumer."""

    started: tuple[Grant, ...] = field(default=())
    preparing: tuple[Grant, ...] = field(default=())
    unprepared: tuple[PartitionId, ...] = field(default=())
    draining: tuple[PartitionId, ...] = field(default=())
    dropped: tuple[PartitionId, ...] = field(default=())


class ConsumerSession:
    """One incarnation of one member. Not thread-safe: one caller at a time."""

    def __init__(self, member: MemberId, incarnation: Incarnation, work: WorkProgress) -> None:
        self.member = member
        self.incarnation = incarnation
        self.seen: tuple[Generation, int] = (0, 0)
        self.paused = False
        self.leaving = False
        self.holdings: dict[PartitionId, Holding] = {}
        self.preparing: set[PartitionId] = set()
        # Up to which epoch each partition is known to be over: an assignment that was decided
        # before that became known, and arrives after it, must not begin it again.
        self._over: dict[PartitionId, Epoch] = {}
        # Which partitions may have something to commit, in the order in which that began; and who
        # is told when the first of them comes.
        self._at_work: dict[PartitionId, None] = {}
        self.woken: Callable[[], None] = _nobody
        self._work = work

    def assign(self, assignment: Assignment) -> SessionChanges:
        """Make `assignment` the truth, unless it is older than what we have or not for us."""
        newer = (assignment.generation, assignment.sequence) > self.seen
        ours = (assignment.member, assignment.incarnation) == (self.member, self.incarnation)
        if not newer or not ours:
            return SessionChanges()
        self.seen = (assignment.generation, assignment.sequence)
        self.paused = assignment.paused
        self.leaving = assignment.leaving
        grants = [g for g in assignment.grants if g.epoch > self._over.get(g.partition, -1)]
        granted = {grant.partition: grant for grant in grants}
        # A partition that comes back under another epoch is dropped and begun anew: what was
        # fetched or done under the old epoch must never be committed under the new one.
        gone = [
            held
            for p, held in self.holdings.items()
            if p not in granted or granted[p].epoch != held.epoch
        ]
        # Of what its worker has stopped nothing is left to drop: the release's answer is overtaken.
        dropped = tuple(held.partition for held in gone if not (held.draining and held.stopped))
        for held in gone:
            del self.holdings[held.partition]
        begun = tuple(grant for grant in grants if grant.partition not in self.holdings)
        started = tuple(grant for grant in begun if grant.partition not in assignment.revoking)
        for grant in begun:
            self.holdings[grant.partition] = _begin(grant)
            self._note_work(grant.partition)
            # What is asked back before it was begun has no worker that could stop.
            self.holdings[grant.partition].stopped = grant.partition in assignment.revoking
        draining = []
        for partition in sorted(assignment.revoking & self.holdings.keys()):
            held = self.holdings[partition]
            if not held.draining:
                held.draining = True
                draining.append(partition)
        wanted = {grant.partition: grant for grant in assignment.preparing}
        fresh = tuple(grant for p, grant in wanted.items() if p not in self.preparing)
        unprepared = tuple(sorted(self.preparing - wanted.keys() - granted.keys()))
        self.preparing = set(wanted)
        return SessionChanges(started, fresh, unprepared, tuple(draining), dropped)

    def holds(self, partition: PartitionId, epoch: Epoch) -> bool:
        """Whether the partition is ours under this epoch, as far as we know."""
        held = self.holdings.get(partition)
        return held is not None and held.epoch == epoch

    def to_fetch(self, queued_bytes_max: int) -> dict[PartitionId, tuple[Epoch, Offset]]:
        """What to read next: (epoch, offset) of each partition whose worker has room."""
        if self.paused:
            return {}
        return {
            p: (held.epoch, held.fetched)
            for p, held in self.holdings.items()
            if not held.draining and self._work.queued_bytes(p) < queued_bytes_max
        }

    def fetched(self, partition: PartitionId, epoch: Epoch, base: Offset, count: int) -> bool:
        """Take note of messages that were read; False means they must be thrown away."""
        held = self.holdings.get(partition)
        if held is None or held.epoch != epoch or held.draining or base != held.fetched:
            return False
        held.fetched = base + count
        self._note_work(partition)
        return True

    def skip(self, partition: PartitionId, epoch: Epoch, offset: Offset, to: Offset) -> bool:
        """Read on at `to`: there is nothing from `offset` to there. False means it is not ours."""
        held = self.holdings.get(partition)
        if held is None or held.epoch != epoch or held.draining or held.fetched != offset:
            return False
        assert to > offset
        held.fetched = to
        self._note_work(partition)
        return True

    @property
    def at_rest(self) -> bool:
        """Whether there is nothing that could be committed before something is read."""
        return not self._at_work

    def _note_work(self, partition: PartitionId) -> None:
        was_at_rest = not self._at_work
        self._at_work[partition] = None
        if was_at_rest:
            self.woken()

    def _done(self, held: Holding) -> Progress:
        """How far a partition is; everything below that was read, or done by a former owner."""
        told = None if held.stopped else self._work.progress(held.partition, held.epoch)
        if told is None:
            return held.done
        least = held.done.checkpoint
        most = max(held.fetched, held.done_to)
        assert least <= told.checkpoint <= most, (
            f"partition {held.partition}: done to {told.checkpoint}, outside {least} to {most}"
        )
        held.fetched = max(held.fetched, told.checkpoint)
        held.done = told
        return told

    def begin_again(self, partition: PartitionId, epoch: Epoch) -> Grant | None:
        """The worker of this partition is gone: how to begin anew, at what is done. None: not ours.

        What was read for the one that is gone is read again.
        """
        held = self.holdings.get(partition)
        if held is None or held.epoch != epoch or held.draining:
            return None
        at = self._done(held)
        held.fetched = at.checkpoint
        held.done_to = done_to(at.checkpoint, at.detail)
        self._note_work(partition)
        return Grant(partition, epoch, at.checkpoint, at.attempts, at.detail)

    def stopped(self, partition: PartitionId, epoch: Epoch) -> None:
        """The worker of this partition has stopped: nothing of it is in flight any more.

        It is asked for the last time, and may go.
        """
        held = self.holdings.get(partition)
        if held is not None and held.epoch == epoch:
            self._done(held)
            held.stopped = True

    def to_commit(self) -> tuple[PartitionProgress, ...]:
        """Everything that is done and not yet committed."""
        rows = []
        for partition in list(self._at_work):
            held = self.holdings.get(partition)
            if held is None:
                del self._at_work[partition]
                continue
            done = self._done(held)
            if done != held.committed:
                rows.append(_row(held, done))
            elif held.fetched <= done.checkpoint and not done.detail:
                # All that was read is done, and what is done is committed.
                del self._at_work[partition]
        return tuple(rows)

    def committed(
        self, rows: Iterable[PartitionProgress], outcomes: Sequence[Outcome]
    ) -> SessionChanges:
        """Take note of the answers to a commit; a fenced row means that the partition is lost."""
        dropped = []
        for row, outcome in zip(rows, outcomes, strict=True):
            held = self.holdings.get(row.partition)
            if held is None or held.epoch != row.epoch:
                continue
            if outcome is Outcome.FENCED:
                self._end(row.partition, row.epoch)
                dropped.append(row.partition)
            else:
                checkpoint = max(held.committed.checkpoint, row.progress.checkpoint)
                held.committed = replace(row.progress, checkpoint=checkpoint)
        return SessionChanges(dropped=tuple(dropped))

    def to_release(self) -> tuple[PartitionProgress, ...]:
        """Draining partitions whose workers have stopped."""
        return tuple(
            _row(held, self._done(held))
            for held in self.holdings.values()
            if held.draining and held.stopped
        )

    def released(self, rows: Iterable[PartitionProgress]) -> None:
        """The coordinator has answered a release: whatever it said, these are not ours any more."""
        for row in rows:
            if self.holds(row.partition, row.epoch):
                self._end(row.partition, row.epoch)

    def _end(self, partition: PartitionId, epoch: Epoch) -> None:
        del self.holdings[partition]
        self._over[partition] = epoch

    def lost(self, partition: PartitionId, epoch: Epoch) -> bool:
        """A log says that this epoch is over; False when it was not ours any more."""
        if not self.holds(partition, epoch):
            return False
        self._end(partition, epoch)
        return True

    def drop_all(self) -> tuple[PartitionId, ...]:
        """We are no member any more: forget everything, and name what was held."""
        dropped = tuple(self.holdings)
        self.holdings.clear()
        self._at_work.clear()
        self.preparing.clear()
        return dropped


def _nobody() -> None: ...


def _begin(grant: Grant) -> Holding:
    at = grant.progress
    ends = done_to(grant.checkpoint, grant.detail)
    return Holding(grant.partition, grant.epoch, at, at, grant.checkpoint, ends)


def _row(held: Holding, done: Progress) -> PartitionProgress:
    return PartitionProgress(held.partition, held.epoch, done)
