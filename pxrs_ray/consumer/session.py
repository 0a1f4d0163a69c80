"""`ConsumerSession`: what one consumer may fetch, process, commit and release. Pure, sans-io.

Rules of this file. The newest assignment is the truth: a partition that is not in it at the very
epoch that we hold is lost, and whatever was fetched or done for it is forgotten, never committed.
Per partition three offsets rise in order: committed <= processed <= fetched. What a former owner
did out of order, and wrote into the row's detail, is done without being fetched: processing passes
it, and fetching goes on behind it. A draining partition takes nothing new; it is released, with its
final checkpoint, when its worker has stopped. The caller (`GroupMember`) owns all waiting, fetching
and calling of handlers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from pxrs_ray.group.events import Assignment, Progress
from pxrs_ray.model import (
    Epoch,
    Generation,
    Grant,
    Incarnation,
    MemberId,
    Offset,
    Outcome,
    PartitionId,
)
from pxrs_ray.processing.done_ranges import done_to


@dataclass(slots=True)
class Holding:
    """One partition that is ours, and our progress in it."""

    partition: PartitionId
    epoch: Epoch
    committed: Offset
    processed: Offset
    fetched: Offset
    attempts: int
    detail: str
    committed_attempts: int
    committed_detail: str
    done_to: Offset
    draining: bool = False
    stopped: bool = False

    def progress(self) -> Progress:
        """The progress of this partition, to be committed or released."""
        return Progress(self.partition, self.epoch, self.processed, self.attempts, self.detail)

    def is_dirty(self) -> bool:
        """Whether there is something to commit."""
        return (
            self.processed > self.committed
            or self.attempts != self.committed_attempts
            or self.detail != self.committed_detail
        )


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

    def __init__(self, member: MemberId, incarnation: Incarnation) -> None:
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

    def to_fetch(
        self, queued: Callable[[PartitionId], int], queued_max: int
    ) -> dict[PartitionId, tuple[Epoch, Offset]]:
        """What to read next: (epoch, offset) of each partition that has room.

        `queued` says how much of a partition its worker has and has not done, of `queued_max`.
        """
        if self.paused:
            return {}
        return {
            p: (held.epoch, held.fetched)
            for p, held in self.holdings.items()
            if not held.draining and queued(p) < queued_max
        }

    def fetched(self, partition: PartitionId, epoch: Epoch, base: Offset, count: int) -> bool:
        """Take note of messages that were read; False means they must be thrown away."""
        held = self.holdings.get(partition)
        if held is None or held.epoch != epoch or held.draining or base != held.fetched:
            return False
        held.fetched = base + count
        return True

    def skip(self, partition: PartitionId, epoch: Epoch, offset: Offset, to: Offset) -> bool:
        """Read on at `to`: there is nothing from `offset` to there. False means it is not ours."""
        held = self.holdings.get(partition)
        if held is None or held.epoch != epoch or held.draining or held.fetched != offset:
            return False
        assert to > offset
        held.fetched = to
        return True

    def processed(
        self,
        partition: PartitionId,
        epoch: Epoch,
        next_offset: Offset,
        *,
        attempts: int = 0,
        detail: str = "",
    ) -> bool:
        """Take note that everything below `next_offset` is done; False means it is not ours."""
        held = self.holdings.get(partition)
        if held is None or held.epoch != epoch:
            return False
        most = max(held.fetched, held.done_to)
        assert held.processed <= next_offset <= most, (
            f"partition {partition}: processed {next_offset} is outside {held.processed} to {most}"
        )
        held.processed = next_offset
        held.fetched = max(held.fetched, next_offset)
        held.attempts = attempts
        held.detail = detail
        return True

    def begin_again(self, partition: PartitionId, epoch: Epoch) -> Grant | None:
        """The worker of this partition is gone: how to begin anew, at what is done. None: not ours.

        What was read for the one that is gone is read again.
        """
        held = self.holdings.get(partition)
        if held is None or held.epoch != epoch or held.draining:
            return None
        held.fetched = held.processed
        held.done_to = done_to(held.processed, held.detail)
        return Grant(partition, epoch, held.processed, held.attempts, held.detail)

    def stopped(self, partition: PartitionId, epoch: Epoch) -> None:
        """The worker of this partition has stopped: nothing of it is in flight any more."""
        held = self.holdings.get(partition)
        if held is not None and held.epoch == epoch:
            held.stopped = True

    def to_commit(self) -> tuple[Progress, ...]:
        """Everything that is done and not yet committed."""
        return tuple(held.progress() for held in self.holdings.values() if held.is_dirty())

    def committed(self, rows: Iterable[Progress], outcomes: Sequence[Outcome]) -> SessionChanges:
        """Take note of the answers to a commit; a fenced row means that the partition is lost."""
        dropped = []
        for row, outcome in zip(rows, outcomes, strict=True):
            held = self.holdings.get(row.partition)
            if held is None or held.epoch != row.epoch:
                continue
            if outcome is Outcome.FENCED:
                self._end(row)
                dropped.append(row.partition)
            else:
                held.committed = max(held.committed, row.checkpoint)
                held.committed_attempts = row.attempts
                held.committed_detail = row.detail
        return SessionChanges(dropped=tuple(dropped))

    def to_release(self) -> tuple[Progress, ...]:
        """Draining partitions whose workers have stopped."""
        return tuple(
            held.progress() for held in self.holdings.values() if held.draining and held.stopped
        )

    def released(self, rows: Iterable[Progress]) -> None:
        """The coordinator has answered a release: whatever it said, these are not ours any more."""
        for row in rows:
            if self.holds(row.partition, row.epoch):
                self._end(row)

    def _end(self, row: Progress) -> None:
        del self.holdings[row.partition]
        self._over[row.partition] = row.epoch

    def lost(self, partition: PartitionId, epoch: Epoch) -> bool:
        """A log says that this epoch is over; False when it was not ours any more."""
        if not self.holds(partition, epoch):
            return False
        self._end(self.holdings[partition].progress())
        return True

    def drop_all(self) -> tuple[PartitionId, ...]:
        """We are no member any more: forget everything, and name what was held."""
        dropped = tuple(self.holdings)
        self.holdings.clear()
        self.preparing.clear()
        return dropped


def _begin(grant: Grant) -> Holding:
    return Holding(
        grant.partition,
        grant.epoch,
        grant.checkpoint,
        grant.checkpoint,
        grant.checkpoint,
        grant.attempts,
        grant.detail,
        grant.attempts,
        grant.detail,
        done_to(grant.checkpoint, grant.detail),
    )
