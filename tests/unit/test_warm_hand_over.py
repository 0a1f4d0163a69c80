"""Warm hand-over in the core: the next owner gets ready before the present one stops."""

from __future__ import annotations

import pytest

from pxrs_ray.clock import Instant
from pxrs_ray.consumer.session import ConsumerSession
from pxrs_ray.errors import UnknownMember
from pxrs_ray.group.events import (
    Assignment,
    AssignmentChanged,
    Commit,
    Decision,
    Died,
    Event,
    Heartbeat,
    Join,
    Leave,
    PartitionProgress,
    Prepared,
    Release,
    Tick,
)
from pxrs_ray.group.group_coordinator import GroupCoordinator
from pxrs_ray.group.group_state import GroupSettings
from pxrs_ray.model import Member, Outcome, Progress
from pxrs_ray.store.memory import MemoryStore
from tests.settings import group_settings
from tests.works import Works

PREPARE_MS = 4_000
SETTINGS = group_settings(lease_ms=100_000, revoke_deadline_ms=2_000, prepare_ms=PREPARE_MS)


class Group:
    """A coordinator whose events are one call, with a clock that only moves when told."""

    def __init__(self, partitions: int = 4, settings: GroupSettings = SETTINGS) -> None:
        store = MemoryStore()
        store.create()
        self.now_ms = 0
        self.core = GroupCoordinator(store.lead("g", partitions, "test"), settings, self._now())
        self.core.start(self._now())

    def _now(self) -> Instant:
        return Instant(self.now_ms, self.now_ms)

    def do(self, event: Event) -> Decision:
        return self.core.handle(event, self._now())

    def pass_ms(self, duration_ms: int) -> None:
        for _ in range(duration_ms // 500):
            self.now_ms += 500
            self.do(Tick())

    def owners(self) -> list[str | None]:
        return [row.owner for row in self.core.state.rows]


def assignments(group: Group, decision: Decision) -> dict[str, Assignment]:
    """The assignments that `decision`, the group's newest, has changed."""
    changed = [e.member for e in decision.effects if isinstance(e, AssignmentChanged)]
    return {member: group.core.assignment(member) for member in changed}


def two() -> tuple[Group, Decision]:
    group = Group()
    group.do(Join((Member("A", 1),)))
    return group, group.do(Join((Member("B", 1),)))


def test_the_owner_is_not_asked_before_the_successor_is_ready() -> None:
    group, joined = two()
    told = assignments(group, joined)
    assert [grant.partition for grant in told["B"].preparing] == [2, 3]
    assert told["B"].grants == ()
    assert "A" not in told
    assert group.owners() == ["A"] * 4
    ready = assignments(group, group.do(Prepared("B", 1, (2, 3))))
    assert ready["A"].revoking == {2, 3}
    released = group.do(
        Release(
            "A", 1, (PartitionProgress(2, 1, Progress(7)), PartitionProgress(3, 1, Progress(9)))
        )
    )
    granted = {g.partition: g.checkpoint for g in assignments(group, released)["B"].grants}
    assert granted == {2: 7, 3: 9}
    assert not group.core.state.preparing


def test_each_partition_moves_as_soon_as_it_is_ready() -> None:
    group, _ = two()
    assert assignments(group, group.do(Prepared("B", 1, (3,))))["A"].revoking == {3}
    group.do(Release("A", 1, (PartitionProgress(3, 1, Progress(0)),)))
    assert group.owners() == ["A", "A", "A", "B"]


def test_the_owner_goes_on_committing_meanwhile() -> None:
    group, _ = two()
    reply = group.do(Commit("A", 1, (PartitionProgress(2, 1, Progress(5)),))).reply
    assert reply is not None
    assert reply.outcomes == (Outcome.APPLIED,)


def test_a_successor_that_takes_too_long_is_waited_for_no_longer() -> None:
    group, _ = two()
    group.pass_ms(PREPARE_MS - 500)
    assert not group.core.state.revoking
    group.pass_ms(500)
    assert set(group.core.state.revoking) == {2, 3}
    group.pass_ms(2_000)
    assert group.owners() == ["A", "A", "B", "B"]


def test_a_dead_owner_is_replaced_at_once_ready_or_not() -> None:
    group, _ = two()
    group.do(Died("A", 1, "killed"))
    assert group.owners() == ["B"] * 4
    assert not group.core.state.preparing


def test_a_dead_successor_leaves_everything_where_it_was() -> None:
    group, _ = two()
    group.do(Died("B", 1, "killed"))
    assert group.owners() == ["A"] * 4
    assert not group.core.state.preparing
    assert not group.core.state.revoking


def test_a_leaving_member_works_on_until_its_successor_is_ready() -> None:
    group, _ = two()
    group.do(Prepared("B", 1, (2, 3)))
    group.do(
        Release(
            "A", 1, (PartitionProgress(2, 1, Progress(0)), PartitionProgress(3, 1, Progress(0)))
        )
    )
    told = assignments(group, group.do(Leave("A", 1)))
    assert [grant.partition for grant in told["B"].preparing] == [0, 1]
    assert group.owners() == ["A", "A", "B", "B"]
    group.do(Prepared("B", 1, (0, 1)))
    group.do(
        Release(
            "A", 1, (PartitionProgress(0, 1, Progress(3)), PartitionProgress(1, 1, Progress(4)))
        )
    )
    assert group.owners() == ["B"] * 4
    assert "A" not in group.core.state.members


def test_what_was_begun_is_not_undone_by_the_next_join() -> None:
    group, _ = two()
    before = dict(group.core.state.target)
    group.do(Join((Member("C", 1),)))
    kept = [p for p, preparing in group.core.state.preparing.items() if preparing.member == "B"]
    assert kept
    assert all(before[p] == "B" for p in kept)


def test_ready_from_an_older_incarnation_does_nothing() -> None:
    group, _ = two()
    group.do(Join((Member("B", 2),)))
    with pytest.raises(UnknownMember):
        group.do(Prepared("B", 1, (2, 3)))
    assert not group.core.state.revoking


def test_the_session_prepares_once_and_forgets_what_goes_elsewhere() -> None:
    group, _ = two()
    session = ConsumerSession("B", 1, Works())
    newest = group.do(Heartbeat("B", 1)).reply
    assert newest is not None
    assert newest.assignment is not None
    changes = session.assign(newest.assignment)
    assert [grant.partition for grant in changes.preparing] == [2, 3]
    assert not session.holdings
    told = assignments(group, group.do(Join((Member("C", 1),))))
    later = session.assign(told["B"]) if "B" in told else None
    left = {p for p, one in group.core.state.preparing.items() if one.member == "B"}
    assert session.preparing == left
    assert later is None or later.preparing == ()
