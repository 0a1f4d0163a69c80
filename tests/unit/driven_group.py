"""A group whose members do as they are told: the real coordinator, a memory store, no network.

Every decision is durable at once, and every assignment reaches its member at once. Members hand
back what they are asked for when the test says so.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping

from pxrs_ray.consumer.session import ConsumerSession, SessionChanges
from pxrs_ray.group.events import (
    Assignment,
    AssignmentChanged,
    Commit,
    Decision,
    Dismiss,
    Event,
    FenceReaders,
    Join,
    PartitionProgress,
    Release,
    Tick,
)
from pxrs_ray.group.group_coordinator import GroupCoordinator
from pxrs_ray.group.group_state import GroupSettings
from pxrs_ray.model import Member, Outcome, PartitionRow, Progress
from pxrs_ray.store.memory import MemoryStore
from pxrs_ray.testing.manual_clock import ManualClock
from tests.settings import group_settings
from tests.works import Works

GROUP = "g"
TICK_MS = 100
SHORT = group_settings(lease_ms=1_000, revoke_deadline_ms=500)


class DrivenGroup:
    """See the head of this file. `settings` are those of `GroupSettings`."""

    def __init__(self, partitions: int = 8, settings: GroupSettings | None = None) -> None:
        self.partitions = partitions
        self.settings = settings or group_settings()
        self.clock = ManualClock(monotonic_ms=1_000)
        self.store = MemoryStore(now_ms=lambda: self.clock.now().wall_ms)
        self.sessions: dict[str, ConsumerSession] = {}
        self.works: dict[str, Works] = {}
        self.dismissed: list[Dismiss] = []
        self.fenced: dict[int, int] = {}
        self.changes: dict[str, SessionChanges] = {}
        self.lead()

    # --- driving --------------------------------------------------------------------------------

    def lead(self) -> Decision:
        """A coordinator takes over."""
        snapshot = self.store.lead(GROUP, self.partitions, "test")
        self.core = GroupCoordinator(snapshot, self.settings, self.clock.now())
        return self._carry_out(self.core.start(self.clock.now()))

    def do(self, event: Event) -> Decision:
        """Let the coordinator decide on `event`."""
        return self._carry_out(self.core.handle(event, self.clock.now()))

    def _carry_out(self, decision: Decision) -> Decision:
        outcomes = self.store.write(GROUP, self.core.state.generation, decision.records)
        assert set(outcomes) <= {Outcome.APPLIED}
        assert decision.after in (0, self.core.records_emitted)
        for effect in decision.effects:
            match effect:
                case AssignmentChanged():
                    self._tell(self.core.assignment(effect.member))
                case Dismiss():
                    self.dismissed.append(effect)
                case FenceReaders():
                    self.fenced.update(effect.epochs)
        if decision.reply is not None and decision.reply.assignment is not None:
            self._tell(decision.reply.assignment)
        stored = self.store.load(GROUP)
        assert stored is not None and list(stored.partitions) == self.core.state.rows
        return decision

    def _tell(self, assignment: Assignment) -> None:
        session = self.sessions.get(assignment.member)
        if session is None or session.incarnation != assignment.incarnation:
            return
        session.assign(assignment)

    def pass_time(self, ms: int) -> None:
        """Let time pass, with the ticks that come in it."""
        end_ms = self.clock.now().monotonic_ms + ms
        while self.clock.now().monotonic_ms < end_ms:
            self.clock.advance(min(TICK_MS, end_ms - self.clock.now().monotonic_ms))
            self.do(Tick())

    # --- members --------------------------------------------------------------------------------

    def join(self, *names: str, incarnation: int = 1, grace_ms: int = 0) -> Decision:
        """Members join, as one change."""
        for name in names:
            self.works[name] = Works()
            self.sessions[name] = ConsumerSession(name, incarnation, self.works[name])
        return self.do(Join(tuple(Member(name, incarnation, 1.0, grace_ms) for name in names)))

    def commit(self, name: str, checkpoints: Mapping[int, int]) -> tuple[Outcome, ...]:
        """A member commits under the epochs that it holds."""
        session = self.sessions[name]
        rows = tuple(self._work(name, p, checkpoint) for p, checkpoint in checkpoints.items())
        reply = self.do(Commit(name, session.incarnation, rows)).reply
        assert reply is not None
        session.committed(rows, reply.outcomes)
        return reply.outcomes

    def hand_back(self, *names: str, checkpoints: Mapping[int, int] | None = None) -> None:
        """Members finish and release what they were asked for, at these checkpoints."""
        for name in names or tuple(self.sessions):
            session = self.sessions[name]
            for held in [held for held in session.holdings.values() if held.draining]:
                was = self.row(held.partition).checkpoint
                self._work(name, held.partition, (checkpoints or {}).get(held.partition, was))
                session.stopped(held.partition, held.epoch)
            if rows := session.to_release():
                self.do(Release(name, session.incarnation, rows))
                session.released(rows)

    def _work(self, name: str, partition: int, to: int) -> PartitionProgress:
        """A member works up to there."""
        held = self.sessions[name].holdings[partition]
        held.done_to = max(held.done_to, to)
        self.works[name].come(partition, held.epoch, to)
        return PartitionProgress(partition, held.epoch, Progress(to))

    # --- looking --------------------------------------------------------------------------------

    def row(self, partition: int) -> PartitionRow:
        """Where a partition stands."""
        return self.core.state.rows[partition]

    def owners(self) -> dict[str, list[int]]:
        """Who owns what."""
        found: dict[str, list[int]] = {}
        for row in self.core.state.rows:
            if row.owner is not None:
                found.setdefault(row.owner, []).append(row.partition)
        return found

    def held(self, name: str) -> dict[int, int]:
        """Where a member would go on: the checkpoints that it was granted, by partition."""
        return {p: held.fetched for p, held in self.sessions[name].holdings.items()}

    def counts(self) -> list[int]:
        """How many partitions each owner has, most first."""
        return sorted(map(len, self.owners().values()), reverse=True)

    def checkpoints(self, partitions: Iterable[int]) -> list[int]:
        """The checkpoints of these partitions."""
        return [self.row(partition).checkpoint for partition in partitions]

    def everything(self) -> object:
        """All that an event could change."""
        core = self.core
        return copy.deepcopy((vars(core.state), core.settings, core.records_emitted))


def group_of(*names: str, grace_ms: int = 0, partitions: int = 4) -> DrivenGroup:
    """A group with short times, and these members."""
    group = DrivenGroup(partitions, SHORT)
    group.join(*names, grace_ms=grace_ms)
    return group
